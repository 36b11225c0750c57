"""Offline verification of transcripts, and the plans and rosters that a verifier trusts."""

from secagg.verification.verification import note_plan

__all__ = ["note_plan"]
