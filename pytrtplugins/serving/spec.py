"""What is to be served, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits", "ModelSpec"]


@dataclass(frozen=True)
class ModelSpec:
    """A model to be served.

    Attributes:
        name: In addresses.
        target: A file of an engine, an ONNX model, or ``module:Class``.
        engine: Which engine an ONNX model is built for.
        device: The engine's own name for a device.
        max_batch: Most rows of a run; None: as the model says.
        max_delay_ms: How long a batch that is not full may wait while the engine computes another. While it is idle, nothing waits.
        queue: Most requests that wait; further ones are refused.
        version: In addresses.
    """

    name: str
    target: str
    engine: str = "auto"
    device: str | None = None
    max_batch: int | None = None
    max_delay_ms: float = 2.0
    queue: int = 256
    version: str = "1"


@dataclass(frozen=True)
class Limits:
    """What a client may use; each is looked at before memory is taken.

    Attributes:
        body_bytes: Of a request's body, also once it is decompressed.
        image_bytes: Memory that an image may take while it is decoded.
        head_bytes: Of a request's line and headers.
        head_seconds: Until the headers are there, from the first byte or the connection on.
        body_seconds: Until the body is there.
        connections: At a time, in each process.
        shared_memory_regions: That clients may register at a time; 0: the server shares no memory with clients.
    """

    body_bytes: int = 64 << 20
    image_bytes: int = 1 << 28
    head_bytes: int = 64 << 10
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    connections: int = 4096
    shared_memory_regions: int = 0
