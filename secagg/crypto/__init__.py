"""The cryptographic pieces: key agreement, mask stream, secret sharing, sealing, signatures."""
