"""Transport of bytes between members by gRPC over mutual TLS 1.3, which identifies the caller."""

import os

# Before gRPC is imported: anyone can cause lines of its own, and they name nobody.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from secagg.transport.client import Link, greet
from secagg.transport.credentials import Credentials, read_credentials
from secagg.transport.server import Coordinator, serve

__all__ = ["Coordinator", "Credentials", "Link", "greet", "read_credentials", "serve"]
