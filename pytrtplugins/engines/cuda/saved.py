"""What an engine file keeps beside the model: the lowered model, the chosen kernels, the weights packed for them.

The bytes are a safetensors file. The tensors of weights are named ``CONVOLUTION: FORM``; ``model``, ``graph`` and
``tactics`` hold bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...utils.optional import require
from ...utils.text_formats import shorten
from .conv.cache import Choice, decode, encode

__all__ = ["SavedPlan"]

_DTYPES = tuple(map(np.dtype, ("uint8", "int8", "float16", "float32")))
_MODEL, _GRAPH, _TACTICS = "model", "graph", "tactics"


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
        texts = {_MODEL: self.model, _GRAPH: self.graph, _TACTICS: encode(self.choices, device).encode()}
        arrays |= {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        data: bytes = _safetensors("safetensors.numpy").save(contiguous)
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> SavedPlan:
        """The plan of `to_bytes`.

        Raises:
            FormatError: it is none, or a byte is missing or too many.
        """
        numpy, damaged = _safetensors("safetensors.numpy"), _safetensors("safetensors").SafetensorError
        try:
            arrays: dict[str, npt.NDArray[Any]] = numpy.load(data)  # sizes are checked before memory is taken
            model, graph, tactics = (arrays.pop(name).tobytes() for name in (_MODEL, _GRAPH, _TACTICS))
        except (damaged, KeyError, ValueError) as error:
            raise FormatError(f"engine.plan is damaged ({shorten(error, 200)})") from error
        packed: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            if array.ndim != 1 or array.dtype not in _DTYPES:
                raise FormatError(f"engine.plan: tensor {shorten(name)} is {array.dtype}{shorten(array.shape)}")
            conv, _, form = name.rpartition(": ")
            packed.setdefault(conv, {})[form] = array
        return cls(model, graph, decode(tactics), packed)


def _safetensors(module: str) -> Any:
    return require(module, extra="cuda", feature="a file of engine 'cuda'")
