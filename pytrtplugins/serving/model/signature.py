"""Inputs and outputs of a loaded model, for other processes and clients."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ...errors import UsageError
from ...tensor import AnyDims, SymbolicDim, TensorDesc
from .model import Arrays, Model
from .spec import MOST_ROWS
from .tensors import TensorSpec

__all__ = ["LARGEST_BATCH", "Signature", "have_batch"]

LARGEST_BATCH = 32
"""Rows of a batch where nobody says how many."""


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a loaded model.

    Attributes:
        inputs: By the protocol's names; the first dim of joined ones is the batch.
        outputs: The same.
        joined: Whether requests are joined along the first axis.
        max_batch: Most rows of a run; 1 where requests run alone.
        sizes: Batches that the engine has; empty: any.
        platform: What computes it.
        detects: As `Model.detects`.
        decodes: As `Model.decodes`.
        facts: As `Model.facts`.
        file_input: As `Model.file_input`.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    joined: bool
    max_batch: int
    sizes: tuple[int, ...] = ()
    platform: str = "python"
    detects: bool = False
    decodes: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    file_input: str | None = None

    @classmethod
    def of(cls, model: Model, max_batch: int | None, sizes: Sequence[int] = ()) -> Signature:
        """The signature of a loaded model.

        Args:
            model: The model.
            max_batch: As the user of the server says; the model's own if None.
            sizes: The same; the model's own if empty.

        Raises:
            UsageError: it says something that cannot be.
        """
        engine = getattr(model, "engine", None)
        descs = [
            tuple(model.inputs or getattr(engine, "inputs", ())),
            tuple(model.outputs or getattr(engine, "outputs", ())),
        ]
        unranked = next((desc.name for desc in descs[0] if isinstance(desc.dims, AnyDims)), None)
        if unranked is not None:
            raise UsageError(
                f"{type(model).__name__}: input {unranked!r} is of any rank: the model does not say how many axes it has, and the "
                "protocol must.\nDo: give the input dims in the model"
            )
        free = have_batch([*descs[0], *descs[1]])
        joined = model.stacked and free and model.independent_rows
        most = max_batch or model.max_batch or (LARGEST_BATCH if free or not descs[0] else 1)
        if not 1 <= most <= MOST_ROWS:
            raise UsageError(f"{type(model).__name__}: max_batch: expected 1 to {MOST_ROWS}, found {most}")
        try:
            inputs, outputs = (
                tuple(desc if isinstance(desc, TensorSpec) else TensorSpec.of(desc) for desc in side) for side in descs
            )
        except KeyError as error:
            raise UsageError(
                f"{type(model).__name__}: the Open Inference Protocol has no type {error.args[0]}: it cannot be served."
            ) from None
        try:
            facts = json.loads(json.dumps(model.facts, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{type(model).__name__}.facts: expected what JSON can say: {error}") from None
        if model.stacked and not joined and descs[0]:
            most = 1
        if any(spec.name == model.file_input and spec.datatype == "BYTES" for spec in inputs):
            raise UsageError(
                f"{type(model).__name__}: {model.file_input!r} is an input of strings, and cannot be of files too"
            )
        name = getattr(engine, "name", None)
        platform = f"pytrtplugins_{name}" if name else "python"
        return cls(
            inputs,
            outputs,
            joined,
            most,
            tuple(sorted(sizes or model.sizes)),
            platform,
            model.detects,
            model.decodes,
            facts,
            model.file_input,
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        """The inverse of `to_json`."""
        sides = {
            side: tuple(TensorSpec(entry["name"], entry["datatype"], tuple(entry["dims"])) for entry in data[side])
            for side in ("inputs", "outputs")
        }
        return cls(**{**data, **sides, "sizes": tuple(data["sizes"])})

    def to_json(self) -> dict[str, Any]:
        """The signature in JSON types."""
        return asdict(self)

    @cached_property
    def file(self) -> TensorSpec | None:
        """The string input that can replace all other inputs."""
        return None if self.file_input is None else TensorSpec(self.file_input, "BYTES", (-1,))

    @cached_property
    def row_bytes(self) -> int:
        """Bytes per row of inputs; free dims count as one."""
        return sum(_bytes(spec) for spec in self.inputs)

    @cached_property
    def _alike(self) -> bool:
        """Whether any two requests fit into one batch."""
        return not self.joined or (bool(self.inputs) and not any(spec.free for spec in self.inputs))

    def rows(self, arrays: Arrays) -> int:
        """The number of batch rows of a request's inputs.

        Raises:
            UsageError: the inputs have different numbers of them.
        """
        if not self.joined:
            return 1
        lengths = [len(array) if array.ndim else 0 for array in arrays.values()]
        if not lengths or not lengths[0] or lengths.count(lengths[0]) != len(lengths):
            if len(set(lengths)) > 1:
                name = next(name for name, rows in zip(arrays, lengths, strict=True) if rows != lengths[0])
                raise UsageError(f"input {name!r} batch size does not match other inputs: they have {lengths} rows")
            raise UsageError(f"the inputs {', '.join(arrays)} have no rows: a request has at least one")
        return lengths[0]

    def key(self, arrays: Arrays) -> object:
        """A key that is equal for requests that fit into one batch."""
        if self._alike:
            return None
        return tuple((name, array.shape[1:], array.dtype.str) for name, array in sorted(arrays.items()))


def have_batch(descs: Iterable[TensorDesc | TensorSpec]) -> bool:
    """Whether the first dim of all tensors is the same free dim, the batch; True if there are no tensors."""
    first_dims = {desc.dims[0] if desc.dims else None for desc in descs} - {
        -1
    }  # which the protocol says of any free one
    return not first_dims or (len(first_dims) == 1 and isinstance(first_dims.pop(), SymbolicDim))


def _bytes(spec: TensorSpec) -> int:
    total = int(spec.dtype.itemsize)
    for dim in spec.dims:
        total *= max(1, dim)
    return total
