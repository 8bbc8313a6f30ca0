"""Encode and decode inference requests of the Open Inference Protocol: JSON, and tensors as bytes after it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import RequestError
from ...utils.text_formats import shorten
from ..model.model import Arrays
from ..model.registered import Source
from ..model.signature import Signature
from ..model.tensors import TOO_DEEP, TensorSpec, datatype_of, to_bytes, unable_to_parse
from .call import InferenceRequest, RequestInput, cache_head, read_object, read_outputs, read_parameters
from .classes import classify
from .memory import Memory, read_place

__all__ = ["DIGEST", "Codec"]

WriteHead = Callable[[InferenceRequest, Arrays, "Source | None"], bytes]
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
        name: As given.
        messages: What heads of requests over gRPC say.
    """

    def __init__(self, signature: Signature, name: str, version: str, memory: Memory) -> None:
        self.signature, self.memory = signature, memory
        self.name, self._version = name, version
        self._inputs = {spec.name: spec for spec in signature.inputs}
        self._outputs = {spec.name: spec for spec in signature.outputs}
        first, *more = signature.inputs or (None,)
        plain = first is not None and not (more or signature.file or first.free or first.datatype == "BYTES")
        self._alone = first if plain else None  # the input of a body without JSON
        self._calls: dict[bytes, InferenceRequest] = {}
        self.messages: dict[bytes, InferenceRequest] = {}
        self._raw_call = InferenceRequest(
            (), "", read_outputs(None, {"binary_data_output": True}, self._outputs, name)[0]
        )

    def read(self, body: bytes, head_length: str | None) -> tuple[InferenceRequest, Arrays]:
        """Parse a request.

        Args:
            body: JSON, and behind it the bytes of tensors.
            head_length: Bytes of the JSON, as the header Inference-Header-Content-Length says; None: all.

        Returns:
            What it says, and the inputs by name, of the dims and types of the signature.

        Raises:
            RequestError: it is no such request, or does not fit the model.
        """
        if head_length is None:
            return self._with_arrays(self._parse_request(body), body, len(body))
        offset = int(head_length) if len(head_length) <= 12 and head_length.isascii() and head_length.isdigit() else -1
        if not 0 <= offset <= len(body):
            raise RequestError(
                f"inference header size should be in range (0, {len(body)}), got: {head_length[:20]}: Inference-Header-Content-Length must "
                "be the number of bytes of the JSON, which the body begins with"
            )
        if offset == 0:
            return self._raw_call, self._raw(body)
        head = body[:offset]
        call = self._calls.get(head)
        if call is None:
            call = self._parse_request(head)
            if not call.id and all(request_input.size is not None for request_input in call.inputs):
                cache_head(self._calls, head, call)
        return self._with_arrays(call, body, offset)

    def input_spec(self, name: object, datatype: object, specs: dict[str, TensorSpec]) -> TensorSpec:
        """The spec of an input by name, whose datatype must match; it is added to ``specs``, those of the inputs before it.

        Raises:
            RequestError: the model has no such input, or it was there already.
        """
        file = self.signature.file
        if file is not None and datatype == file.datatype and name == file.name:
            spec: TensorSpec | None = file
        else:
            spec = self._inputs.get(name) if isinstance(name, str) else None
        if spec is None:
            names = ", ".join(self._inputs) or "no inputs"
            raise RequestError(f"unexpected inference input {shorten(name)} for model {self.name!r}, which has {names}")
        if spec.name in specs:
            raise RequestError(f"input {spec.name!r} already exists in request")
        specs[spec.name] = spec
        return spec

    def check_complete(self, specs: Mapping[str, TensorSpec]) -> None:
        """Require all inputs of the model, or files alone."""
        file = self.signature.file
        if file is not None and specs.get(file.name) == file:
            if len(specs) > 1:
                raise RequestError(
                    f"input {file.name!r} has files, which stand for all inputs of model {self.name!r}: leave out the others"
                )
            return
        missing = [name for name in self._inputs if name not in specs]
        if missing:
            raise RequestError(
                f"expected {len(self._inputs)} inputs but got {len(specs)} inputs for model {self.name!r}. "
                f"Got input(s) {_names(specs)}, but missing required input(s) {_names(missing)}. "
                "Please provide all required input(s)."
            )

    def call(
        self, inputs: tuple[RequestInput, ...], identifier: str, outputs: object, parameters: dict[str, Any]
    ) -> InferenceRequest:
        """Build a request from its parts.

        Raises:
            RequestError: an output or a parameter is wrong.
        """
        priority, timeout_s = read_parameters(parameters)
        output_parameters, places = read_outputs(outputs, parameters, self._outputs, self.name)
        for place in places.values():
            self.memory.check(place)
        return InferenceRequest(inputs, identifier, output_parameters, places, priority, timeout_s)

    def write(self, call: InferenceRequest, outputs: Arrays, source: Source | None = None) -> tuple[bytes, int | None]:
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

    def head(
        self, call: InferenceRequest, arrays: Arrays, source: Source | None, write: WriteHead | None = None
    ) -> bytes:
        """The head of an answer before its tensors; usually cached.

        Args:
            call: Of the request.
            arrays: The outputs that it wants, as `chosen` gives them.
            source: The version of a registry that computed them; None: it is of none.
            write: Makes it, where it is not the usual JSON.
        """
        key: tuple[Any, ...] = tuple([(array.shape, array.dtype) for array in arrays.values()])
        if source is not None:
            key = (source.version, source.digest, *key)
        cached_head = call.heads.get(key)
        if cached_head is None:
            cached_head = (write or self._write_head)(call, arrays, source)
            if len(call.heads) >= _KEPT:
                call.heads.clear()
            call.heads[key] = cached_head
        return cached_head

    def about(self, source: Source | None) -> dict[str, str]:
        """Name and version of the model in an answer."""
        return {"model_name": self.name, "model_version": self._version if source is None else source.version}

    def chosen(self, call: InferenceRequest, outputs: Arrays) -> Arrays:
        """The requested outputs in order, classified if requested; those for shared memory are written there.

        Raises:
            RequestError: the model gave no such output (500), or it cannot be classified or put into shared memory (400).
        """
        arrays: Arrays = {}
        for name, parameters in call.outputs.items():
            array = outputs.get(name)
            if array is None:
                raise RequestError(f"the model gave no output {name!r}", status=500)
            count = parameters.get("classification")
            arrays[name] = classify(name, array, count, self.signature) if count else array
            if name in call.places:
                self.memory.write(call.places[name], to_bytes(array), name)
        return arrays

    def _write_head(self, call: InferenceRequest, arrays: Arrays, source: Source | None) -> bytes:
        entries: list[dict[str, Any]] = []
        for name, array in arrays.items():
            entry: dict[str, Any] = {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)}
            if call.outputs[name].get("binary_data"):
                size = len(to_bytes(array)) if array.dtype.kind == "O" else array.nbytes
                entry["parameters"] = {"binary_data_size": size}
            elif name not in call.places:
                entry["data"] = _elements(name, array)
            entries.append(entry)
        about: dict[str, Any] = {"id": call.id} if call.id else {}
        about |= self.about(source)
        if source is not None:
            about["parameters"] = {DIGEST: source.digest}
        answer = {**about, "outputs": entries}
        return _ENCODE(answer).encode()

    def _with_arrays(self, call: InferenceRequest, body: bytes, offset: int) -> tuple[InferenceRequest, Arrays]:
        arrays: Arrays = {}
        view = memoryview(body)
        for item in call.inputs:
            if item.place is not None:
                arrays[item.spec.name] = item.spec.from_bytes(self.memory.read(item.place), item.shape, self.name)
            elif item.size is None:
                arrays[item.spec.name] = item.spec.from_list(item.data, item.shape)
            else:
                missing = offset + item.size - len(body)
                if missing > 0:
                    raise RequestError(
                        f"unexpected size for input {item.spec.name!r}, expecting {missing} additional bytes for model {self.name!r}"
                    )
                arrays[item.spec.name] = item.spec.from_bytes(view[offset : offset + item.size], item.shape, self.name)
                offset += item.size
        if offset != len(body):
            raise RequestError(
                f"unexpected additional input data for model {self.name!r}: {len(body) - offset:,} bytes belong to no input"
            )
        return call, arrays

    def _raw(self, body: bytes) -> Arrays:
        """A body without JSON, for a model with one input: one tensor, whose batch follows from its length; or one string or file."""
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
            raise RequestError(
                f"Raw request must only have 1 input (found 1) to be deduced but got {len(self._inputs)} inputs in {self.name!r} "
                "model configuration"
            )
        spec = self.signature.inputs[0]
        dims = list(spec.dims)
        if self.signature.joined and (spec.free or spec.datatype == "BYTES"):
            dims[0] = 1  # the batch
        if spec.datatype == "BYTES":
            if not all(dim in (1, -1) for dim in dims[:1]) or any(dim != 1 for dim in dims[1:]):
                raise RequestError(
                    f"For BYTE datatype raw input {spec.name!r}, the model must have input shape [1]: the body is one string, and model "
                    f"{self.name!r} expects {list(spec.dims)}"
                )
            return {spec.name: np.array([bytes(body)], object).reshape([1] * len(dims))}
        if dims.count(-1) > 1:
            raise RequestError(
                f"The shape of the raw input {spec.name!r} can not be deduced because there are more than one variable-sized dimension: "
                f"model {self.name!r} expects {list(spec.dims)}"
            )
        if -1 in dims:
            row_bytes = spec.dtype.itemsize * math.prod(dim for dim in dims if dim != -1)
            size = len(body) // max(1, row_bytes)
            dims[dims.index(-1)] = max(1, size) if self.signature.joined and dims[0] == -1 else size
        return {spec.name: spec.from_bytes(memoryview(body), tuple(dims), self.name)}

    def _parse_request(self, text: bytes) -> InferenceRequest:
        try:
            request = json.loads(text)
        except RecursionError:
            raise RequestError(TOO_DEEP) from None
        except ValueError as error:
            raise RequestError(f"failed to parse the request JSON buffer: {str(error)[:200]}") from None
        entries = read_object("the request", request).get("inputs")
        if not isinstance(entries, list):
            raise unable_to_parse("inputs", "non-array as array", entries, "the inputs must be a list")
        inputs: list[RequestInput] = []
        specs: dict[str, TensorSpec] = {}
        for entry in entries:
            entry = entry if isinstance(entry, dict) else {}
            name: Any = entry.get("name")
            datatype: Any = entry.get("datatype")
            for member, value in (("name", name), ("datatype", datatype)):
                if not isinstance(value, str):
                    raise unable_to_parse(
                        member, "non-string as string", value, f"the {member} of an input must be text"
                    )
            spec = self.input_spec(name, datatype, specs)
            shape = spec.check(datatype, entry.get("shape"), self.name)
            parameters = read_object("parameters", entry.get("parameters") or {})
            size = parameters.get("binary_data_size")
            if size is not None and (type(size) is not int or size < 0):
                kind = "non-unsigned-integer as unsigned-integer"
                raise unable_to_parse(
                    "binary_data_size", kind, size, f"that of input {name!r} must be a number of bytes"
                )
            place = read_place(parameters, f"input {name!r}")
            _check_one_source(
                name, data="data" in entry, binary_data_size=size is not None, shared_memory_region=place is not None
            )
            inputs.append(RequestInput(spec, shape, entry.get("data"), size, place))
        self.check_complete(specs)
        identifier = request.get("id", "")
        if not isinstance(identifier, str) or not _is_unicode(identifier):
            raise unable_to_parse("id", "non-string as string", identifier, "the id must be text")
        parameters = read_object("parameters", request.get("parameters") or {})
        return self.call(tuple(inputs), identifier, request.get("outputs"), parameters)


def _elements(name: str, array: npt.NDArray[Any]) -> list[Any]:
    """Elements for JSON."""
    flat = array.ravel()
    if array.dtype.kind == "O":
        try:
            return [text.decode() for text in flat.tolist()]
        except UnicodeDecodeError:
            raise RequestError(f"output {name!r} is not text: ask for it with binary_data") from None
    elements: list[Any] = flat.astype(np.float32).tolist() if datatype_of(array) in ("FP16", "BF16") else flat.tolist()
    return elements


def _check_one_source(name: object, **sources: bool) -> None:
    """Require that an input's data has a single source."""
    if sum(sources.values()) != 1:
        fields = "set " + " ".join(repr(field) for field, there in sources.items() if there)
        raise RequestError(
            "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in "
            f"'parameters'. But {fields if any(sources.values()) else 'no field is set'}: input {name!r}"
        )


def _names(names: Iterable[str]) -> str:
    """Names as Triton lists them."""
    return f"[{','.join(map(repr, names))}]"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character, which JSON can say
        return False
    return True
