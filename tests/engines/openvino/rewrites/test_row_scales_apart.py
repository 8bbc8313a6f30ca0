import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

pytest.importorskip("openvino")

import pytrtplugins as ptp
from pytrtplugins.engines.openvino.rewrites.row_scales_apart import RowScalesApart
from pytrtplugins.passes import to_ir, to_proto
from tests.engines.operators import by_openvino, literal
from tests.passes.nets import passed
from tests.randomness import generator

RNG = generator(59)
X = RNG.random((3, 64), np.float32)
ROWS = (RNG.random(64) + 0.5).astype(np.float32)
COLUMNS = (RNG.random(128) + 0.5).astype(np.float32)
CODES = RNG.integers(-8, 8, (64, 128))
DEQUANTIZED = "w = DequantizeLinear <axis = {axis}> (q, s)"
BLOCKED = "w = DequantizeLinear <axis = {axis}, block_size = {size}> (q, s)"
SCALED = "c = Cast <to = 1> (q) w = Mul (c, s)"


def product(steps, codes=CODES, scales=ROWS, dtype=np.int8):
    """A model whose weights ``w`` are computed of the codes ``q`` with the scales ``s``."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[3,64] x) => (float[3,128] y) {{ {steps} }}'
    )
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in (("q", codes.astype(dtype)), ("s", scales))
    )
    return model


WRONG = {
    "rows": product(f"{DEQUANTIZED.format(axis=0)} y = MatMul (x, w)"),
    "rows of 4 bits": product(f"{DEQUANTIZED.format(axis=0)} y = MatMul (x, w)", dtype=ml_dtypes.int4),
    "rows of a transposed matrix": product(f"{DEQUANTIZED.format(axis=1)} y = Gemm <transB = 1> (x, w)", CODES.T),
    "rows before a Transpose": product(f"{DEQUANTIZED.format(axis=1)} t = Transpose (w) y = MatMul (x, t)", CODES.T),
    "blocks of columns": product(
        f"{BLOCKED.format(axis=0, size=128)} y = Gemm <transB = 1> (x, w)", CODES.T, ROWS[None], ml_dtypes.int4
    ),
    "rows by Mul": product(f"{SCALED} y = MatMul (x, w)", scales=ROWS[:, None]),
    "rows by Mul, with zero points": product(
        "c = Cast <to = 1> (q) z = Constant <value_float = 2.0> () d = Sub (c, z) w = Mul (s, d) y = MatMul (x, w)",
        scales=ROWS[:, None],
    ),
}
RIGHT = {
    "columns": product(f"{DEQUANTIZED.format(axis=1)} y = MatMul (x, w)", scales=COLUMNS),
    "one scale": product(f"{DEQUANTIZED.format(axis=0)} y = MatMul (x, w)", scales=np.float32(0.5)),
    "blocks of rows": product(
        f"{BLOCKED.format(axis=0, size=16)} y = MatMul (x, w)", scales=np.outer(ROWS[:4], COLUMNS), dtype=ml_dtypes.int4
    ),
    "each element": product(f"{SCALED} y = MatMul (x, w)", scales=np.outer(ROWS, COLUMNS)),
}


def far(y, right):
    return np.abs(y - right).max() / np.abs(right).max()


@pytest.mark.parametrize("name", WRONG)
def test_max_stands_before_a_product_with_scales_of_rows_and_changes_no_value(name):
    model = WRONG[name]
    changed, modified = passed(model, RowScalesApart())
    assert modified
    assert [node.op_type for node in changed.graph.node][-2:][0] == "Max"
    np.testing.assert_array_equal(literal(changed, {"x": X})[0], literal(model, {"x": X})[0])


@pytest.mark.parametrize("name", RIGHT)
def test_other_scales_stay(name):
    assert passed(RIGHT[name], RowScalesApart()) == (to_proto(to_ir(RIGHT[name])), False)


@pytest.mark.parametrize("name", [*WRONG, *RIGHT])
def test_engine_cpu_is_as_right_as_onnxruntime(name):
    model = {**WRONG, **RIGHT}[name]
    with ptp.build(model, engine="cpu", progress=False).create_context() as context:
        assert far(context.run({"x": X})["y"], literal(model, {"x": X})[0]) < 1e-5


@pytest.mark.parametrize("name", WRONG)
def test_openvino_alone_is_still_wrong(name):
    results = (compute(WRONG[name], {"x": X})[0] for compute in (by_openvino, literal))
    assert far(*results) > 0.05, "OpenVINO is right: take RowScalesApart away"
