"""A prepared model → the model that this engine plans: every optimization a named step that can be left out."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, get_args

from ....cuda import launches_kernels
from ....errors import DimsError, UsageError
from ....model.decompose import infer_shapes, inline_plugins
from ....passes import Eliminate, Pass, to_ir, to_proto
from ....plugin.onnx_node import from_node, is_plugin_node
from ....utils.optional import require
from .activations import FuseSwishMish
from .epilogue import FuseActivations, FuseConvolutions, FuseResiduals
from .horizontal import FuseHorizontally
from .pool_reorg_stem import FusePools, FuseReorgs, FuseStem
from .qdq import AbsorbInputScales, AbsorbOutputScales, FoldCasts, FoldConstants, MoveCodes

if TYPE_CHECKING:
    import onnx

__all__ = ["OPTIONAL_STEPS", "OptionalStep", "check_disable", "lower"]

OptionalStep = Literal[
    "dead-layers",
    "int8-moves",
    "activations",
    "residuals",
    "int8-epilogues",
    "pools",
    "reorg",
    "horizontal-fusion",
    "stem",
    "outputs",  # convolutions write the layout that the network's outputs have
    "concat",  # producers write into the concat's memory
    "reuse",  # tensors share memory by liveness
    "schedule",  # independent branches side by side
    "handwritten-kernels",
    "cudnn-kernels",  # without either: a plain kernel, slow to run, nothing to build
    "tactics",  # kernels chosen by timing
    "graph",  # one CUDA graph a run
]
"""What ``settings={"disable": [...]}`` may name: passes of `_PASSES`, properties of the plan, families of kernels, ways to run."""
OPTIONAL_STEPS: tuple[OptionalStep, ...] = get_args(OptionalStep)

_PASSES: tuple[tuple[OptionalStep | None, type[Pass]], ...] = (
    ("dead-layers", Eliminate),
    (None, FoldCasts),
    ("int8-moves", MoveCodes),
    (None, FuseConvolutions),
    (None, AbsorbInputScales),
    (None, FoldConstants),
    ("activations", FuseSwishMish),
    ("activations", FuseActivations),
    ("residuals", FuseResiduals),
    ("activations", FuseActivations),  # behind residuals
    ("int8-epilogues", AbsorbOutputScales),
    ("pools", FusePools),
    ("reorg", FuseReorgs),
    ("horizontal-fusion", FuseHorizontally),
    ("stem", FuseStem),
)
"""In their order, each with the step that it belongs to; None: it cannot be left out."""


def check_disable(disable: str | Collection[str]) -> frozenset[OptionalStep]:
    """The steps to leave out: names, or one.

    Raises:
        UsageError: there is no such step.
    """
    names = (disable,) if isinstance(disable, str) else disable
    if unknown := [name for name in names if name not in OPTIONAL_STEPS]:
        raise UsageError(
            f"engine 'cuda': disable: step {unknown[0]!r} is unknown; there are {', '.join(OPTIONAL_STEPS)}",
            step=unknown[0],
        )
    return frozenset(step for step in OPTIONAL_STEPS if step in names)


def lower(model: onnx.ModelProto, disable: Collection[OptionalStep] = ()) -> onnx.ModelProto:
    """Write out plugins that have no kernels of their own, then fuse.

    Args:
        model: A prepared model; it is not changed.
        disable: Names of `OPTIONAL_STEPS` to leave out.

    Returns:
        A model whose fused nodes are in the domain ``pytrtplugins.cuda``; all tensors have types and dims.
    """
    written_out = _without_slow_plugins(model)
    ir_model = to_ir(written_out)
    for name, step in _PASSES:
        if name not in disable:
            step()(ir_model)
    require("onnx_ir.passes.common", extra="onnx").TopologicalSortPass()(ir_model)
    require("onnx_ir.passes.common", extra="onnx").RemoveUnusedNodesPass()(ir_model)
    return to_proto(ir_model)


def _without_slow_plugins(model: onnx.ModelProto) -> onnx.ModelProto:
    """Decompose plugins that would compute array by array where standard operators can be written instead."""
    slow = []
    for node in (node for node in model.graph.node if is_plugin_node(node)):
        plugin = from_node(node)
        if not launches_kernels(type(plugin)) and plugin.has_decomposition() and node.name:
            slow.append(node.name)
    try:
        return infer_shapes(inline_plugins(model, slow)) if slow else model
    except DimsError:  # a decomposition needs numbers where dims are free
        return model
