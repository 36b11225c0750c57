"""Servers that cheat real parties over real connections: what each party refuses, and why."""

from threat_models.active.probe import Probe, ProbeResult, make_finding, run_probe
from threat_models.active.run import PROBES, malicious_server, run_probes

__all__ = ["PROBES", "Probe", "ProbeResult", "make_finding", "malicious_server", "run_probe", "run_probes"]
