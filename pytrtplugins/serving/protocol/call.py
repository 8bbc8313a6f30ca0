"""The head of an inference request (JSON or gRPC), without the tensors' data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...errors import RequestError
from ...utils.text_formats import shorten
from ..model.spec import MAX_PRIORITY
from ..model.tensors import TensorSpec, unable_to_parse
from .memory import SharedMemoryRef, read_place

__all__ = ["InferenceRequest", "RequestInput", "cache_head", "read_object", "read_outputs", "read_parameters"]

_BINARY = {"binary_data": True}
_UNSIGNED = "non-unsigned-integer as unsigned-integer"
_KEPT_BYTES, _KEPT = 1024, 256


@dataclass(frozen=True)
class RequestInput:
    """An input of a request.

    Attributes:
        spec: Of the input.
        shape: Its dims.
        data: Its elements, where they are in JSON.
        size: Its bytes behind the JSON, where they are there.
        place: Where else it is.
    """

    spec: TensorSpec
    shape: tuple[int, ...]
    data: object = None
    size: int | None = None
    place: SharedMemoryRef | None = None


@dataclass(frozen=True)
class InferenceRequest:
    """The head of an inference request, without the tensors' data.

    Attributes:
        inputs: All of the model's.
        id: The client's; empty if it gives none.
        outputs: Names of outputs, with their parameters.
        places: Where outputs go that are not part of the answer.
        priority: Lower numbers go first; 0: as the model says.
        timeout_s: After which it need not be computed.
        heads: Those of answers, by the dims of the outputs.
    """

    inputs: tuple[RequestInput, ...]
    id: str
    outputs: Mapping[str, Mapping[str, Any]]
    places: Mapping[str, SharedMemoryRef] = field(default_factory=dict)
    priority: int = 0
    timeout_s: float | None = None
    heads: dict[object, bytes] = field(default_factory=dict)

    @cached_property
    def regions(self) -> frozenset[str]:
        """Names of the shared memory regions of its inputs and outputs."""
        places = [*(request_input.place for request_input in self.inputs), *self.places.values()]
        return frozenset(place.region for place in places if place is not None)


def cache_head(cache: dict[bytes, Any], head: bytes, value: object) -> None:
    """Cache what was parsed from the head of a request, since clients send equal heads repeatedly; long heads are not cached."""
    if len(head) <= _KEPT_BYTES:
        if len(cache) >= _KEPT:
            cache.clear()
        cache[head] = value


def read_outputs(
    listed: object, parameters: Mapping[str, Any], specs: Mapping[str, TensorSpec], model: str
) -> tuple[dict[str, Mapping[str, Any]], dict[str, SharedMemoryRef]]:
    """Parameters of the requested outputs by name, and their shared memory; all outputs if the request lists none.

    Raises:
        RequestError: the model has no such output, or a parameter is wrong.
    """
    every: Mapping[str, Any] = _BINARY if parameters.get("binary_data_output") else {}
    if not listed:
        return dict.fromkeys(specs, every), {}
    if not isinstance(listed, list):
        raise unable_to_parse("outputs", "non-array as array", listed, "the outputs must be a list")
    outputs: dict[str, Mapping[str, Any]] = {}
    places: dict[str, SharedMemoryRef] = {}
    for entry in listed:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise unable_to_parse("name", "non-string as string", name, "the name of an output must be text")
        if name not in specs:
            raise RequestError(
                f"unexpected inference output {shorten(name)} for model {model!r}, which has {', '.join(sorted(specs))}"
            )
        if name in outputs:
            raise RequestError(f"output {name!r} already exists in request")
        own = read_object("parameters", entry.get("parameters") or {})
        count = own.get("classification", 0)
        if type(count) is not int or count < 0:
            raise RequestError(
                "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer: that of output "
                f"{name!r} must be a number of classes; the request has {shorten(count)}"
            )
        place = read_place(own, f"output {name!r}")
        if place is not None and count:
            raise RequestError(
                f"Output can't set both 'shared_memory_region' and 'classification': output {name!r} goes into shared memory"
            )
        if place is not None and own.get("binary_data"):
            raise RequestError(
                f"Output can't set both 'shared_memory_region' and 'binary_data': output {name!r} goes into shared memory"
            )
        if place is not None:
            places[name] = place
        outputs[name] = own if place is not None else {**every, **own}
    return outputs, places


def read_parameters(parameters: Mapping[str, Any]) -> tuple[int, float | None]:
    """Priority (0: none) and timeout in seconds from a request's parameters.

    Raises:
        RequestError: one of them is none, or the request is part of a sequence.
    """
    priority = parameters.get("priority", 0)
    if type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        raise unable_to_parse(
            "priority",
            _UNSIGNED,
            priority,
            f"the priority must be a whole number from 1, the most urgent, to {MAX_PRIORITY}",
        )
    timeout = parameters.get("timeout", 0)
    if type(timeout) is not int or not 0 <= timeout < 1 << 53:
        raise unable_to_parse("timeout", _UNSIGNED, timeout, "the timeout must be a whole number of microseconds")
    for name, value in parameters.items():
        if not isinstance(value, (str, int, float)):  # a truth value is an int
            raise RequestError(
                f"parameter {shorten(name)} has invalid type. It should be either 'int', 'bool', or 'string'. "
                f"The request has {shorten(value)}"
            )
        if name.startswith("triton_") and name != "triton_enable_empty_final_response":
            raise RequestError(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified: "
                f"the request has {shorten(name)}"
            )
    for name in ("sequence_id", "sequence_start", "sequence_end"):
        if parameters.get(name):
            raise RequestError(f"models of this server keep no state from one request to the next: leave out {name!r}")
    return priority, timeout / 1e6 or None


def read_object(what: str, value: object) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise RequestError(f"{what} must be a JSON object; the request has {shorten(value)}")
    return value
