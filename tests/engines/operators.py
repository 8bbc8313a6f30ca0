"""One operator as a model, computed by the reference engine's function and by onnxruntime."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from pytrtplugins.engines.reference.ops import OPS
from pytrtplugins.plugin.onnx_node import node_attributes
from tests.randomness import generator

RNG = generator(0)


def f(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


IMAGE = f(2, 4, 6, 8)
POINT = f(2, 4, 1, 1)


def model_of(op, inputs, attributes, outputs=1, opset=18):
    """The first input is the model's; None stands for an input that is left out."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, op, **attributes)
    data = [helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)]
    constants = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in zip(names[1:], inputs[1:], strict=True)
        if value is not None
    ]
    results = [onnx.ValueInfoProto(name=name) for name in made]
    graph = helper.make_graph([node], "one", data, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def literal(model, feeds, outputs=None):
    """The model's outputs by onnxruntime, node by node."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(outputs, feeds)


def by_openvino(model, feeds, precision="f32"):
    """The model's outputs by OpenVINO alone."""
    import openvino

    core = openvino.Core()
    network = core.read_model(model.SerializeToString(), b"")
    results = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": precision})(feeds)
    return [results[index] for index in range(len(results))]


def both(op, inputs, attributes, outputs=1, opset=18):
    """Outputs of the reference engine's function, and onnxruntime's."""
    model = model_of(op, inputs, attributes, outputs, opset)
    wanted = literal(model, {"x0": inputs[0]})
    with np.errstate(all="ignore"):  # as the engine
        said = {"num_outputs": outputs} if op == "MaxPool" else {}
        found = OPS[op](node_attributes(model.graph.node[0]) | said, *inputs)
    return (found if isinstance(found, list) else [found]), wanted
