"""Attacks on the protocol's own messages: sizes, masked uploads, sums of ciphertexts."""
