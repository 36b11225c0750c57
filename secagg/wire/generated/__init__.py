"""Generated from protos/ by `make protos`; import as `secagg.wire.generated.<name>_pb2`."""
