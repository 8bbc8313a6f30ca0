"""Short ways to write ONNX models, sound and broken ones."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser

DIMS = (1, 3, 8, 8)
IMAGE = np.random.default_rng(0).standard_normal(DIMS).astype(np.float32)


def info(name, dims=DIMS, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def model(*nodes, weights=(), inputs=None, outputs=("y",), functions=(), opset=18):
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info("x")] if inputs is None else inputs,
        [info(name, None) for name in outputs],
        list(weights),
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def node(op_type, inputs, outputs, name="", **attributes):
    return helper.make_node(op_type, inputs.split(), outputs.split(), name or outputs.split()[0], **attributes)


def shape(name, *sizes):
    return helper.make_tensor(name, TensorProto.INT64, [len(sizes)], sizes)


def parsed(text, opset=18, ir_version=10, **weights):
    """The model of a graph's text, ``(float[N,2] x) => (float[] y) { y = Relu (x) }``: ``[]`` stands for any shape."""
    graph = parser.parse_graph(f"g {text}")
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items())
    domains = sorted({node.domain for node in graph.node} - {""})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def add(weight):
    return model(node("Add", "x w", "y"), weights=[weight])


def external(name="w", location="secret", kind=TensorProto.FLOAT, dims=DIMS, **places):
    tensor = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **places}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def body(*nodes, weights=(), output="b"):
    return helper.make_graph(list(nodes), "body", [], [info(output, None)], list(weights))


def branches(then):
    """An If whose first branch is ``then``, and whose second is a constant."""
    other = body(node("Constant", "", "c", value=helper.make_tensor("v", 1, [1], [1.0])), output="c")
    return model(
        node("If", "when", "y", then_branch=then, else_branch=other),
        inputs=[info("x"), info("when", [], TensorProto.BOOL)],
    )


def function(name, *nodes, inputs=("a",), outputs=("b",)):
    return helper.make_function("local", name, list(inputs), list(outputs), list(nodes), [helper.make_opsetid("", 18)])


def call(name, inputs, outputs):
    return node(name, inputs, outputs, domain="local")


def nested(depth):
    graph = body(node("Identity", "x", "b"))
    for _ in range(depth):
        graph = body(node("If", "when", "b", then_branch=graph, else_branch=body(node("Identity", "x", "b"))))
    return model(
        node("If", "when", "y", then_branch=graph, else_branch=body(node("Identity", "x", "b"))),
        inputs=[info("x"), info("when", [], TensorProto.BOOL)],
    )


RELU = node("Relu", "x", "y")
