"""Protocols of the server: the Open Inference Protocol over REST and gRPC, and plain HTTP."""
