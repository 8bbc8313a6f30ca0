"""Small networks, calibrated and run, for the tests of passes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.passes import to_ir, to_proto


@ptp.plugin(namespace="quantize_test")
class Swap(ptp.Plugin):
    """Reverses the channels: a permutation, so int8 passes through."""

    int8 = "pass_through"

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x[:, ::-1]


@ptp.plugin(namespace="quantize_test")
class Head(ptp.Plugin):
    """Computes something; stays in float."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * x


class Net:
    """A small model, written layer by layer; every tensor is named by its layer."""

    def __init__(self, channels: int = 3, size: int = 8, seed: int = 0, opset: int = 18):
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.channels = {"data": channels}
        self.opset = opset
        self.input: list[str | int] = ["N", channels, size, size]

    def add(self, op, inputs, output, channels=None, domain="", **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
        self.channels[output] = channels or self.channels[inputs[0]]
        return output

    def plugin(self, plugin, x, output):
        self.nodes.append(plugin.as_node([x], [output], name=output))
        self.channels[output] = self.channels[x]
        return output

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(self, x, output, channels=4, kernel=3, group=1, leaky=True):
        inputs = self.channels[x] // group
        weights = self.random.normal(size=(channels, inputs, kernel, kernel)) / np.sqrt(inputs * kernel**2)
        w = self.constant(f"{output}_w", weights.astype(np.float32))
        b = self.constant(f"{output}_b", self.random.normal(0, 0.1, channels).astype(np.float32))
        self.add("Conv", [x, w, b], output, channels, group=group, pads=[kernel // 2] * 4)
        return self.add("LeakyRelu", [output], f"{output}_leaky", alpha=0.1) if leaky else output

    def model(self, *outputs):
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("data", TensorProto.FLOAT, self.input)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in sorted({n.domain for n in self.nodes} - {""})]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def passed(model, step):
    """The model behind a pass, and whether the pass changed it."""
    ir_model = to_ir(model)
    result = step(ir_model)
    return to_proto(ir_model), result.modified


def run(model, x, outputs=None):
    """Values of the named tensors, or of all float ones, by onnxruntime without optimizations."""
    inferred = onnx.shape_inference.infer_shapes(model)
    floats = {v.name for v in inferred.graph.value_info if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    floats |= {v.name for v in inferred.graph.output}
    names = list(outputs) if outputs else [o for node in model.graph.node for o in node.output if o in floats]
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    del tapped.graph.output[:]
    tapped.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tapped.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(None, {"data": x}), strict=True))


def image(model, seed=1, batch=2):
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(seed).uniform(size=[batch, *dims[1:]]).astype(np.float32)


def calibrated(model) -> CalibrationTable:
    calibrator = MinMaxCalibrator()
    x = image(model)
    calibrator.observe("data", x)
    for name, value in run(model, x).items():
        calibrator.observe(name, value)
    return calibrator.compute_table()


def ones(model) -> CalibrationTable:
    """A table with every tensor, for tests that run nothing."""
    names = ["data", *(output for node in model.graph.node for output in node.output)]
    return CalibrationTable(dict.fromkeys(names, 0.01))


def constants(model):
    return {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}


def producers(model):
    return {output: node for node in model.graph.node for output in node.output}


def quantized_names(model):
    """Tensors that a QuantizeLinear reads."""
    return [node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]


def path_up(model, tensor, count):
    """Operators from a tensor upwards, along first inputs."""
    ops: list[str] = []
    made = producers(model)
    while tensor in made and len(ops) < count:
        ops.append(made[tensor].op_type)
        tensor = made[tensor].input[0]
    return ops


def tiny_yolo(opset=18):
    """Everything that YOLOv2 has: leaky convolutions, max-pooling, a passthrough by concatenation, a head in float."""
    net = Net(size=16, opset=opset)
    a = net.conv("data", "a", 8)
    pool = net.add("MaxPool", [a], "pool", kernel_shape=[2, 2], strides=[2, 2])
    b = net.conv(pool, "b", 12)
    c = net.conv(b, "c", 8)
    route = net.add("Concat", [c, b], "route", 20, axis=1)
    net.conv(net.conv(route, "d", 16), "e", 10, kernel=1, leaky=False)
    return net.model("e")


def as_uint8(model):
    """The same numbers with uint8 activations around 128, the form that OpenVINO computes rightly (int8 is not)."""
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    del rewritten.graph.value_info[:]
    zero = next(c for c in rewritten.graph.initializer if c.name == "int8_zero")
    zero.CopyFrom(numpy_helper.from_array(np.array(128, np.uint8), "int8_zero"))
    return rewritten
