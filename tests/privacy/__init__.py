"""Accounting, sensitivity, allocation and noise."""
