"""Fuse squeeze-and-excitation blocks to one node each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import add_constant, array_of, dims_of, dtype_of, is_op, only_read_by, operand, swap
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override
from .rewrite import DOMAIN, Rewrite, convolution_before, has_residual, scale_of, weight_dims

__all__ = ["FuseSqueezeExcite"]

_MAX_CHANNELS, _MAX_HIDDEN = 4096, 1024
_MAX_WEIGHTS = 1 << 19
"""Values of each matrix: a cluster reads larger ones for longer than launches take."""
_MAX_SCALED, _MAX_READ = 1 << 20, 1 << 21
"""Values of an image that a cluster scales, or only reads."""


@dataclass(frozen=True)
class _Block:
    """A squeeze-and-excitation block.

    Attributes:
        nodes: What is replaced, the mean first.
        x: The images.
        constants: Weights and bias of the first product, then of the second.
        attributes: Of the fused node.
    """

    nodes: list[ir.Node]
    x: ir.Value
    constants: list[npt.NDArray[Any]]
    attributes: dict[str, Any]


class FuseSqueezeExcite(Rewrite[_Block]):
    """GlobalAveragePool or ReduceMean of pixels, two 1x1 convolutions, and Mul with the images → ``SqueezeExcite``.

    Inputs: images x (N, C, H, W), weights (M, C, 1, 1) and bias (M), weights (C, M, 1, 1) and bias (C). Attributes:
    ``squeeze_activation`` and ``squeeze_bounds`` behind the first convolution, ``excite_activation`` and ``excite_bounds`` behind the
    second, as a ``Conv`` has them; ``scales`` 1: the output is x times the gates, 0: the gates (N, C, 1, 1).

    The Mul stays a node of its own where something else than convolutions reads its result, since it joins elementwise operators
    there, and where images are large, since one cluster takes longer to scale them than all multiprocessors.

    What does not match: (1) images of unknown or large size, with many channels, or that are the network's input; (2) images of
    codes; (3) a mean, or the result of the first convolution, that something else reads too; (4) convolutions of other than one pixel,
    of groups, of codes, or with more than bias and activation; PRelu; (5) large weights, or weights that are computed in the run.
    """

    name: ClassVar[str] = "squeeze-excite"
    needs: ClassVar[tuple[str, ...]] = ("GlobalAveragePool", "ReduceMean")
    leaves_unused: ClassVar[bool] = True

    @override
    def match(self, node: ir.Node) -> _Block | None:
        squeeze = convolution_before(node) if is_op(node, "Conv", DOMAIN) else None
        mean = None if squeeze is None or squeeze.inputs[0] is None else squeeze.inputs[0].producer()
        if squeeze is None or mean is None or not _is_mean_of_pixels(mean) or not only_read_by(mean, squeeze):  # case 3
            return None
        x = mean.inputs[0]
        if x is None or not _is_plain(squeeze) or not _is_plain(node):  # case 4
            return None
        if x.is_graph_input() or is_op(x.producer(), "DequantizeLinear"):  # cases 1 and 2
            return None
        (hidden, c), (_, *sizes) = weight_dims(squeeze)[:2], dims_of(x) or (0,)
        if len(sizes) != 3 or not all(isinstance(size, int) and size for size in sizes):  # case 1
            return None
        values = math.prod(sizes)
        if (
            c > _MAX_CHANNELS or hidden > _MAX_HIDDEN or c * hidden > _MAX_WEIGHTS or values > _MAX_READ
        ):  # cases 1 and 5
            return None
        constants = [array_of(conv.inputs[index]) for conv in (squeeze, node) for index in (1, 2)]
        if sizes[0] != c or weight_dims(node)[:2] != (c, hidden) or any(array is None for array in constants):  # case 5
            return None
        mul = _multiplication(node, x) if values <= _MAX_SCALED else None
        nodes = [mean, squeeze, node, *([] if mul is None else [mul])]
        attributes = {"scales": int(mul is not None), **_activation("squeeze", squeeze), **_activation("excite", node)}
        return _Block(nodes, x, constants, attributes)

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Block) -> None:
        name = match.nodes[-1].outputs[0].name
        constants = [
            add_constant(graph, f"{name}.constant{index}", np.asarray(array, np.float32))
            for index, array in enumerate(match.constants)
        ]
        fused = ir.node(
            "SqueezeExcite", [match.x, *constants], match.attributes, domain=DOMAIN, name=match.nodes[-1].name
        )
        graph.insert_before(match.nodes[-1], fused)
        swap(graph, match.nodes, fused.outputs[0])


def _is_mean_of_pixels(node: ir.Node) -> bool:
    """Whether a node is the mean of each channel of images, with axes of size 1 in the pixels' place."""
    if is_op(node, "GlobalAveragePool"):
        return True
    if not is_op(node, "ReduceMean") or not node.attributes.get_int("keepdims", 1):
        return False
    axes = array_of(operand(node, 1))
    found = node.attributes.get_ints("axes", ()) if axes is None else axes.reshape(-1).tolist()
    return len(dims_of(node.inputs[0]) or ()) == 4 and sorted(int(axis) % 4 for axis in found or ()) == [2, 3]


def _is_plain(conv: ir.Node) -> bool:
    """Whether a fused convolution is a product of each pixel with one matrix, a bias and an activation, of floats."""
    at, dims = conv.attributes, weight_dims(conv)
    numbers = [at.get_int(name, 0) for name in ("rows", "pool", "reorg", "blocks", "image")]
    codes = [scale_of(conv, name) for name in ("x_scale", "y_scale", "residual_scale")]
    return (
        dims[2:] == (1, 1)
        and at.get_int("group", 1) == 1
        and not any([*numbers, *codes, *at.get_ints("pads", [0])])
        and not has_residual(conv)
        and at.get_string("activation", "linear") != "prelu"
        and all(
            dtype_of(value) in (DType.FLOAT32, DType.FLOAT16) for value in (conv.inputs[0], conv.outputs[0]) if value
        )
    )


def _activation(place: str, conv: ir.Node) -> dict[str, Any]:
    """The attributes of the fused node for a convolution's activation."""
    at = conv.attributes
    return {
        f"{place}_activation": at.get_string("activation", "linear"),
        f"{place}_bounds": list(at.get_floats("bounds", [0.0, 0.0])),
    }


def _multiplication(excite: ir.Node, x: ir.Value) -> ir.Node | None:
    """The node that multiplies the images with the gates, if nothing else reads these, and convolutions alone read the product."""
    readers = [use.node for use in excite.outputs[0].uses()]
    if len(readers) != 1 or not is_op(readers[0], "Mul") or not only_read_by(excite, readers[0]):
        return None
    uses = readers[0].outputs[0].uses()
    only_convolutions = uses and all(is_op(use.node, "Conv", DOMAIN) and use.idx == 0 for use in uses)
    return (
        readers[0]
        if x in readers[0].inputs and only_convolutions and not readers[0].outputs[0].is_graph_output()
        else None
    )
