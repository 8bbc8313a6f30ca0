"""Inputs with other numbers of axes than their operators read are refused by name."""

import numpy as np
import onnx
import pytest
from onnx import helper

from pytrtplugins.errors import ModelError
from pytrtplugins.passes import prepare
from pytrtplugins.validation import check_ranks
from tests.onnx_parts import parsed

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(operator: str, **other: tuple[int, ...]) -> onnx.ModelProto:
    rows = 2 * GATES[operator]
    shapes = {"x": (4, 1, 3), "w": (1, rows, 3), "r": (1, rows, 2), **other}
    x = f"float{list(shapes['x']) or ''} x"
    text = f"({x}) => (float[] y) {{ [layer] y = {operator} <hidden_size = 2> (x, w, r) }}"
    return parsed(text, 14, 9, **{name: np.zeros(shapes[name], np.float32) for name in ("w", "r")})


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("name", ["x", "w", "r"])
@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (1, 2, 3, 1)])
def test_other_ranks_are_refused(operator, name, shape):
    with pytest.raises(ModelError, match=rf"'layer'.*input {name.upper()}, '{name}', has {len(shape)} axes") as raised:
        check_ranks(recurrent(operator, **{name: shape}))
    assert raised.value.node == "layer"
    assert raised.value.tensor == name


@pytest.mark.parametrize("operator", GATES)
def test_prepare_asks_for_them(operator):
    prepare(recurrent(operator))
    with pytest.raises(ModelError):
        prepare(recurrent(operator, r=()))


def along_an_axis(operator: str, *inputs: np.ndarray, **attributes: int) -> onnx.ModelProto:
    tensors = {f"t{index}": array for index, array in enumerate(inputs)}
    model = parsed(f"() => (float[] y) {{ [layer] y = {operator} ({', '.join(tensors)}) }}", **tensors)
    model.graph.node[0].attribute.extend(helper.make_attribute(*item) for item in attributes.items())
    return model


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("CumSum", (np.float32, np.int64), {}),
        ("GatherElements", (np.float32, np.int64), {"axis": 0}),
        ("ScatterElements", (np.float32, np.int64, np.float32), {"axis": 0}),
        ("LpNormalization", (np.float32,), {"axis": 0}),
    ],
)
def test_an_axis_of_a_scalar_is_refused(operator, inputs, attributes):
    check_ranks(along_an_axis(operator, *(np.zeros(1, dtype) for dtype in inputs), **attributes))
    with pytest.raises(ModelError, match=r"'layer'.*'t0', has 0 axes; .* reads at least 1") as raised:
        check_ranks(along_an_axis(operator, *(np.zeros((), dtype) for dtype in inputs), **attributes))
    assert raised.value.tensor == "t0"


@pytest.mark.parametrize("shape", [(), (1, 4)])
def test_a_shape_with_other_axes_than_one_is_refused_by_name(shape):
    for operator in ("Reshape", "Expand", "Tile"):
        text = f"(float[a,b,c,d] x) => (float[] y) {{ [layer] y = {operator} (x, sizes) }}"
        with pytest.raises(ModelError, match="layer"):
            prepare(parsed(text, 14, 8, sizes=np.ones(shape, np.int64)))


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("size", [0, 2])
def test_blocks_need_an_axis(operator, size):
    codes = operator == "DequantizeLinear"
    scalar = np.array(3, np.int8 if codes else np.float32)
    model = along_an_axis(operator, scalar, np.ones((2, 2) if size else (), np.float32), block_size=size, axis=0)
    model.opset_import[0].version = 21
    if size:
        with pytest.raises(ModelError, match=r"'layer'.*input x, 't0', has 0 axes"):
            check_ranks(model)
    else:
        check_ranks(model)
