"""Networks in the forms of mx2onnx, MXNet's exporter: those of its _op_translations.py of 1.3 and later, and of export_onnx.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from tests.engines.operators import literal

NAME = "mxnet_converted_model"


def exported(nodes, weights, dims, output, *, opset=9, name=NAME, weight_inputs=False, inputs=()):
    """A model with one input, ``data``: nodes are a text, or (operator, inputs, output, attributes); outputs give the names."""
    info = helper.make_tensor_value_info
    if isinstance(nodes, str):
        made = list(parser.parse_graph(f"g () => () {{ {nodes} }}").node)
        for node in made:
            node.name = node.output[0]
    else:
        made = [helper.make_node(op, read, [write], name=write, **attributes) for op, read, write, attributes in nodes]
    held = [numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()]
    listed = [info("data", TensorProto.FLOAT, dims), *inputs]
    if weight_inputs:
        listed += [info(tensor.name, tensor.data_type, tensor.dims) for tensor in held]
    graph = helper.make_graph(made, name, listed, [info(output, TensorProto.FLOAT, None)], held)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if weight_inputs else 8
    )


def run(model, **inputs):
    """What onnxruntime computes, without its own optimizations of the graph."""
    return literal(model, inputs)[0]


def refused(model, **inputs):
    """Whether onnxruntime refuses a model, or its run."""
    try:
        run(model, **inputs)
    except Exception:  # onnxruntime raises types of its own
        return True
    return False


def repairs_of(found):
    """Name of each repair → how often it found something."""
    names = [each.repair for each in found.findings]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def old_export(net, size=16):
    """A network of `tests.mxnet.files` as MXNet 1.3 wrote it, with label, dropout and copy: what opset 8 and IR 3 have."""
    weights = {name.partition(":")[2]: array for name, array in net.arrays.items()}
    nodes: list[Any] = []
    names = [node["name"] for node in net.nodes]
    for node in net.nodes:
        op, given, write = node["op"], node.get("attrs", {}), node["name"]
        read = [names[number] for number, *_ in node["inputs"]]
        if op == "null":
            continue
        if op.endswith("_scalar"):
            weights[f"{write}_scalar"] = np.float32([float(given["scalar"])])
            nodes.append(({"_minus_scalar": "Sub", "_mul_scalar": "Mul"}[op], [read[0], f"{write}_scalar"], write, {}))
        elif op == "Convolution":
            sizes = {
                key: eval_dims(given.get(key, text))
                for key, text in (("kernel", ""), ("stride", "(1, 1)"), ("pad", "(0, 0)"))
            }
            more = {"kernel_shape": sizes["kernel"], "strides": sizes["stride"], "pads": sizes["pad"] * 2}
            nodes.append(("Conv", read, write, {**more, "dilations": [1, 1], "group": int(given["num_group"])}))
        elif op == "BatchNorm":
            if given.get("fix_gamma") == "True":  # the exporter forgets it: see docs/how-to/repair.md
                weights[read[1]] = np.ones_like(weights[read[1]])
            more = {"epsilon": float(given.get("eps", 1e-3)), "momentum": 0.9, "spatial": 0}
            nodes.append(("BatchNormalization", read, write, more))
        elif op == "LeakyReLU":
            nodes.append(("PRelu", read, write, {}))
        elif op == "FullyConnected":
            weights[f"{write}_reshape"] = np.array([0, -1], np.int64)
            nodes.append(("Dropout", [read[0]], f"{write}_dropout", {"ratio": 0.4}))
            nodes.append(("Identity", [f"{write}_dropout"], f"{write}_copy", {}))
            nodes.append(("Reshape", [f"{write}_copy", f"{write}_reshape"], f"{write}_flat", {}))
            nodes.append(
                ("Gemm", [f"{write}_flat", *read[1:]], write, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1})
            )
        else:
            nodes.append(({"elemwise_add": "Add"}[op], read, write, {}))
    label = onnx.helper.make_tensor_value_info("softmax_label", TensorProto.FLOAT, [1])
    return exported(nodes, weights, [1, 3, size, size], names[-1], opset=8, weight_inputs=True, inputs=[label])


def eval_dims(text):
    return [int(part) for part in text.strip("()").split(",") if part.strip()]
