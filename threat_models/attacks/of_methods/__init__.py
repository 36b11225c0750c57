"""Attacks on the results of particular methods, such as heads, prototypes, adapters or latents."""
