"""Inference requests and answers of the Open Inference Protocol, in JSON and with tensors as bytes behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import RequestError
from ...utils.text_formats import shorten
from ..model import Arrays
from ..signature import Signature
from ..tensors import TensorSpec, datatype_of, to_bytes, to_strings

__all__ = ["Call", "Codec", "read_priority", "read_timeout_s"]

_DEFAULT_PRIORITY = 10
_MAX_PRIORITY = 1 << 16
_SHARED = "shared_memory_region"
_KEPT_BYTES, _KEPT = 1024, 256  # heads that are kept, since clients send the same ones again and again
_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_BINARY = {"binary_data": True}


@dataclass(frozen=True)
class Call:
    """What the JSON of an inference request says, without the tensors.

    Attributes:
        inputs: Of each its dims, its numbers where they are in JSON, and its bytes behind it else.
        id: The client's; empty if it gives none.
        outputs: Names of outputs, with their parameters.
        priority: Lower numbers go first.
        timeout_s: After which it need not be computed.
        heads: JSON of answers, by the dims of the outputs.
    """

    inputs: tuple[tuple[TensorSpec, tuple[int, ...], object, int | None], ...]
    id: str
    outputs: Mapping[str, Mapping[str, Any]]
    priority: int = _DEFAULT_PRIORITY
    timeout_s: float | None = None
    heads: dict[object, bytes] = field(default_factory=dict)


class Codec:
    """Reads requests for a model, and writes its answers.

    Args:
        signature: Of the model.
        name: In answers.
        version: In answers.
    """

    def __init__(self, signature: Signature, name: str, version: str) -> None:
        self.signature = signature
        self._name, self._version = name, version
        self._inputs = {spec.name: spec for spec in signature.inputs}
        self._known = {spec.name for spec in signature.outputs}
        self._calls: dict[bytes, Call] = {}
        every = {spec.name: _BINARY for spec in signature.outputs}
        self._raw_call = Call((), "", every)

    def read(self, body: bytes, head_length: str | None) -> tuple[Call, Arrays]:
        """Read a request.

        Args:
            body: JSON, and behind it the bytes of tensors.
            head_length: Bytes of the JSON, as the header Inference-Header-Content-Length says; None: all.

        Returns:
            What it says, and the inputs by name, of the dims and types of the signature.

        Raises:
            RequestError: it is no such request, or does not fit the model.
        """
        if head_length is None:
            return self._with_arrays(self._parsed(body), body, len(body))
        if not head_length.isascii() or not head_length.isdigit() or int(head_length[:12]) > len(body):
            raise RequestError(f"Inference-Header-Content-Length: {head_length[:20]}: the body has {len(body)} bytes")
        at = int(head_length)
        if at == 0:
            return self._raw_call, self._raw(memoryview(body))
        head = body[:at]
        call = self._calls.get(head)
        if call is None:
            call = self._parsed(head)
            if at <= _KEPT_BYTES and not call.id and all(size is not None for *_, size in call.inputs):
                if len(self._calls) >= _KEPT:
                    self._calls.clear()
                self._calls[head] = call
        return self._with_arrays(call, body, at)

    def write(self, call: Call, outputs: Arrays) -> tuple[bytes, int | None]:
        """The body of an answer, and the bytes of its JSON where tensors follow it.

        Raises:
            RequestError: the model gave no such output (500), or no classification of it can be made (400).
        """
        arrays = self.chosen(call, outputs)
        tails = [
            to_bytes(array)
            for array, parameters in zip(arrays, call.outputs.values(), strict=True)
            if parameters.get("binary_data")
        ]
        if len(tails) < len(arrays) or any(array.dtype.kind == "O" for array in arrays):
            head = self._head(call, arrays)
        else:
            key = tuple([(array.shape, array.dtype) for array in arrays])
            kept = call.heads.get(key)
            if kept is None:
                if len(call.heads) >= _KEPT:
                    call.heads.clear()
                kept = call.heads[key] = self._head(call, arrays)
            head = kept
        return (b"".join([head, *tails]), len(head)) if tails else (head, None)

    def chosen(self, call: Call, outputs: Arrays) -> list[npt.NDArray[Any]]:
        """The outputs that a request wants, classified where it says so.

        Raises:
            RequestError: the model gave no such output (500).
        """
        arrays = []
        for name, parameters in call.outputs.items():
            found = outputs.get(name)
            if found is None:
                raise RequestError(f"the model gave no output {name!r}", status=500)
            count = parameters.get("classification")
            arrays.append(_classes(found, count, self.signature) if count else found)
        return arrays

    def _head(self, call: Call, arrays: list[npt.NDArray[Any]]) -> bytes:
        said: list[dict[str, Any]] = []
        for array, (name, parameters) in zip(arrays, call.outputs.items(), strict=True):
            entry: dict[str, Any] = {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)}
            if parameters.get("binary_data"):
                size = len(to_bytes(array)) if array.dtype.kind == "O" else array.nbytes
                entry["parameters"] = {"binary_data_size": size}
            elif array.dtype.kind == "O":
                entry["data"] = [text.decode() for text in array.ravel().tolist()]
            elif entry["datatype"] in ("FP16", "BF16"):
                entry["data"] = array.astype(np.float32).ravel().tolist()
            else:
                entry["data"] = array.ravel().tolist()
            said.append(entry)
        answer = {"model_name": self._name, "model_version": self._version, "outputs": said}
        if call.id:
            answer["id"] = call.id
        return _ENCODE(answer).encode()

    def _with_arrays(self, call: Call, body: bytes, at: int) -> tuple[Call, Arrays]:
        arrays: Arrays = {}
        view = memoryview(body)
        for spec, shape, data, size in call.inputs:
            if size is None:
                arrays[spec.name] = spec.from_list(data, shape)
            else:
                arrays[spec.name] = spec.from_bytes(view[at : at + size], shape)
                at += size
        if at != len(body):
            raise RequestError(f"the body has {len(body):,} bytes, expected {at:,} for its JSON and its inputs")
        return call, arrays

    def _raw(self, body: memoryview) -> Arrays:
        """A body that is the one tensor, without JSON: its free first dim, the batch, follows from its length."""
        if len(self._inputs) != 1:
            raise RequestError(f"a body without JSON is one input; the model has {len(self._inputs)}")
        spec = self.signature.inputs[0]
        if spec.free:
            raise RequestError(f"a body without JSON does not say the dims of input {spec.name!r}: {list(spec.dims)}")
        rows = len(body) // max(1, self.signature.row_bytes)
        dims = tuple(rows if dim == -1 else dim for dim in spec.dims)
        return {spec.name: spec.from_bytes(body, dims)}

    def _parsed(self, text: bytes) -> Call:
        try:
            said = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the request is not JSON: {str(error)[:200]}") from None
        given = _object("the request", said).get("inputs")
        if not isinstance(given, list):
            raise RequestError(f"inputs: expected a list, found {shorten(given)}")
        inputs: dict[str, tuple[TensorSpec, tuple[int, ...], object, int | None]] = {}
        for each in given:
            name = each.get("name") if isinstance(each, dict) else None
            spec = self._inputs.get(name) if isinstance(name, str) else None
            if spec is None or name in inputs:
                known = ", ".join(self._inputs) or "nothing"
                raise RequestError(f"inputs: expected each of {known} once, found {shorten(name)}")
            shape = spec.check(each.get("datatype"), each.get("shape"))
            parameters = _object("parameters", each.get("parameters") or {})
            if _SHARED in parameters:
                raise RequestError("this server shares no memory with clients: send the tensors")
            size = parameters.get("binary_data_size")
            if size is not None and (type(size) is not int or size < 0):
                raise RequestError(f"input {name!r}: binary_data_size: expected bytes, found {shorten(size)}")
            inputs[spec.name] = spec, shape, each.get("data"), size
        if len(inputs) != len(self._inputs):
            raise RequestError(f"inputs: missing: {', '.join(self._inputs.keys() - inputs.keys())}")
        parameters = _object("parameters", said.get("parameters") or {})
        identifier = said.get("id", "")
        if not isinstance(identifier, str):
            raise RequestError(f"id: expected text, found {shorten(identifier)}")
        outputs = self.outputs(said.get("outputs"), parameters)
        return Call(tuple(inputs.values()), identifier, outputs, read_priority(parameters), read_timeout_s(parameters))

    def outputs(self, given: object, parameters: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Outputs by name with their parameters, as a request lists them; all, where it lists none.

        Raises:
            RequestError: the model has no such output, or a parameter is wrong.
        """
        every: Mapping[str, Any] = _BINARY if parameters.get("binary_data_output") else {}
        if not given:
            return {spec.name: every for spec in self.signature.outputs}
        if not isinstance(given, list):
            raise RequestError(f"outputs: expected a list, found {shorten(given)}")
        found: dict[str, Mapping[str, Any]] = {}
        for each in given:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or name not in self._known:
                raise RequestError(
                    f"outputs: expected names of {', '.join(sorted(self._known))}, found {shorten(name)}"
                )
            own = _object("parameters", each.get("parameters") or {})
            if _SHARED in own:
                raise RequestError("this server shares no memory with clients: leave out the parameter")
            count = own.get("classification", 0)
            if type(count) is not int or count < 0:
                raise RequestError(f"output {name!r}: classification: expected a number, found {shorten(count)}")
            found[name] = {**every, **own}
        return found


