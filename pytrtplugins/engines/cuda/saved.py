"""What an engine file keeps beside the model: the lowered model, the chosen kernels, the weights packed for them.

The bytes are a safetensors file: its tensors are named ``CONVOLUTION: FORM``, the models are the tensors ``model`` and ``graph``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...utils.text_formats import parse_json, shorten
from .conv.cache import Choice, decode, encode

__all__ = ["SavedPlan"]

_TYPES = {"U8": np.uint8, "I8": np.int8, "F16": np.float16, "F32": np.float32}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_MODEL, _GRAPH, _METADATA, _TACTICS = "model", "graph", "__metadata__", "tactics"
_ALIGNMENT = 8


@dataclass(frozen=True)
class SavedPlan:
    """The payload of an engine file.

    Attributes:
        model: The model without the values of its weights, serialized.
        graph: The lowered model without the weights of convolutions, serialized.
        choices: Kernels by problem.
        packed: Arrays by convolution and form, one-dimensional, as they lie on the GPU.
    """

    model: bytes
    graph: bytes
    choices: Mapping[str, Choice]
    packed: Mapping[str, Mapping[str, npt.NDArray[Any]]]

    def to_bytes(self, device: Mapping[str, str | int]) -> bytes:
        """The plan as a safetensors file; the same plan gives the same bytes.

        Args:
            device: What the kernels were chosen on.
        """
        arrays = {f"{name}: {form}": array for name, forms in self.packed.items() for form, array in forms.items()}
        arrays |= {_MODEL: np.frombuffer(self.model, np.uint8), _GRAPH: np.frombuffer(self.graph, np.uint8)}
        order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # so that all are aligned
        header: dict[str, Any] = {_METADATA: {_TACTICS: encode(self.choices, device)}}
        end = 0
        for name in order:
            array, begin = arrays[name], end
            end += array.nbytes
            header[name] = {"dtype": _NAMES[array.dtype], "shape": [array.size], "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        return b"".join([len(text).to_bytes(8, "little"), text, *(arrays[name].tobytes() for name in order)])

    @classmethod
    def from_bytes(cls, data: bytes) -> SavedPlan:
        """The plan of `to_bytes`; its arrays are views of ``data``.

        Raises:
            FormatError: it is none, or a byte is missing or too many.
        """
        length = int.from_bytes(data[:8], "little")
        if len(data) < 8 or length > len(data) - 8:
            raise FormatError(f"engine.plan ends within its header ({len(data)} bytes)")
        header = parse_json(data[8 : 8 + length], "engine.plan")
        try:
            choices = decode(header.pop(_METADATA)[_TACTICS])
            arrays, end = dict[str, npt.NDArray[Any]](), 0
            for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                kind, shape, begin = np.dtype(_TYPES[entry["dtype"]]), entry["shape"], end
                size = shape[0] if len(shape) == 1 and type(shape[0]) is int else -1
                end += size * kind.itemsize
                if size < 0 or list(entry["data_offsets"]) != [begin, end]:
                    raise FormatError(f"engine.plan: tensor {shorten(name)} has {shorten(entry)}")
                if 8 + length + end > len(data):
                    raise FormatError(f"engine.plan ends within the tensor {shorten(name)}")
                arrays[name] = np.frombuffer(data, kind, size, 8 + length + begin)
            model, graph = arrays.pop(_MODEL).tobytes(), arrays.pop(_GRAPH).tobytes()
        except (AttributeError, KeyError, TypeError) as error:
            raise FormatError(f"engine.plan: its header is damaged ({shorten(error)})") from error
        if 8 + length + end != len(data):
            raise FormatError(f"engine.plan has {len(data) - 8 - length - end} bytes behind its last tensor")
        packed: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            conv, _, form = name.rpartition(": ")
            packed.setdefault(conv, {})[form] = array
        return cls(model, graph, choices, packed)
