"""The cryptographic primitives: key agreement, mask stream, secret sharing, encryption, envelopes, signatures."""
