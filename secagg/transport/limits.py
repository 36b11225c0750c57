"""Limits on sizes and numbers of all that crosses the network, and on the duration of calls."""

from __future__ import annotations

CHUNK_BYTES = 1 << 16
MAX_MESSAGE_BYTES = 6 << 20  # of one message, many to a vector; the largest Dealing, of 4,096 holders, has 5.3 MiB
POLL_SECONDS = 15.0  # how long the server keeps a Fetch open before it says "not yet"
CALL_SECONDS = 60.0
SILENT_SECONDS = 10.0  # an upload, a question or a check that does not begin by then is ended
CALLS_PER_MEMBER = 4
SHORT_BYTES = 1 << 13
SENDS_AT_A_TIME = 32  # of messages longer than that: each is in memory three times while it is sent …
SEND_SECONDS = 5.0  # … but for those that take longer than this, CALLS_PER_MEMBER at the most
CHECKS_AT_A_TIME = 8  # of health
REFUSALS_AT_ONCE = 20  # what a member may be refused before its calls are no longer looked at …
REFUSAL_SECONDS = 4.0  # … but for one in so many seconds: a check of it may take the server a tenth of a second
UPLOAD_SECONDS = 86_400.0  # the server ends an upload much sooner: with its step
RETRY_SECONDS = 0.5
OWN_WORDS = ("secagg-words", "1")  # metadata of a status whose details an endpoint of ours has written
HANDSHAKE_SECONDS = 10.0  # a connection whose TLS handshake is not complete by then is closed

RECONNECT = [  # soon again: gRPC waits for up to two minutes by itself, longer than a server is away
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]
KEEPALIVE = [
    ("grpc.http2.lookahead_bytes", 1 << 14),  # small: what waits in receive buffers grows with it, times the uploads
    ("grpc.http2.bdp_probe", 0),  # do not widen receive windows: memory would grow with the number of uploads
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # the one above alone leaves a connection that swallows bytes for a minute
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
