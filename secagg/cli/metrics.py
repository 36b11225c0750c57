"""Serve a party's state over HTTP (--metrics): /metrics for Prometheus, /healthz as JSON."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from secagg.errors import BadInput
from secagg.system.extras import extra

Facts = Callable[[], Mapping[str, Any]]
MOST_THREADS = 200
_log = logging.getLogger("secagg.metrics")
_GAUGES = {
    "round": "Number of the present round of the plan, from 1.",
    "rounds": "Number of rounds of the plan.",
    "seconds_left": "Seconds until the present step closes.",
    "message_bytes": "Bytes of the present round's messages, sent and received.",
    "awaited": "Number of parties that the present step waits for.",
    "vector_bytes": "Bytes of the protected vectors of the present round that this party keeps.",
}


class _Handler(WSGIRequestHandler):
    timeout = 10.0

    def log_message(self, *_: object) -> None:
        """Log no request."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def verify_request(self, *_: object) -> bool:
        """Return whether a request is answered: one thread each, while this process has fewer than MOST_THREADS."""
        return threading.active_count() < MOST_THREADS

    def handle_error(self, *_: object) -> None:
        """Log what failed in a request, such as a client that hung up, at debug level."""
        _log.debug("a request for metrics failed", exc_info=True)


@dataclass(frozen=True)
class MetricsAddress:
    """The host and port of an HTTP server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse [HOST:]PORT; a port alone is one of 127.0.0.1. Raises BadInput."""
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
            raise BadInput(f"--metrics cannot be {text!r}", remedy="give PORT, or HOST:PORT")
        return cls(host or "127.0.0.1", int(port))


@contextmanager
def metrics_served(address: MetricsAddress, facts: Facts) -> Iterator[None]:
    """Serve `facts` over HTTP while the context lasts.

    Raises BadInput where nobody can listen there, or the library prometheus-client is missing.
    """
    application = _application(facts)
    try:
        server = make_server(address.host, address.port, application, _Server, _Handler)
    except OSError as error:
        problem = f"cannot serve metrics on {address} ({error.strerror})"
        raise BadInput(problem, remedy="give a free PORT of this machine") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _application(facts: Facts) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Return the WSGI application: /metrics, /healthz (200, or 503 where `facts` are not `ok`), 404 elsewhere."""
    with extra("metrics", "--metrics"):
        from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
    registry = CollectorRegistry()
    registry.register(_Collector(facts))
    ProcessCollector(registry=registry)
    metrics: Any = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            shown: Iterable[bytes] = metrics(environ, start)
            return shown
        found, status = facts() if environ["PATH_INFO"] == "/healthz" else None, "404 Not Found"
        if found is not None:
            status = "200 OK" if found["ok"] else "503 Service Unavailable"
        start(status, [("Content-Type", "application/json")])
        return [json.dumps(found).encode() + b"\n"]

    return answer


class _Collector:
    """Makes a party's gauges from its facts, afresh for each request."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        facts = self._facts()
        named = {name: facts[name] for name in ("party", "role", "plan")}
        yield InfoMetricFamily("secagg_party", "This party, and its plan.", named)
        for name, text in _GAUGES.items():
            if facts[name] is not None:
                yield GaugeMetricFamily(f"secagg_{name}", text, facts[name])
        step = GaugeMetricFamily("secagg_step", "1 for the present step of the protocol.", labels=["step"])
        days = GaugeMetricFamily("secagg_certificate_days", "Days until a certificate ends.", labels=["file"])
        when = "When the last run ended, in seconds since 1970, and how."
        last = GaugeMetricFamily("secagg_last_end_seconds", when, labels=["end"])
        if facts["step"] is not None:
            step.add_metric([facts["step"]], 1)
        for file, left in facts["certificate_days"].items():
            days.add_metric([file], left)
        if facts["last_end"] is not None:
            last.add_metric([facts["last_end"]["end"]], facts["last_end"]["seconds"])
        yield from (step, days, last)
