"""The cryptographic primitives: key agreement, mask stream, secret sharing, authenticated encryption, signatures."""
