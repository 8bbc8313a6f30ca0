"""Compares two engines or models: the first tensor that differs, and where."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines.base.arithmetic import Arithmetic
from ..engines.base.engine import Engine
from ..errors import UsageError
from ..plugin.policy import forms_in
from ..utils.notebook import view
from .network import Sample
from .submodels import find_layers, floating_tensors, in_groups, with_outputs
from .tolerance import Tolerance

__all__ = ["Comparison", "TensorDifference", "compare"]

_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True)
class TensorDifference:
    """One tensor that both have.

    Attributes:
        name: The tensor's name.
        layer: The node that gives it.
        op_type: That node's operator.
        error: In units of the tolerance.
        worst: (index, value of the first, value of the second) of the elements that differ most.
    """

    name: str
    layer: str
    op_type: str
    error: float
    worst: tuple[tuple[tuple[int, ...], float, float], ...] = ()


@dataclass(frozen=True)
class Comparison:
    """All tensors that two engines share, in the order of the first.

    Attributes:
        tensors: The tensors that both have.
        only_in_first: Names of float tensors that the second does not have.
        only_in_second: Names of float tensors that the first does not have.
        computed: In which precision the layers of the two engines compute.
    """

    tensors: tuple[TensorDifference, ...]
    only_in_first: tuple[str, ...]
    only_in_second: tuple[str, ...]
    computed: tuple[Arithmetic, Arithmetic]

    @property
    def first_difference(self) -> TensorDifference | None:
        """The earliest tensor out of tolerance; None if there is none."""
        return next((tensor for tensor in self.tensors if not tensor.error <= 1), None)

    def _repr_html_(self) -> str:
        rows = [
            (each.name, each.layer, each.op_type, f"{each.error:.4g}") for each in self.tensors if not each.error <= 1
        ]
        title, _, _ = str(self).partition("\n")
        return view(title, ("tensor that differs", "layer", "operator", "error / tolerance"), rows)

    def __str__(self) -> str:
        """What differs first, and its worst elements."""
        first = self.first_difference
        if first is None:
            largest = max((tensor.error for tensor in self.tensors), default=0.0)
            return f"{len(self.tensors)} tensors agree; the largest error is {largest:.3g} of the tolerance"
        lines = [
            f"first difference: {first.name!r}, given by {first.layer!r} ({first.op_type}): {first.error:.4g} times the tolerance"
        ]
        lines += [f"  {list(index)}: {one:.7g} and {other:.7g}" for index, one, other in first.worst]
        return "\n".join(lines)


def compare(
    first: Engine,
    second: Engine,
    samples: Sequence[Sample],
    tolerance: Tolerance,
    *,
    worst: int = 5,
    limit_bytes: int = _LIMIT_BYTES,
) -> Comparison:
    """Run two engines on the same inputs and compare every float tensor that both have by name; what the first gives is expected.

    Both are built again with their tensors as outputs, a part at a time; an engine that computes otherwise then, having fused
    layers before, is compared as it is with them apart.

    Raises:
        UsageError: they share no tensor.
    """
    names = {engine: floating_tensors(engine.model) for engine in (first, second)}
    outputs = [{desc.name for desc in engine.outputs} for engine in (first, second)]
    layers = find_layers(first.model)
    shared = (names[first] & names[second]) | (outputs[0] & outputs[1])
    kept = [layer for layer in layers if set(layer.outputs) & shared]
    if not kept:
        raise UsageError("compare: the two share no tensor by name: they are different networks")
    found: list[TensorDifference] = []
    for group in in_groups(kept, limit_bytes):
        taps = {name: layer for layer in group for name in layer.outputs if name in shared}
        differences = _differences(first, second, list(taps), samples, tolerance, worst)
        found += [
            TensorDifference(name, layer.name, layer.node.op_type, *differences[name]) for name, layer in taps.items()
        ]
    ordered = [name for layer in layers for name in layer.outputs]
    return Comparison(
        tuple(found),
        tuple(name for name in ordered if name not in shared),
        tuple(sorted(names[second] - names[first] - shared)),
        (first.arithmetic, second.arithmetic),
    )


def _differences(
    first: Engine, second: Engine, names: list[str], samples: Sequence[Sample], tolerance: Tolerance, worst: int
) -> dict[str, tuple[float, tuple[Any, ...]]]:
    found: dict[str, tuple[float, tuple[Any, ...]]] = dict.fromkeys(names, (0.0, ()))
    with ExitStack() as stack:
        one, other = (stack.enter_context(_tapped(engine, names).create_context()) for engine in (first, second))
        for sample in samples:
            expected, given = one.run(dict(sample)), other.run(dict(sample))
            for name in names:
                if expected[name].shape != given[name].shape:
                    raise UsageError(
                        f"compare: tensor {name!r} has dims {expected[name].shape} and {given[name].shape}", tensor=name
                    )
                error = tolerance.error(given[name], expected[name])
                if error > found[name][0]:
                    found[name] = (error, _worst(expected[name], given[name], worst))
    return found


def _tapped(engine: Engine, names: list[str]) -> Engine:
    model = with_outputs(engine.model, names)
    return type(engine)(model, replace(engine.options, plugins=forms_in(model, engine.options.plugins)))


def _worst(
    expected: npt.NDArray[Any], found: npt.NDArray[Any], count: int
) -> tuple[tuple[tuple[int, ...], float, float], ...]:
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
    difference[np.isnan(difference)] = np.inf
    order = np.argsort(-difference, axis=None, kind="stable")[:count]
    indices = [tuple(map(int, np.unravel_index(place, a.shape))) for place in order if difference.flat[place] > 0]
    return tuple((index, float(a[index]), float(b[index])) for index in indices)
