"""Models to serve, and limits on requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from ...errors import UsageError
from ...utils.declared import check_fields
from ...utils.numbers import SHARE, FloatRange, IntRange
from .registered import default_folder, is_registered

__all__ = ["MAX_PRIORITY", "MOST_PROCESSES", "MOST_ROWS", "Limits", "ModelSpec", "device_name", "is_name"]

MAX_PRIORITY = 1 << 16
"""Of the least urgent requests."""
MOST_ROWS = 4096
"""Of a batch."""

MOST_PROCESSES = 256
"""Of a role."""

_MOST_MS, _MOST_WAITING, _MOST_BYTES, _MOST_SECONDS = 10_000, 1_000_000, 1 << 36, 86_400
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TAKEN = {"stats"}  # has an address of its own
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


def device_name(text: str | int) -> str:
    """The engine's own name for a device; of a number N it is ``cuda:N``."""
    return f"cuda:{text}" if isinstance(text, int) or text.isdecimal() else text


def is_name(text: str) -> bool:
    """Whether a model's name can be part of a path."""
    return _NAME.fullmatch(text) is not None and text not in _TAKEN


@dataclass(frozen=True)
class ModelSpec:
    """A version of a model to serve.

    Attributes:
        name: In addresses.
        target: A file of an engine, an ONNX model, or ``module:Class``.
        engine: Which engine an ONNX model is built for.
        devices: The engine's own names for devices, on which it is loaded; a number N is ``cuda:N``. Empty: on those of the server.
        replicas: How many engine processes have it; None: all on its devices.
        max_batch: Most rows of a run; None: as the model says.
        sizes: Batches that are preferred: a batch is one of these, the last rows of it zeros where requests do not fill the smallest.
            Empty: as the model says.
        max_delay_ms: How long a batch that is not full may wait while the engine computes another. While it is idle, nothing waits.
        queue: Most requests that wait; further ones are refused.
        priority: Of requests that say none; lower numbers go first.
        run_seconds: Longest time of a run: an engine process that takes longer hangs, and is replaced.
        version: A whole number as text, in addresses.
        decode: Who decodes JPEG files for a detector: ``cpu``; ``gpu``, the GPU of engine ``cuda``; ``auto``, the GPU too, where it can
            and all threads that decode are busy.
        share: Of the requests that name no version, those that this one answers, a canary; the default version answers the rest.
        registry: Folder of the registry that a target such as ``registry:animals@production`` means; empty: as `default_folder` of
            `pytrtplugins.mlops.registry` says.
        shadow: Whether it gets a copy of each request that another version of the model takes, and its answers are thrown away.

    Raises:
        UsageError: a value has another type, or is outside of its limits.
    """

    name: str
    target: str
    engine: str = "auto"
    devices: tuple[str | int, ...] = ()
    replicas: Annotated[int | None, IntRange(1, MOST_PROCESSES)] = None
    max_batch: Annotated[int | None, IntRange(1, MOST_ROWS)] = None
    sizes: Annotated[tuple[int, ...], IntRange(1, MOST_ROWS)] = ()
    max_delay_ms: Annotated[float, FloatRange(0, _MOST_MS)] = 2.0
    queue: Annotated[int, IntRange(1, _MOST_WAITING)] = 256
    priority: Annotated[int, IntRange(1, MAX_PRIORITY)] = 10
    run_seconds: Annotated[float, FloatRange(0.01, _MOST_SECONDS)] = 120.0
    version: str = "1"
    decode: Literal["auto", "cpu", "gpu"] = "auto"
    share: Annotated[float, SHARE] = 0.0
    shadow: bool = False
    registry: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "sizes", tuple(self.sizes))  # a list, where it was read from a file
        object.__setattr__(self, "devices", tuple(map(device_name, self.devices)))
        if is_registered(self.target) and not self.registry:
            object.__setattr__(self, "registry", default_folder())
        if not is_name(self.name):
            raise UsageError(
                f"ModelSpec.name: expected letters, digits, '.', '_' and '-', 64 at most, found {self.name[:80]!r}"
            )
        if not _VERSION.fullmatch(self.version):
            raise UsageError(
                f"ModelSpec.version: expected a whole number from 1 on as text, found {self.version[:40]!r}"
            )
        if self.share and self.shadow:
            raise UsageError("ModelSpec.share: a shadow answers no requests: give share or shadow, not both")


@dataclass(frozen=True)
class Limits:
    """Limits on what a client may use; each is checked before memory is allocated.

    Attributes:
        body_bytes: Of a request's body, also once it is decompressed.
        bodies_bytes: Of all bodies that are on their way to a process, where they come in parts.
        image_bytes: Memory that an image may take while it is decoded.
        head_bytes: Of a request's line and headers.
        head_seconds: Until the headers are there, from the first byte or the connection on.
        body_seconds: That a client may let the server wait for its body, or until it takes an answer that it does not read.
        headers: Of a request; trailers count too.
        pipelined: Requests that a client may send ahead on one connection, while another is answered.
        connections: At a time, in each process. A further one takes the place of the one that has been silent longest since it was
            made; where all have asked something, it gets 503. Over gRPC as many, and a further one is closed.
        connections_per_address: The same, for an address of IPv4 or a network of 64 bits of IPv6. A proxy is one address.
        urls: What clients may name by a URL, and the server fetches: ``https``, each of that scheme with public addresses alone; origins
            such as ``http://camera.lan:8080``, which may have private ones. Empty: nothing.
        shared_memory_regions: That clients may register at a time; 0: the server shares no memory with clients.

    Raises:
        UsageError: a value has another type, or is outside of its limits.
    """

    body_bytes: Annotated[int, IntRange(1, _MOST_BYTES)] = 64 << 20
    bodies_bytes: Annotated[int, IntRange(1, _MOST_BYTES)] = 1 << 30
    image_bytes: Annotated[int, IntRange(1, _MOST_BYTES)] = 1 << 28
    head_bytes: Annotated[int, IntRange(1 << 8, 1 << 24)] = 64 << 10
    head_seconds: Annotated[float, FloatRange(0.01, _MOST_SECONDS)] = 10.0
    body_seconds: Annotated[float, FloatRange(0.01, _MOST_SECONDS)] = 60.0
    headers: Annotated[int, IntRange(1, 1 << 16)] = 128
    pipelined: Annotated[int, IntRange(0, 1 << 16)] = 64
    connections: Annotated[int, IntRange(1, 1 << 20)] = 4096
    connections_per_address: Annotated[int, IntRange(1, 1 << 20)] = 4096
    urls: tuple[str, ...] = ()
    shared_memory_regions: Annotated[int, IntRange(0, 1 << 16)] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "urls", tuple(self.urls))  # as for a model's sizes
        if self.urls:
            from ..urls import PUBLIC, check_origin  # the command line need not import what fetches

            for origin in self.urls:
                if origin != PUBLIC:
                    check_origin(origin)
