"""A prepared model → the model that this engine plans: every optimization a named step that can be left out."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Literal, get_args

from ....errors import BuildError, UsageError
from ....model.ir import array_of, constant, dims_of, dtype_of, is_op, operand, remove_unused, set_attributes, to_ir
from ....model.proto import node_name
from ....passes import Eliminate, Pass, PropagateConstants
from ....passes.half import convert_to_half
from ....plugin.onnx_node import is_plugin_node
from ....plugin.policy import GPU_FORMS, NO_REQUESTS
from ....tensor import DType
from ....utils.heap import no_collection
from ....utils.optional import ir, onnx
from ...base.blocked import check_layouts
from ...base.plugin_codes import WriteCodes
from ...base.plugins import write_decompositions
from .activations import FuseGatedActivations
from .attention import FuseAttention
from .average_pools import AverageCodes
from .blocks import FuseBlocks
from .clip_bounds import WriteClipBounds
from .coordinates import coordinate_inputs, coordinate_nodes
from .data_dependent import data_dependent_values
from .einsum import WriteEinsums
from .element_types import check_element_types
from .epilogue import FuseActivations, FuseConvolutions, FuseResiduals
from .fits import check_static_dims
from .gelu import FuseGelu
from .hoist_activations import HoistActivations
from .horizontal import FuseHorizontally
from .matmul import FuseBiases, FuseMatMuls
from .nonzeros import WriteNonZeros
from .one_dimension import WriteAsImages
from .padded_results import PADDED
from .patches import GatherPatches, GatherWindows
from .pool_reorg_stem import FusePools, FuseReorgs, FuseStem
from .qdq import (
    AbsorbInputScales,
    AbsorbOutputScales,
    AbsorbResidualScales,
    FoldCasts,
    FoldCodes,
    FoldConstants,
    SinkDequantize,
)
from .recurrent import SplitRecurrent
from .rewrite import DOMAIN
from .squeeze_excite import FuseSqueezeExcite
from .suppressions import WriteSuppressions
from .transposed_convolution import ConvTransposeToConv
from .uniques import WriteUniques
from .volumes import WriteVolumes

__all__ = ["FREE_CASTS", "OPTIONAL_STEPS", "OptionalStep", "check_disable", "lower"]

OptionalStep = Literal[
    "dead-layers",
    "attention",
    "volumes",
    "phases",
    "int8-moves",
    "activations",
    "residuals",
    "int8-epilogues",
    "pools",
    "reorg",
    "blocks",
    "horizontal-fusion",
    "stem",
    "patches",
    "squeeze-excite",
    "pointwise",  # connected elementwise operators and reductions as one generated kernel, once sizes are known
    "outputs",  # convolutions write the layout that the network's outputs have
    "concat",  # producers write into the concat's memory
    "reuse",  # tensors share memory by liveness
    "schedule",  # independent branches side by side
    "handwritten-kernels",
    "cudnn-kernels",
    "cublaslt-kernels",  # without these three: a plain kernel, slow to run, nothing to build
    "tactics",  # kernels chosen by timing
    "network-timing",  # and then by the time of the whole network
    "graph",  # one CUDA graph a run
]
"""What ``settings={"disable": [...]}`` may name: passes of `_PASSES`, properties of the plan, families of kernels, ways to run."""
OPTIONAL_STEPS: tuple[OptionalStep, ...] = get_args(OptionalStep)

_PASSES: tuple[tuple[OptionalStep | None, type[Pass]], ...] = (
    (None, WriteClipBounds),
    ("dead-layers", Eliminate),
    (None, FoldCasts),
    (None, FoldCodes),
    ("pointwise", WriteSuppressions),
    ("pointwise", WriteNonZeros),
    ("pointwise", WriteUniques),
    (None, WriteEinsums),
    (None, WriteAsImages),
    ("attention", FuseAttention),
    ("volumes", WriteVolumes),
    ("phases", ConvTransposeToConv),
    (None, HoistActivations),
    ("int8-moves", SinkDequantize),
    ("int8-moves", AverageCodes),
    (None, SplitRecurrent),
    (None, FuseConvolutions),
    (None, FuseMatMuls),
    (None, AbsorbInputScales),
    (None, FoldConstants),
    (None, FuseBiases),
    ("activations", FuseGatedActivations),
    ("activations", FuseGelu),
    ("activations", FuseActivations),
    ("residuals", FuseResiduals),
    ("activations", FuseActivations),  # behind residuals
    ("int8-epilogues", AbsorbOutputScales),
    ("int8-epilogues", AbsorbResidualScales),
    ("pools", FusePools),
    ("reorg", FuseReorgs),
    ("blocks", FuseBlocks),
    ("horizontal-fusion", FuseHorizontally),
    ("stem", FuseStem),
    ("patches", GatherPatches),
    ("squeeze-excite", FuseSqueezeExcite),
    ("patches", GatherWindows),
)
"""In their order, each with the step that it belongs to; None: it cannot be left out."""

_REORG = "darknet::Reorg"
FREE_CASTS = "pytrtplugins.cuda.free_casts"
"""Key in a lowered model's metadata: its Casts to float32 are this engine's own, so that a kernel need not round before one."""


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


@no_collection()
def lower(
    model: onnx.ModelProto,
    disable: Collection[OptionalStep] = (),
    requested: Mapping[str, str] = NO_REQUESTS,
    float_type: DType = DType.FLOAT32,
) -> ir.Model:
    """Write the decompositions that `pytrtplugins.plugin.policy` chooses, then fuse.

    Args:
        model: A prepared model; it is not changed.
        disable: Names of `OPTIONAL_STEPS` to leave out.
        requested: Plugin → the form that the user asks for; such a plugin becomes no part of a convolution.
        float_type: Element type of float tensors inside: FLOAT32 or FLOAT16; what hangs on values stays float32. A model that
            holds float16 itself says for each tensor what it is.

    Returns:
        A model whose fused nodes are in the domain ``pytrtplugins.cuda``; all tensors have types and dims.

    Raises:
        DimsError: dims of a node's operands do not fit each other.
        BuildError: weights are in the layout of a CPU, or a node broadcasts as before opset 7, or reads whole numbers where its
            operator computes with fractions.
    """
    check_layouts(model, "cuda")
    lowered = to_ir(write_decompositions(model, GPU_FORMS, requested), checked=True)
    WriteCodes(GPU_FORMS, requested)(lowered)
    check_element_types(lowered)
    check_static_dims(lowered)
    PropagateConstants(
        expands=lambda op_type: op_type == "Attention" and "attention" not in disable,
        inferred=_tensors_of_input_dims(lowered.graph),
    )(lowered)
    _write_defaults(lowered)
    if _REORG in requested:
        disable = {*disable, "reorg"}
    for name, step in _PASSES:
        if name not in disable:
            step()(lowered)
    lowered.graph.sort()
    remove_unused(lowered)
    if float_type is DType.FLOAT16 and not _has_float16(lowered.graph):
        hanging = data_dependent_values(lowered.graph)
        late = [node_name(node) for node in lowered.graph if not hanging.isdisjoint(node.outputs)]
        chosen = [node_name(node) for node in lowered.graph if node.domain == DOMAIN and node.op_type in PADDED]
        keep = [*_float_plugins(lowered.graph), *late, *chosen, *coordinate_nodes(lowered.graph)]
        convert_to_half(lowered, float_type, _float_inputs, keep)
        lowered.metadata_props[FREE_CASTS] = ""
    return lowered


def _tensors_of_input_dims(graph: ir.Graph) -> set[str | None]:
    """Names of the tensors whose dims are numbers and dims of inputs, as the preparation has inferred them."""
    names = {dim.value for value in graph.inputs for dim in value.shape or () if not isinstance(dim, int)} - {None}
    return {
        value.name
        for node in graph
        for value in node.outputs
        if value.shape is not None and all(isinstance(dim, int) or dim.value in names for dim in value.shape)
    }


def _write_defaults(model: ir.Model) -> None:
    """Write default attributes explicitly where a later opset has other defaults."""
    opset = model.opset_imports.get("", 0)
    for node in model.graph.all_nodes():
        if {"axis", "broadcast"} <= node.attributes.keys():
            raise BuildError(
                f"engine 'cuda': node {node_name(node)!r} ({node.op_type}) lays its second operand along an axis of its first one, as "
                "before opset 7, and the model cannot be converted.\nDo: export the model with opset 7 or newer",
                engine="cuda",
                op=node.op_type,
                node=node_name(node),
            )
        if is_op(node, "RoiAlign") and opset < 16:
            set_attributes(node, {"coordinate_transformation_mode": "output_half_pixel"})
        is_cast = is_op(node, "Cast") or is_op(node, "CastLike")
        if is_cast and dtype_of(node.outputs[0]) is DType.FLOAT8E8M0 and "round_mode" not in node.attributes:
            set_attributes(node, {"round_mode": "up"})
        if is_op(node, "PRelu") and opset < 7:
            _unsqueeze_slopes(node)
        if is_op(node, "STFT") and "onesided" not in node.attributes:
            _write_onesided(node)
        if is_op(node, "DFT") and opset < 20 and "axis" not in node.attributes:
            set_attributes(node, {"axis": 1})


def _write_onesided(node: ir.Node) -> None:
    """Write an STFT's default onesided=1, and correct the dims that ONNX's shape inference gives for onesided=0."""
    set_attributes(node, {"onesided": 1})
    length, window = array_of(operand(node, 3)), dims_of(operand(node, 2))
    size = int(length.reshape(())) if length is not None else window[0] if window else None
    shape = node.outputs[0].shape
    if isinstance(size, int) and shape is not None and len(shape) == 4:
        node.outputs[0].shape = ir.Shape([*shape[:2], size // 2 + 1, shape[3]])


def _unsqueeze_slopes(node: ir.Node) -> None:
    """Unsqueeze the slopes of a PRelu before opset 7, which are along the channels."""
    x, slopes = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    if x is None or slopes is None or len(slopes) != 1 or slopes == (1,) or len(x) < 3:
        return
    graph = node.graph
    axes = list(range(1, len(x) - 1))
    made = ir.node("Unsqueeze", [node.inputs[1]], {"axes": axes}, name=f"{node_name(node)}.slopes")
    result, given = made.outputs[0], node.inputs[1]
    assert graph is not None
    assert given is not None
    result.name, result.type = f"{given.name}.channels", given.type
    result.shape = ir.Shape([*(given.shape or ()), *[1] * len(axes)])
    graph.insert_before(node, made)
    node.replace_input_with(1, result)


def _has_float16(graph: ir.Graph) -> bool:
    """Whether a model has float16 tensors already."""
    values = itertools.chain(graph.inputs, graph.initializers.values(), *(node.outputs for node in graph))
    return any(value.dtype is not None and value.dtype.name == "FLOAT16" for value in values)


def _float_inputs(node: ir.Node) -> Collection[int]:
    """Inputs that stay float32 beside others in float16: kernels convert them themselves, and round less.

    These are (1) constants, but a plugin's and a stem's weights, whose type says what the image is rounded to; (2) the image
    that a stem reads, or that patches are made of; (3) an input of the network that becomes int8; (4) coordinates.
    """
    if node.domain != DOMAIN and is_plugin_node(node):
        return ()
    indices = {index for index, value in enumerate(node.inputs) if value is not None and constant(value) is not None}
    indices |= coordinate_inputs(node)
    if is_op(node, "Conv", DOMAIN) and node.attributes["image"].value:
        return {*indices, 0} - {1}
    is_input = node.inputs and node.inputs[0] is not None and node.inputs[0].is_graph_input()
    image = is_op(node, "Patches", DOMAIN) or (is_op(node, "QuantizeLinear") and is_input)
    return {*indices, 0} if image else indices


def _float_plugins(graph: ir.Graph) -> list[str]:
    """Names of plugins that compute network outputs, which stay float32."""
    nodes = (node for node in graph if node.domain != DOMAIN and is_plugin_node(node))
    return [node_name(node) for node in nodes if any(value.is_graph_output() for value in node.outputs)]
