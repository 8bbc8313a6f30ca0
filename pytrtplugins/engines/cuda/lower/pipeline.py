"""A prepared model → the model that this engine plans: every optimization a named step that can be left out."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

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

__all__ = ["OPTIONAL_STEPS", "check_disable", "lower"]

_PASSES: tuple[tuple[str, type[Pass]], ...] = (
    ("dead-layers", Eliminate),
    ("constant-casts", FoldCasts),
    ("int8-moves", MoveCodes),
    ("convolutions", FuseConvolutions),
    ("int8", AbsorbInputScales),
    ("float-weights", FoldConstants),
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
_NEEDED = {"constant-casts", "convolutions", "int8", "float-weights"}

OPTIONAL_STEPS = (
    *dict.fromkeys(name for name, _ in _PASSES if name not in _NEEDED),
    "outputs",  # convolutions write the layout that the network's outputs have
    "concat",  # producers write into the concat's memory
    "reuse",  # tensors share memory by liveness
    "tactics",  # kernels chosen by timing
    "handwritten-kernels",
    "cudnn-kernels",  # without either: a plain kernel, slow to run, nothing to build
    "schedule",  # independent branches side by side
    "graph",  # one CUDA graph a run
)
"""What ``settings={"disable": [...]}`` may name."""


def check_disable(disable: str | Collection[str]) -> frozenset[str]:
    """The steps to leave out: names, or one.

    Raises:
        UsageError: there is no such step.
    """
    disable = (disable,) if isinstance(disable, str) else disable
    unknown = [name for name in disable if name not in OPTIONAL_STEPS]
    if unknown:
        raise UsageError(
            f"engine 'cuda': disable: step {unknown[0]!r} is unknown; there are {', '.join(OPTIONAL_STEPS)}",
            step=unknown[0],
        )
    return frozenset(disable)


def lower(model: onnx.ModelProto, disable: Collection[str] = ()) -> onnx.ModelProto:
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
