"""Inference requests and answers of the Open Inference Protocol, in JSON and with tensors as bytes behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import RequestError
from ...utils.text_formats import shorten
from ..model.model import Arrays
from ..model.registered import Source
from ..model.signature import Signature
from ..model.tensors import TensorSpec, datatype_of, to_bytes
from .call import Call, Given, keep, read_object, read_outputs, read_parameters
from .classes import classify
from .memory import Memory, read_place

__all__ = ["DIGEST", "Codec"]

WriteHead = Callable[[Call, Arrays, "Source | None"], bytes]
"""Makes the head of an answer."""
DIGEST = "digest"
"""Parameter of an answer: SHA-256 of the engine file that computed it, where a registry has it."""

_KEPT = 256  # heads of answers to a request
_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Codec:
    """Reads requests for a model, and writes its answers.

    Args:
        signature: Of the model.
        name: In answers.
        version: In answers.
        memory: That clients share with the server.

    Attributes:
        messages: What heads of requests over gRPC say.
    """

    def __init__(self, signature: Signature, name: str, version: str, memory: Memory) -> None:
        self.signature, self.memory = signature, memory
        self._name, self._version = name, version
        self._inputs = {spec.name: spec for spec in signature.inputs}
        self._outputs = {spec.name: spec for spec in signature.outputs}
        first, *more = signature.inputs or (None,)
        plain = first is not None and not (more or signature.file or first.free or first.datatype == "BYTES")
        self._alone = first if plain else None  # the input of a body without JSON
        self._calls: dict[bytes, Call] = {}
        self.messages: dict[bytes, Call] = {}
        self._raw_call = Call((), "", read_outputs(None, {"binary_data_output": True}, self._outputs)[0])

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
        at = int(head_length) if len(head_length) <= 12 and head_length.isascii() and head_length.isdigit() else -1
        if not 0 <= at <= len(body):
            raise RequestError(f"Inference-Header-Content-Length: {head_length[:20]}: the body has {len(body)} bytes")
        if at == 0:
            return self._raw_call, self._raw(body)
        head = body[:at]
        call = self._calls.get(head)
        if call is None:
            call = self._parsed(head)
            if not call.id and all(each.size is not None for each in call.inputs):
                keep(self._calls, head, call)
        return self._with_arrays(call, body, at)

    def input_spec(self, name: object, datatype: object, found: dict[str, TensorSpec]) -> TensorSpec:
        """What an input of a request has to be.

        Args:
            name: As the request says it.
            datatype: As the request says it.
            found: Inputs of the request before it, by name; it is added.

        Raises:
            RequestError: the model has no such input, or it was there already.
        """
        file = self.signature.file
        if file is not None and datatype == file.datatype and name == file.name:
            spec: TensorSpec | None = file
        else:
            spec = self._inputs.get(name) if isinstance(name, str) else None
        if spec is None or spec.name in found:
            known = ", ".join(self._inputs) or "nothing"
            raise RequestError(f"inputs: expected each of {known} once, found {shorten(name)}")
        found[spec.name] = spec
        return spec

    def check_whole(self, found: Mapping[str, TensorSpec]) -> None:
        """Require all inputs of the model, or files alone.

        Raises:
            RequestError: one is missing.
        """
        file = self.signature.file
        if file is not None and found.get(file.name) == file:
            if len(found) > 1:
                raise RequestError(f"inputs: files in {file.name!r} stand for all inputs: leave out the others")
            return
        missing = [name for name in self._inputs if name not in found]
        if missing:
            raise RequestError(f"inputs: missing: {', '.join(missing)}")

    def call(self, inputs: tuple[Given, ...], identifier: str, outputs: object, parameters: dict[str, Any]) -> Call:
        """A request of these parts.

        Raises:
            RequestError: an output or a parameter is wrong.
        """
        priority, timeout_s = read_parameters(parameters)
        wanted, places = read_outputs(outputs, parameters, self._outputs)
        for place in places.values():
            self.memory.check(place)
        return Call(inputs, identifier, wanted, places, priority, timeout_s)

    def write(self, call: Call, outputs: Arrays, source: Source | None = None) -> tuple[bytes, int | None]:
        """The body of an answer, and the bytes of its JSON where tensors follow it.

        Raises:
            RequestError: the model gave no such output (500), or it cannot be classified, said in JSON, or put into shared memory (400).
        """
        arrays = self.chosen(call, outputs)
        tails, alike = [], True
        for name, array in arrays.items():
            alike = alike and array.dtype.kind != "O"
            if name in call.places:
                continue
            if call.outputs[name].get("binary_data"):
                tails.append(to_bytes(array))
            else:
                alike = False
        head = (self.head if alike else self._write_head)(call, arrays, source)
        return (b"".join([head, *tails]), len(head)) if tails else (head, None)

    def head(self, call: Call, arrays: Arrays, source: Source | None, write: WriteHead | None = None) -> bytes:
        """What stands in an answer before these tensors; it mostly stood in one before.

        Args:
            call: Of the request.
            arrays: The outputs that it wants, as `chosen` gives them.
            source: The version of a registry that computed them; None: it is of none.
            write: Makes it, where it is not the usual JSON.
        """
        key: tuple[Any, ...] = tuple([(array.shape, array.dtype) for array in arrays.values()])
        if source is not None:
            key = (source.version, source.digest, *key)
        kept = call.heads.get(key)
        if kept is None:
            kept = (write or self._write_head)(call, arrays, source)
            if len(call.heads) >= _KEPT:
                call.heads.clear()
            call.heads[key] = kept
        return kept

    def about(self, source: Source | None) -> dict[str, str]:
        """Name and version of the model in an answer."""
        return {"model_name": self._name, "model_version": self._version if source is None else source.version}

    def chosen(self, call: Call, outputs: Arrays) -> Arrays:
        """The outputs that a request wants, in its order, classified where it says so; those that go into shared memory are there then.

        Raises:
            RequestError: the model gave no such output (500), or it cannot be classified or put into shared memory (400).
        """
        arrays: Arrays = {}
        for name, parameters in call.outputs.items():
            found = outputs.get(name)
            if found is None:
                raise RequestError(f"the model gave no output {name!r}", status=500)
            count = parameters.get("classification")
            arrays[name] = classify(name, found, count, self.signature) if count else found
            if name in call.places:
                self.memory.write(call.places[name], to_bytes(found))
        return arrays

    def _write_head(self, call: Call, arrays: Arrays, source: Source | None) -> bytes:
        said: list[dict[str, Any]] = []
        for name, array in arrays.items():
            entry: dict[str, Any] = {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)}
            if call.outputs[name].get("binary_data"):
                size = len(to_bytes(array)) if array.dtype.kind == "O" else array.nbytes
                entry["parameters"] = {"binary_data_size": size}
            elif name not in call.places:
                entry["data"] = _elements(name, array)
            said.append(entry)
        about: dict[str, Any] = {"id": call.id} if call.id else {}
        about |= self.about(source)
        if source is not None:
            about["parameters"] = {DIGEST: source.digest}
        answer = {**about, "outputs": said}
        return _ENCODE(answer).encode()

    def _with_arrays(self, call: Call, body: bytes, at: int) -> tuple[Call, Arrays]:
        arrays: Arrays = {}
        view = memoryview(body)
        for each in call.inputs:
            if each.place is not None:
                arrays[each.spec.name] = each.spec.from_bytes(self.memory.read(each.place), each.shape)
            elif each.size is None:
                arrays[each.spec.name] = each.spec.from_list(each.data, each.shape)
            else:
                arrays[each.spec.name] = each.spec.from_bytes(view[at : at + each.size], each.shape)
                at += each.size
        if at != len(body):
            raise RequestError(f"the body has {len(body):,} bytes, expected {at:,} for its JSON and its inputs")
        return call, arrays

    def _raw(self, body: bytes) -> Arrays:
        """A body that is the one tensor, without JSON: its free first dim, the batch, follows from its length; or one string or file."""
        alone = self._alone
        if alone is not None:
            try:
                return {alone.name: np.frombuffer(body, alone.dtype).reshape(alone.dims)}
            except ValueError:
                pass  # what follows says what is wrong
        file = self.signature.file
        if file is not None:
            return {file.name: np.array([bytes(body)], object)}
        if len(self._inputs) != 1:
            raise RequestError(f"a body without JSON is one input; the model has {len(self._inputs)}")
        spec = self.signature.inputs[0]
        if spec.datatype == "BYTES":
            return {spec.name: np.array([bytes(body)], object).reshape([1] * len(spec.dims))}
        if spec.free:
            raise RequestError(f"a body without JSON does not say the dims of input {spec.name!r}: {list(spec.dims)}")
        rows = len(body) // max(1, self.signature.row_bytes)
        dims = tuple(rows if dim == -1 else dim for dim in spec.dims)
        return {spec.name: spec.from_bytes(memoryview(body), dims)}

    def _parsed(self, text: bytes) -> Call:
        try:
            said = json.loads(text)
        except RecursionError:
            raise RequestError("the request is nested too deeply") from None
        except ValueError as error:
            raise RequestError(f"the request is not JSON: {str(error)[:200]}") from None
        given = read_object("the request", said).get("inputs")
        if not isinstance(given, list):
            raise RequestError(f"inputs: expected a list, found {shorten(given)}")
        inputs: list[Given] = []
        specs: dict[str, TensorSpec] = {}
        for each in given:
            each = each if isinstance(each, dict) else {}
            name, datatype = each.get("name"), each.get("datatype")
            spec = self.input_spec(name, datatype, specs)
            shape = spec.check(datatype, each.get("shape"))
            parameters = read_object("parameters", each.get("parameters") or {})
            size = parameters.get("binary_data_size")
            if size is not None and (type(size) is not int or size < 0):
                raise RequestError(f"input {name!r}: binary_data_size: expected bytes, found {shorten(size)}")
            place = read_place(parameters, f"input {name!r}")
            if ("data" in each) + (size is not None) + (place is not None) > 1:
                raise RequestError(f"input {name!r}: expected one of data, binary_data_size and shared_memory_region")
            inputs.append(Given(spec, shape, each.get("data"), size, place))
        self.check_whole(specs)
        identifier = said.get("id", "")
        if not isinstance(identifier, str) or not _is_unicode(identifier):
            raise RequestError(f"id: expected text, found {shorten(identifier)}")
        parameters = read_object("parameters", said.get("parameters") or {})
        return self.call(tuple(inputs), identifier, said.get("outputs"), parameters)


def _elements(name: str, array: npt.NDArray[Any]) -> list[Any]:
    """Elements for JSON.

    Raises:
        RequestError: they are strings that are no text.
    """
    flat = array.ravel()
    if array.dtype.kind == "O":
        try:
            return [text.decode() for text in flat.tolist()]
        except UnicodeDecodeError:
            raise RequestError(f"output {name!r} is not text: ask for it with binary_data") from None
    found: list[Any] = flat.astype(np.float32).tolist() if datatype_of(array) in ("FP16", "BF16") else flat.tolist()
    return found


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character, which JSON can say
        return False
    return True
