"""Models of one operator of onnxruntime's."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tests.engines.operators import literal
from tests.randomness import generator

CONTRIB = "com.microsoft"
RNG = generator(48)


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def codes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def step(*shape):
    """Scales of codes."""
    return (RNG.random(shape) * 0.05 + 0.001).astype(np.float32)


def model_of(op, inputs, free=(0,), outputs=(0,), domain=CONTRIB, version=17, **attributes):
    """A model of one node: ``free`` are the inputs that are not constants, ``outputs`` those that are given; ``version`` is the opset.

    Returns:
        The model and its inputs by name.
    """
    names = ["" if value is None else f"i{index}" for index, value in enumerate(inputs)]
    results = [f"o{index}" if index in outputs else "" for index in range(max(outputs) + 1)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    feeds = {names[index]: inputs[index] for index in free}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    constants = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in zip(names, inputs, strict=True)
        if name and name not in feeds
    ]
    graph = helper.make_graph(
        [node], "one", infos, [onnx.ValueInfoProto(name=name) for name in results if name], constants
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    for info, array in zip(model.graph.output, literal(model, feeds), strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, array.shape))
    return model, feeds


def optimized(model, level, folder):
    """The file that onnxruntime writes of a model when it has optimized it."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)
