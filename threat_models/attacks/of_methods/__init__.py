"""Attacks on results of single methods, such as heads, prototypes, adapters or latents."""
