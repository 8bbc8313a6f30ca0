"""Compare two engines or models tensor by tensor: the first that differs, and where."""

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
from ..plugin.policy import requested_forms_in
from ..utils.notebook import object_html
from .network import Sample
from .submodels import find_layers, floating_tensors, in_groups, with_outputs
from .tolerance import Tolerance

__all__ = ["Comparison", "TensorDifference", "compare"]

_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True)
class TensorDifference:
    """The difference of one tensor between two engines.

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
    """Differences of all tensors that two engines share, in the first engine's order.

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
            (difference.name, difference.layer, difference.op_type, f"{difference.error:.4g}")
            for difference in self.tensors
            if not difference.error <= 1
        ]
        title, _, _ = str(self).partition("\n")
        return object_html(title, ("tensor that differs", "layer", "operator", "error / tolerance"), rows)

    def __str__(self) -> str:
        """The first tensor that differs, and its worst elements."""
        first = self.first_difference
        if first is None:
            largest = max((tensor.error for tensor in self.tensors), default=0.0)
            return f"{len(self.tensors)} tensors agree; the largest error is {largest:.3g} of the tolerance"
        lines = [
            f"first difference: {first.name!r}, given by {first.layer!r} ({first.op_type}): {first.error:.4g} times the tolerance"
        ]
        lines += [f"  {list(index)}: {value:.7g} and {other:.7g}" for index, value, other in first.worst]
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
    """Run two engines on the same inputs and compare every float tensor whose name both have; the first engine is the reference.

    Both are built again with their tensors as outputs, a part at a time; an engine that computes otherwise then, having fused
    layers before, is compared as it is with them apart.

    Raises:
        UsageError: they share no tensor.
    """
    names = {engine: floating_tensors(engine.model) for engine in (first, second)}
    outputs = [{desc.name for desc in engine.outputs} for engine in (first, second)]
    layers = find_layers(first.model)
    shared = (names[first] & names[second]) | (outputs[0] & outputs[1])
    shared_layers = [layer for layer in layers if set(layer.outputs) & shared]
    if not shared_layers:
        raise UsageError("compare: the two share no tensor by name: they are different networks")
    all_differences: list[TensorDifference] = []
    for group in in_groups(shared_layers, limit_bytes):
        taps = {name: layer for layer in group for name in layer.outputs if name in shared}
        differences = _differences(first, second, list(taps), samples, tolerance, worst)
        all_differences += [
            TensorDifference(name, layer.name, layer.node.op_type, *differences[name]) for name, layer in taps.items()
        ]
    ordered = [name for layer in layers for name in layer.outputs]
    return Comparison(
        tuple(all_differences),
        tuple(name for name in ordered if name not in shared),
        tuple(sorted(names[second] - names[first] - shared)),
        (first.arithmetic, second.arithmetic),
    )


def _differences(
    first: Engine, second: Engine, names: list[str], samples: Sequence[Sample], tolerance: Tolerance, worst: int
) -> dict[str, tuple[float, tuple[Any, ...]]]:
    worst_errors: dict[str, tuple[float, tuple[Any, ...]]] = dict.fromkeys(names, (0.0, ()))
    with ExitStack() as stack:
        first_context, second_context = (
            stack.enter_context(_with_tensors_as_outputs(engine, names).create_context()) for engine in (first, second)
        )
        for sample in samples:
            expected, actual = first_context.run(dict(sample)), second_context.run(dict(sample))
            for name in names:
                if expected[name].shape != actual[name].shape:
                    raise UsageError(
                        f"compare: tensor {name!r} has dims {expected[name].shape} and {actual[name].shape}",
                        tensor=name,
                    )
                error = tolerance.error(actual[name], expected[name])
                if error > worst_errors[name][0]:
                    worst_errors[name] = (error, _worst(expected[name], actual[name], worst))
    return worst_errors


def _with_tensors_as_outputs(engine: Engine, names: list[str]) -> Engine:
    model = with_outputs(engine.model, names)
    return type(engine)(model, replace(engine.options, plugins=requested_forms_in(model, engine.options.plugins)))


def _worst(
    expected: npt.NDArray[Any], actual: npt.NDArray[Any], count: int
) -> tuple[tuple[tuple[int, ...], float, float], ...]:
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
    difference[np.isnan(difference)] = np.inf
    order = np.argsort(-difference, axis=None, kind="stable")[:count]
    indices = [tuple(map(int, np.unravel_index(place, a.shape))) for place in order if difference.flat[place] > 0]
    return tuple((index, float(a[index]), float(b[index])) for index in indices)
