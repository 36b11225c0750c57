"""Offline proofs of a transcript, and the plans and rosters that a verifier trusts."""

from secagg.verification.trust_anchors import note_plan

__all__ = ["note_plan"]
