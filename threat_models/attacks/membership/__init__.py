"""Membership: was this record among those that were summed, or behind the head."""
