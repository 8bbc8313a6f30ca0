"""Pads and masks whose sizes a file computes in float from those of a tensor, against onnxruntime on the file as it is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import F, info, model
from tests.engines.operators import literal
from tests.randomness import generator

RNG = generator(0)
X = RNG.uniform(-1, 1, (2, 3, 9, 9)).astype(np.float32)
CONSTANTS = {
    "weights": RNG.uniform(-1, 1, (4, 3, 3, 3)).astype(np.float32),
    "axis": np.int64(2),
    "first": np.array([0]),
    "none": np.zeros(4, np.int64),
    "stride": np.float32(2),
    "one": np.float32(1),
    "kernel": np.float32(3),
    "zero": np.float32(0),
    "half": np.float32(0.5),
    "scale": np.float32(0.25),
    "code": np.int8(-128),
    "start": np.int64(0),
    "step": np.int64(1),
}
PADS: list[tuple[str, list[str], list[str], dict]] = [  # as timm pads by SAME: max((ceil(h / 2) - 1) * 2 + 3 - h, 0)
    ("Relu", ["x"], ["r"], {}),
    ("Shape", ["r"], ["dims"], {}),
    ("Gather", ["dims", "axis"], ["h"], {}),
    ("Cast", ["h"], ["size"], {"to": 1}),
    ("Div", ["size", "stride"], ["parts"], {}),
    ("Ceil", ["parts"], ["windows"], {}),
    ("Sub", ["windows", "one"], ["steps"], {}),
    ("Mul", ["steps", "stride"], ["offset"], {}),
    ("Add", ["{offset}", "kernel"], ["end"], {}),
    ("Sub", ["end", "size"], ["missing"], {}),
    ("Clip", ["missing", "zero"], ["all"], {}),
    ("Mul", ["all", "half"], ["side"], {}),
    ("Cast", ["side"], ["whole"], {"to": 7}),
    ("Unsqueeze", ["whole", "first"], ["pad"], {}),
    ("Concat", ["first", "first", "pad", "pad", "first", "first", "pad", "pad"], ["pads"], {"axis": 0}),
    ("Pad", ["r", "pads", "zero"], ["padded"], {}),
    ("Conv", ["padded", "weights"], ["y"], {"strides": [2, 2]}),
]
# as onnxruntime's quantizer writes it, to whom the size is a tensor like others
ROUNDED: list[tuple[str, list[str], list[str], dict]] = [
    ("QuantizeLinear", ["offset", "scale", "code"], ["offset_code"], {}),
    ("DequantizeLinear", ["offset_code", "scale", "code"], ["offset_value"], {}),
]


def network(nodes, dims, opset=17):
    """A model of nodes from x to y."""
    made = [helper.make_node(op, inputs, outputs, outputs[0], **options) for op, inputs, outputs, options in nodes]
    read = {name for node in made for name in node.input}
    constants = {name: value for name, value in CONSTANTS.items() if name in read}
    return model(made, [info("x", F, dims)], [info("y", F, None)], constants, opset)


def assert_planned_as_onnxruntime(network):
    (wanted,) = literal(network, {"x": X})
    found, execution = run_on_host(prepare(network), {"x": X})
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5)
    assert execution.plan.tail is None


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("dims", [["N", 3, 9, 9], ["N", 3, "H", "W"]], ids=["batch", "sizes"])
def test_pads_that_are_computed_in_float(dims, rounded):
    place = next(index for index, node in enumerate(PADS) if node[0] == "Add")
    nodes = [*PADS[:place], *(ROUNDED if rounded else ()), *PADS[place:]]
    name = "offset_value" if rounded else "offset"
    nodes = [(op, [each.format(offset=name) for each in inputs], *more) for op, inputs, *more in nodes]
    assert_planned_as_onnxruntime(network(nodes, dims))


@pytest.mark.parametrize("op", ["GreaterOrEqual", "LessOrEqual"])
def test_masks_of_sizes_at_an_opset_whose_comparison_has_no_rule_for_dims(op):
    """Transformers compare positions, of which a file of opset 13 makes a mask."""
    nodes: list[tuple[str, list[str], list[str], dict]] = [
        ("Shape", ["x"], ["dims"], {}),
        ("Gather", ["dims", "axis"], ["h"], {}),
        ("Range", ["start", "h", "step"], ["places"], {}),
        (op, ["places", "axis"], ["mask"], {}),
        ("Where", ["mask", "x", "zero"], ["masked"], {}),
        ("MatMul", ["masked", "masked"], ["y"], {}),
    ]
    assert_planned_as_onnxruntime(network(nodes, ["N", 3, 9, 9], 13))
