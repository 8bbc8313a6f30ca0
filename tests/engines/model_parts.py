"""Short ways to write the parts of ONNX models."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser

from pytrtplugins.validation.dataflow import walk
from tests.randomness import generator

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RANDOM = generator(7)


def info(name, kind, dims):
    return helper.make_tensor_value_info(name, kind, dims)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, f"{op}_{outputs[0]}", **attributes)


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def values(*dims):
    return RANDOM.standard_normal(dims).astype(np.float32)


def model(nodes, inputs, outputs, constants=(), opset=17, ir=8, functions=(), domains=()):
    graph = helper.make_graph(
        nodes, "main_graph", inputs, outputs, [constant(name, value) for name, value in dict(constants).items()]
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=list(functions))


def parsed(text, opset=17, ir=8, domains=(), **constants):
    """A model from ONNX text; its nodes, also those in branches, have the names that `node` gives."""
    versions = {"": opset, **dict.fromkeys(domains, 1)}
    imports = ", ".join(f'"{name}": {number}' for name, number in versions.items())
    made = parser.parse_model(f"<ir_version: {ir}, opset_import: [{imports}]> main_graph {text}")
    made.graph.initializer.extend(constant(name, value) for name, value in constants.items())
    for each in walk(made.graph.node):
        each.name = f"{each.op_type}_{each.output[0]}"
    return made


def body(nodes, outputs, inputs=(), constants=()):
    return helper.make_graph(
        nodes, "body", list(inputs), list(outputs), [constant(name, value) for name, value in dict(constants).items()]
    )
