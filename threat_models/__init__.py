"""Threat models that execute: what an adversary saw in a real transcript, and what it could have learnt from it."""
