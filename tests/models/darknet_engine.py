"""libdarknet behind the interface of an engine: the detector's own part is tested on darknet's own numbers."""

import json

import numpy as np
from onnx import TensorProto, helper

from pytrtplugins.engines import Arithmetic
from pytrtplugins.engines.base.host_detection import HostDetection
from pytrtplugins.tensor import SymbolicDim, TensorDesc


def region_model(dims, head_dims, **fields):
    """A model whose metadata describe one region layer; it has no nodes that matter."""
    names = ["data", "head_region"]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(names, (dims, head_dims), strict=True)
    ]
    graph = helper.make_graph([helper.make_node("Identity", ["data"], ["head_region"])], "net", values[:1], values[1:])
    model = helper.make_model(graph)
    heads = [{"output": "head_region", "type": "region", **fields}]
    helper.set_model_props(model, {"darknet.net": json.dumps({"width": dims[3], "height": dims[2], "heads": heads})})
    return model


class FunctionEngine:
    """An engine that computes a function of the batch."""

    name, precision, nests = "function", "fp32", True
    arithmetic = Arithmetic("fp32", "fp32")

    def __init__(self, function, dims, head_dims, **fields):
        self.function = function
        self.model_without_weights = region_model(dims, head_dims, **fields)
        self.inputs = (TensorDesc("data", tuple(SymbolicDim(dim) if isinstance(dim, str) else dim for dim in dims)),)
        self.outputs = (TensorDesc("head_region", tuple(head_dims)),)
        self.batches, self.closed = [], False

    def check_process(self):
        pass

    def create_context(self):
        return self

    def create_detection_context(self, *arguments):
        return HostDetection(self, *arguments)

    def close(self):
        self.closed = True

    def run(self, inputs):
        self.batches.append(inputs["data"])
        return {"head_region": self.function(inputs["data"])}


def darknet_engine(network, anchors, classes):
    """An engine that runs a network inside libdarknet."""
    c, h, w = network.input_dims
    head = network.layer_shape(len(network) - 1)

    def function(data):
        return np.stack([network.predict(image).reshape(head) for image in data])

    return FunctionEngine(function, (1, c, h, w), (1, *head), anchors=anchors, classes=classes)