def _classes(array: npt.NDArray[Any], count: int, signature: Signature) -> npt.NDArray[Any]:
    """The largest values of each row as ``value:index:name``; names are those of the model's facts."""
    rows = array.reshape(len(array), -1) if signature.joined and array.ndim else array.reshape(1, -1)
    names = signature.facts.get("names", ())
    count = min(count, rows.shape[1])
    texts = []
    for row in rows:
        for k in np.argsort(-row.astype(np.float64), kind="stable")[:count].tolist():
            value = f"{row[k]:f}" if row.dtype.kind == "f" else str(row[k])
            label = f":{names[k]}" if len(names) == rows.shape[1] else ""
            texts.append(f"{value}:{k}{label}")
    return to_strings(texts, (len(rows), count) if signature.joined else (count,))


def read_priority(parameters: Mapping[str, Any]) -> int:
    """The priority that parameters say; lower numbers go first.

    Raises:
        RequestError: it is none.
    """
    given = parameters.get("priority", 0)
    if type(given) is not int or not 0 <= given <= _MAX_PRIORITY:
        raise RequestError(f"priority: expected 1, the most urgent, to {_MAX_PRIORITY}; found {shorten(given)}")
    return given or _DEFAULT_PRIORITY


def read_timeout_s(parameters: Mapping[str, Any]) -> float | None:
    """Seconds after which a request need not be computed, as parameters say; None: it is always computed.

    Raises:
        RequestError: they say no time.
    """
    given = parameters.get("timeout")
    if given is None:
        return None
    if type(given) is not int or not 0 <= given < 1 << 53:
        raise RequestError(f"timeout: expected microseconds, found {shorten(given)}")
    return given / 1e6 if given else None


def _object(what: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{what}: expected an object, found {shorten(value)}")
    return value
