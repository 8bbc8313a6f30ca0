"""TrainingNorms: batch norms in training mode by the mean and variance of the batch, as onnxruntime computes them."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines import build
from pytrtplugins.passes import TrainingNorms, to_ir, to_proto
from tests.engines.operators import literal
from tests.passes.nets import passed

X = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)


def norm_net(opset, kind="float", dims="[2, 3, 5]", outputs="y", attributes="epsilon = 0.01"):
    given = {9: "y, a, b, c, d", 13: "y, a, b, c, d"}.get(opset, "y, a, b")
    mode = "" if opset < 14 else ", training_mode = 1"
    results = ", ".join(f"{kind}{dims if name == 'y' else '[3]'} {name}" for name in outputs.split())
    text = f"""<ir_version: 7, opset_import: ["": {opset}]>
        g ({kind}{dims} x) => ({results})
        <{kind}[3] s = {{1, -2, 3}}, {kind}[3] t = {{0, 1, 2}}, {kind}[3] m = {{5, 6, 7}}, {kind}[3] v = {{8, 9, 10}}> {{
            {given} = BatchNormalization <{attributes}{mode}> (x, s, t, m, v)
        }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("opset", [9, 13, 14, 15, 18])
def test_the_values_are_those_of_the_batch(opset):
    model = norm_net(opset)
    changed, modified = passed(model, TrainingNorms())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    assert "BatchNormalization" not in {node.op_type for node in changed.graph.node}
    np.testing.assert_allclose(literal(changed, {"x": X})[0], literal(model, {"x": X})[0], atol=1e-6)


@pytest.mark.parametrize("engine", ["onnxruntime", "cpu", "reference"])
@pytest.mark.parametrize("opset", [9, 13, 15])
def test_engines_give_the_values_of_the_batch(engine, opset):
    model = norm_net(opset)
    with build(model, engine=engine, threads=1).create_context() as context:
        np.testing.assert_allclose(context.run({"x": X})["y"], literal(model, {"x": X})[0], atol=1e-6)


@pytest.mark.parametrize("engine", ["onnxruntime", "cpu", "reference"])
@pytest.mark.parametrize("scale_type", ["FLOAT16", "BFLOAT16", "DOUBLE"])
def test_scale_and_bias_may_have_another_type(engine, scale_type):
    model = norm_net(15)
    expected = literal(model, {"x": X})[0]
    data_type = onnx.TensorProto.DataType.Value(scale_type)
    for tensor in model.graph.initializer[:2]:  # whole numbers, which are the same in each type
        numbers = onnx.numpy_helper.to_array(tensor).astype(onnx.helper.tensor_dtype_to_np_dtype(data_type))
        tensor.CopyFrom(onnx.numpy_helper.from_array(numbers, tensor.name))
    with build(model, engine=engine, threads=1).create_context() as context:
        np.testing.assert_allclose(context.run({"x": X})["y"], expected, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"outputs": "y a", "opset": 15}, {"kind": "float16", "opset": 15}, {"dims": "", "opset": 15}],
)
def test_others_stay(options):
    model = norm_net(**options)
    assert passed(model, TrainingNorms()) == (to_proto(to_ir(model)), False)


def test_a_norm_that_takes_stored_statistics_stays():
    model = norm_net(13)
    del model.graph.node[0].output[1:]
    assert not passed(model, TrainingNorms())[1]
