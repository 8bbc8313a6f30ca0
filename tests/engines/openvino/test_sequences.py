"""Sequences on engine `cpu`: OpenVINO loses the name of an input that stands at a constant place, and would read memory instead."""

import numpy as np
import onnx
import pytest

pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")

from pytrtplugins.engines import build
from tests.engines.operators import literal

PAIR = "(float[2,3] x, float[2,3] y) => (float z)"
ROWS = "(float[4,3] x) => (float z)"
GRAPHS = [
    f"{PAIR} <int64 i={{1}}> {{ s=SequenceConstruct(x,y) z=SequenceAt(s,i) }}",
    f"{PAIR} <int64 i={{-2}}> {{ s=SequenceConstruct(x,y) z=SequenceAt(s,i) }}",
    f"{PAIR} <int64 i={{0}}> {{ s=SequenceConstruct(x,y) t=SequenceErase(s,i) z=SequenceAt(t,i) }}",
    f"{PAIR} <int64 i={{1}}> {{ e=SequenceEmpty() s=SequenceInsert(e,x) t=SequenceInsert(s,y) z=SequenceAt(t,i) }}",
    f"{PAIR} <int64 i={{1}}> {{ e=SequenceEmpty() s=SequenceInsert(e,x) t=SequenceInsert(s,y,i) q=SequenceAt(t,i) z=Relu(q) }}",
    "(float[2,3] x, float[3,3] y) => (float z) <int64 i={1}> { s=SequenceConstruct(x,y) z=SequenceAt(s,i) }",
    f"{PAIR} {{ s=SequenceConstruct(x,y) z=ConcatFromSequence<axis=0,new_axis=1>(s) }}",
    f"{PAIR} {{ e=SequenceEmpty() s=SequenceInsert(e,x) t=SequenceInsert(s,y) z=ConcatFromSequence<axis=0>(t) }}",
    f"{ROWS} <int64 i={{1}}> {{ s=SplitToSequence<axis=0,keepdims=0>(x) z=SequenceAt(s,i) }}",
    f"{ROWS} <int64 i={{1}}, int64 n={{3}}> {{ s=SplitToSequence<axis=0>(x,n) z=SequenceAt(s,i) }}",
    f"{ROWS} <int64[2] n={{1,3}}> {{ s=SplitToSequence<axis=0>(x,n) z=ConcatFromSequence<axis=0>(s) }}",
]


@pytest.mark.parametrize("graph", GRAPHS)
def test_it_is_as_in_onnxruntime(graph):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> sequences {graph}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    constants = {item.name for item in model.graph.initializer}
    for info in [info for info in model.graph.input if info.name in constants]:
        model.graph.input.remove(info)
    rng = np.random.default_rng(0)
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input}
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    (expected,) = literal(model, inputs)
    with build(model, engine="cpu", threads=1).create_context() as context:
        for _ in range(2):
            np.testing.assert_array_equal(context.run(inputs)["z"], expected)
