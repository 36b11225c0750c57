"""Attacks on what one method alone releases."""
