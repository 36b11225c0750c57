"""What the protocol's own messages give away: sizes, masked uploads, sums of ciphertexts."""
