"""Probes of a cheating server: each deceives real clients and helpers over mutual TLS, which must refuse."""
