"""Slopes of PRelu: those that do not broadcast are refused by every engine, those of old opsets keep their meaning."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from pytrtplugins.passes import prepare
from pytrtplugins.validation.broadcasting import check_slopes
from tests.engines.model_parts import F, info, model, node
from tests.onnx_parts import parsed

ENGINES = ["cpu", "onnxruntime", "reference"]
SLOPES = np.linspace(0.1, 0.9, 4, dtype=np.float32)


def prelu(dims, slopes, opset=17):
    nodes = [node("PRelu", ["x", "s"], ["y"])]
    return model(nodes, [info("x", F, dims)], [info("y", F, None)], {"s": slopes}, opset=opset)


@pytest.mark.parametrize("engine", ENGINES)
def test_slopes_along_the_channels_are_refused_with_the_dims_that_they_need(engine):
    with pytest.raises(ModelError) as caught:
        ptp.build(prelu(["n", 4, 5, 6], SLOPES), engine=engine)
    assert str(caught.value) == (
        "node 'PRelu_y' (PRelu): the slope 's' has dims (4), which do not broadcast to those of 'x', (n, 4, 5, 6): "
        "ONNX holds the last axis against the last (unidirectional broadcasting).\n"
        "Do: pytrt repair MODEL.onnx -o FIXED.onnx, which reshapes the slope to (4, 1, 1): one for each channel"
    )
    assert (caught.value.node, caught.value.expected, caught.value.found) == ("PRelu_y", ("n", 4, 5, 6), (4,))


@pytest.mark.parametrize(
    ("dims", "slopes"),
    [([1, 4, 5, 6], (1, 4)), ([1, 4, 5, 6], (5,)), ([4, 5], (1, 4, 5)), ([1, 4, 1, 6], (4, 5, 6)), ([2, 3], (2,))],
    ids=str,
)
def test_slopes_that_do_not_broadcast_are_refused(dims, slopes):
    with pytest.raises(ModelError, match=r"do not broadcast[\s\S]*Do: export the model again$"):
        prepare(prelu(dims, np.ones(slopes, np.float32)))


@pytest.mark.parametrize(
    ("dims", "slopes"),
    [([1, 4, 5, 6], (4, 1, 1)), (["n", 4, "h", "w"], (4,)), ([1, 4, 5, 6], ()), ([4], (4,)), ([1, 4, 5, 6], (1, 5, 1))],
    ids=str,
)
def test_slopes_that_broadcast_or_may_do_so_are_taken(dims, slopes):
    prepare(prelu(dims, np.ones(slopes, np.float32)))


@pytest.mark.parametrize("inputs", ["float[] x, float[5] s", "float[1,4,5,6] x, float[] s"])
def test_slopes_are_not_looked_at_where_dims_are_unknown(inputs):
    check_slopes(parsed(f"({inputs}) => (float[] y) {{ y = PRelu (x, s) }}", 17))


def test_slopes_in_a_branch_are_looked_at_too():
    branches = (f"{key}_branch = {key} () => (float[] z) {{ z = PRelu (x, s) }}" for key in ("then", "else"))
    made = parsed(f"(float[1,4,5,6] x, bool c) => (float[] y) {{ y = If (c) <{', '.join(branches)}> }}", s=SLOPES)
    with pytest.raises(ModelError, match="do not broadcast"):
        prepare(made)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("opset", [1, 6])
def test_slopes_of_old_opsets_lie_along_the_channels(engine, width, opset):
    x = -np.ones((1, 4, 5, width), np.float32)
    nodes = [node("PRelu", ["x", "s"], ["a"]), node("PRelu", ["a", "one"], ["y"])]
    constants = {"s": SLOPES, "one": np.float32([0.5])}
    made = model(nodes, [info("x", F, [1, 4, 5, width])], [info("y", F, None)], constants, opset=opset)
    with ptp.build(made, engine=engine).create_context() as context:
        np.testing.assert_allclose(context.run({"x": x})["y"], x * 0.5 * SLOPES.reshape(1, 4, 1, 1), rtol=1e-6)


def test_slopes_of_old_opsets_that_are_computed_are_left_alone_with_a_warning(caplog):
    inputs = [info("x", F, [1, 4, 5, 4]), info("s", F, [4])]
    made = model([node("PRelu", ["x", "s"], ["y"])], inputs, [info("y", F, None)], opset=6)
    assert prepare(made).opset_import[0].version == 6
    assert "PRelu) cannot be converted to opset 13" in caplog.text
