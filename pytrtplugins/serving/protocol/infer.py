"""Inference requests and answers of the Open Inference Protocol, in JSON and with tensors as bytes behind it."""

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
from .call import InferenceRequest, RequestInput, keep, read_object, read_outputs, read_parameters
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
            raise RequestError(
                f"inference header size should be in range (0, {len(body)}), got: {head_length[:20]}: Inference-Header-Content-Length must "
                "be the number of bytes of the JSON, which the body begins with"
            )
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
        if spec is None:
            known = ", ".join(self._inputs) or "no inputs"
            raise RequestError(f"unexpected inference input {shorten(name)} for model {self.name!r}, which has {known}")
        if spec.name in found:
            raise RequestError(f"input {spec.name!r} already exists in request")
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
                raise RequestError(
                    f"input {file.name!r} has files, which stand for all inputs of model {self.name!r}: leave out the others"
                )
            return
        missing = [name for name in self._inputs if name not in found]
        if missing:
            raise RequestError(
                f"expected {len(self._inputs)} inputs but got {len(found)} inputs for model {self.name!r}. "
                f"Got input(s) {_names(found)}, but missing required input(s) {_names(missing)}. "
                "Please provide all required input(s)."
            )

    def call(
        self, inputs: tuple[RequestInput, ...], identifier: str, outputs: object, parameters: dict[str, Any]
    ) -> InferenceRequest:
        """A request of these parts.

        Raises:
            RequestError: an output or a parameter is wrong.
        """
        priority, timeout_s = read_parameters(parameters)
        wanted, places = read_outputs(outputs, parameters, self._outputs, self.name)
        for place in places.values():
            self.memory.check(place)
        return InferenceRequest(inputs, identifier, wanted, places, priority, timeout_s)

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
        return {"model_name": self.name, "model_version": self._version if source is None else source.version}

    def chosen(self, call: InferenceRequest, outputs: Arrays) -> Arrays:
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
                self.memory.write(call.places[name], to_bytes(found), name)
        return arrays

    def _write_head(self, call: InferenceRequest, arrays: Arrays, source: Source | None) -> bytes:
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

    def _with_arrays(self, call: InferenceRequest, body: bytes, at: int) -> tuple[InferenceRequest, Arrays]:
        arrays: Arrays = {}
        view = memoryview(body)
        for each in call.inputs:
            if each.place is not None:
                arrays[each.spec.name] = each.spec.from_bytes(self.memory.read(each.place), each.shape, self.name)
            elif each.size is None:
                arrays[each.spec.name] = each.spec.from_list(each.data, each.shape)
            else:
                missing = at + each.size - len(body)
                if missing > 0:
                    raise RequestError(
                        f"unexpected size for input {each.spec.name!r}, expecting {missing} additional bytes for model {self.name!r}"
                    )
                arrays[each.spec.name] = each.spec.from_bytes(view[at : at + each.size], each.shape, self.name)
                at += each.size
        if at != len(body):
            raise RequestError(
                f"unexpected additional input data for model {self.name!r}: {len(body) - at:,} bytes belong to no input"
            )
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

    def _parsed(self, text: bytes) -> InferenceRequest:
        try:
            said = json.loads(text)
        except RecursionError:
            raise RequestError(TOO_DEEP) from None
        except ValueError as error:
            raise RequestError(f"failed to parse the request JSON buffer: {str(error)[:200]}") from None
        given = read_object("the request", said).get("inputs")
        if not isinstance(given, list):
            raise unable_to_parse("inputs", "non-array as array", given, "the inputs must be a list")
        inputs: list[RequestInput] = []
        specs: dict[str, TensorSpec] = {}
        for each in given:
            each = each if isinstance(each, dict) else {}
            name: Any = each.get("name")
            datatype: Any = each.get("datatype")
            for member, value in (("name", name), ("datatype", datatype)):
                if not isinstance(value, str):
                    raise unable_to_parse(
                        member, "non-string as string", value, f"the {member} of an input must be text"
                    )
            spec = self.input_spec(name, datatype, specs)
            shape = spec.check(datatype, each.get("shape"), self.name)
            parameters = read_object("parameters", each.get("parameters") or {})
            size = parameters.get("binary_data_size")
            if size is not None and (type(size) is not int or size < 0):
                kind = "non-unsigned-integer as unsigned-integer"
                raise unable_to_parse(
                    "binary_data_size", kind, size, f"that of input {name!r} must be a number of bytes"
                )
            place = read_place(parameters, f"input {name!r}")
            _check_one_source(
                name, data="data" in each, binary_data_size=size is not None, shared_memory_region=place is not None
            )
            inputs.append(RequestInput(spec, shape, each.get("data"), size, place))
        self.check_whole(specs)
        identifier = said.get("id", "")
        if not isinstance(identifier, str) or not _is_unicode(identifier):
            raise unable_to_parse("id", "non-string as string", identifier, "the id must be text")
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


def _check_one_source(name: object, **sources: bool) -> None:
    """Require that an input has its data in one place.

    Raises:
        RequestError: it has them in none, or in several.
    """
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
