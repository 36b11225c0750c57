"""A look at the server before anything is sent: gRPC says only "unavailable", a person needs the reason."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, NotNow, why
from secagg.transport.certificates import read_certificate, spki_sha256
from secagg.transport.credentials import Credentials
from secagg.transport.limits import RETRY_SECONDS

_TIMEOUT = 5.0
_CLOSES = 5
"""So many connections in a row that close without a word are a refusal."""
_log = logging.getLogger("secagg.link")


def greet(credentials: Credentials, address: str, wait: float, peer: int = SERVER_INDEX) -> bytes:
    """Complete one TLS 1.3 handshake with the server, or another peer; return the certificate (PEM) that it showed.

    It waits up to `wait` seconds for the peer to be there.

    A connection that closes without a word is tried again for some seconds, whatever `wait` is: a refusal looks like
    that, and so does a server that is just being killed, and again.

    Raises NotNow when nobody is there; BadInput: not an address, no TLS 1.3, a certificate that is expired, of another
    authority, of another member than the one called or for another key than the roster pins, or this member's
    certificate refused.
    """
    name = credentials.roster.name(peer)
    called = "the server" if peer == SERVER_INDEX else name
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise BadInput(f"{address!r} is no server address", remedy="write HOST:PORT")
    deadline = time.monotonic() + wait
    closed, said = 0, False
    while True:
        try:
            certificate, is_accepted = _handshake(credentials, host.strip("[]"), int(port), name)
            if spki_sha256(read_certificate(certificate)) != credentials.roster.tls_spki_sha256(peer):
                raise BadInput(
                    f"the certificate of {called} at {address} is for another key than the roster has",
                    remedy="check the address; after a change of keys join by the newest kit",
                )
            if is_accepted:
                return ssl.DER_cert_to_PEM_cert(certificate).encode()
            closed += 1
            if closed == _CLOSES:
                raise BadInput(f"{called} refuses this member's certificate", remedy="have it issued anew")
        except ssl.SSLCertVerificationError as error:
            raise BadInput(
                f"the certificate of {called} at {address} is refused: {error.verify_message}",
                remedy="check the address, this machine's clock and pki expiry",
            ) from None
        except ssl.SSLError as error:
            closed += 1
            if closed == _CLOSES or not isinstance(error, ssl.SSLEOFError):
                reason = error.reason or "no reason given"
                raise BadInput(f"no TLS 1.3 session with {address} ({reason})", remedy=_remedy(reason)) from None
        except OSError as error:
            closed = 0
            if time.monotonic() >= deadline:
                raise NotNow(f"cannot reach {called} at {address} ({why(error)}): is it running?") from None
            if not said:
                _log.warning("cannot reach %s at %s yet; trying for up to %.0f s", called, address, wait)
                said = True
        time.sleep(RETRY_SECONDS)


def _handshake(credentials: Credentials, host: str, port: int, name: str) -> tuple[bytes, bool]:
    """The peer's certificate (DER), and whether it keeps the connection open once the handshake is complete."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=credentials.ca_pem.decode())
    context.load_cert_chain(credentials.folder / "cert.pem", credentials.folder / "key.pem")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port), _TIMEOUT) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True) or b""
        # A server that refuses the client's certificate closes after the handshake; one that takes it speaks first.
        with contextlib.suppress(TimeoutError):
            return certificate, bool(secured.recv(1))
        return certificate, True


def _remedy(reason: str) -> str:
    if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return "the server must speak TLS 1.3"
    if "CERTIFICATE" in reason or "CA" in reason:
        return "the server refuses this member's certificate: have it issued anew by the consortium's authority"
    return "check the address: a secagg server must listen there"
