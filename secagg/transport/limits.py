"""Bounds on everything that crosses the network, and how long a call may take."""

from __future__ import annotations

CHUNK_BYTES = 1 << 14  # small: what waits in receive buffers grows with it, times the number of uploads
MAX_FRAME_BYTES = 64 << 20
MAX_MESSAGE_BYTES = 4 << 20  # the largest Dealing, of 4,096 holders, has 1.1 MiB
POLL_SECONDS = 15.0  # how long the server keeps a Fetch open before it says "not yet"
CALL_SECONDS = 60.0
CALLS_PER_MEMBER = 4
UPLOADS_AT_A_TIME = 4  # the others wait: each costs receive buffers of some MiB
UPLOAD_SECONDS = 3600.0
RETRY_SECONDS = 0.5

KEEPALIVE = [
    ("grpc.http2.lookahead_bytes", CHUNK_BYTES),
    ("grpc.http2.bdp_probe", 0),  # do not widen receive windows: memory would grow with the number of uploads
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
