"""What a convolution is where nothing else is said of it, and which sizes its kernels refuse."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.cuda.conv.problem import ConvProblem, Operands
from pytrtplugins.engines.cuda.conv.shape import ConvShape
from pytrtplugins.engines.cuda.conv.step import conv_operands, conv_problem
from pytrtplugins.engines.cuda.conv.tactics import Tactic
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.conv.shapes import HALF, INT8, SINGLE, square
from tests.engines.cuda.host import run_on_host

PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {2}> { y = Conv (x, w) }"""


def planned():
    """The problem and the operands of a network of one plain convolution."""
    _, execution = run_on_host(prepare(onnx.parser.parse_model(PLAIN)), {"x": np.zeros((1, 1, 4, 4), np.float32)})
    (step,) = (step for step in execution.plan.steps if step.kind == "conv")
    operands = conv_operands(step, {name: np.asarray(each) for name, each in execution.plan.constants.items()})
    return conv_problem(step, execution.plan, tf32=True), operands


def defaults(kind):
    return {each.name: each.default for each in fields(kind) if each.default is not MISSING}


def test_fields_that_are_left_out_are_those_of_a_plain_convolution():
    problem, operands = planned()
    for kind, found in ((ConvProblem, problem), (Operands, operands)):
        assert {name: getattr(found, name) for name in defaults(kind)} == defaults(kind)
    x = channels_last((1, 16, 4, 4), HALF)
    shape = ConvShape.of(ConvProblem(x=x, y=x, kernel=(3, 3), pads=(1, 1, 1, 1)))
    assert {name: getattr(shape, name) for name in defaults(ConvShape)} == defaults(ConvShape)


def test_a_tactic_that_says_tiles_alone_has_a_block_for_each_of_four_stages():
    assert Tactic("hopper", 64, 32, 128).name == "m64n32k128u1s4x1"


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"x_type": DType.UINT8}, True),
        ({"x_type": SINGLE, "c": 4, "x_pitch": 1, "planes": 4}, False),
        ({"x_type": SINGLE, "c": 4, "x_pitch": 1, "planes": 5}, True),
        ({"slope": 0.0}, False),
        ({"slope": 1.0}, False),
        ({"slope": -0.1}, True),
        ({"slope": 1.1}, True),
        ({"residual_type": HALF, "residual_pitch": 32, "residual_slope": 0.0}, False),
        ({"residual_type": HALF, "residual_pitch": 32, "residual_slope": 1.1}, True),
        ({"residual_type": HALF, "residual_pitch": 32, "residual_slope": -0.1}, True),
        ({"pool": True}, False),
        ({"pool": True, "oh": 7}, True),
        ({"pool": True, "ow": 7}, True),
        ({"pool": True, "reorg": 2}, True),
        ({"reorg": 2}, False),
        ({"reorg": 2, "oh": 7}, True),
        ({"reorg": 2, "ow": 7}, True),
        ({"reorg": 3, "oh": 9, "ow": 9}, True),  # 32 filters are no blocks of 9
        ({"reorg": 2, "linear": True}, True),
        ({"blocks": 1}, False),
        ({"blocks": 2, "k": 64, "y_pitch": 64}, False),
        ({"blocks": 2, "k": 96, "y_pitch": 96}, True),
        ({"blocks": 1, "pool": True}, True),
        ({"blocks": 1, "reorg": 1}, True),
        ({"blocks": 1, "linear": True}, True),
        ({"blocks": 1, "residual_type": HALF, "residual_pitch": 32}, True),
    ],
)
def test_sizes_on_both_sides_of_what_the_kernels_take(change, refused):
    assert bool(replace(square(1, 8, 32, 32, 3, HALF), **change).unsupported()) is refused


@pytest.mark.parametrize(("kind", "unit"), [(HALF, 8), (INT8, 16), (SINGLE, 4)])
def test_pixels_are_read_in_whole_units_of_16_bytes(kind, unit):
    for name in ("c", "x_pitch"):
        for size, refused in ((2 * unit, False), (2 * unit - 1, True), (2 * unit + 1, True)):
            shape = replace(square(1, 8, 2 * unit, 32, 3, kind), **{name: size})
            assert bool(shape.unsupported()) is (refused or shape.x_pitch < shape.c), (name, size)
