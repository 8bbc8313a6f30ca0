"""Small models, written as other people's exporters write them: PyTorch's two, TensorFlow's, Paddle's, and older tools."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.engines.model_parts import BOOL, I64, F, body, constant, info, model, node, values
from tests.engines.old_models import old_axes, old_branches, old_normalization, old_resize


def if_that_captures():
    """PyTorch's TorchScript exporter: branches read the input, a tensor in the middle, and a weight."""
    then = body([node("MatMul", ["hidden", "weight"], ["then_out"])], [info("then_out", F, None)])
    other = body([node("Sub", ["hidden", "x"], ["else_out"])], [info("else_out", F, None)])
    nodes = [
        node("Relu", ["x"], ["hidden"]),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["condition"]),
        node("If", ["condition"], ["y"], then_branch=then, else_branch=other),
    ]
    made = model(
        nodes,
        [info("x", F, ["batch", 4])],
        [info("y", F, ["batch", 4])],
        {"weight": values(4, 4), "zero": np.float32(0)},
    )
    return made, [{"x": np.abs(values(2, 4))}, {"x": -np.abs(values(3, 4))}]


def loop_that_captures():
    """A loop of TorchScript: its body reads a tensor from around it that no node of the main graph reads."""
    inner = body(
        [
            node("Mul", ["state", "scale"], ["scaled"]),
            node("Add", ["scaled", "shift"], ["state_out"]),
            node("Identity", ["goes_on"], ["goes_on_out"]),
        ],
        [info("goes_on_out", BOOL, []), info("state_out", F, ["n", 3])],
        [info("i", I64, []), info("goes_on", BOOL, []), info("state", F, ["n", 3])],
    )
    nodes = [
        node("Sigmoid", ["other"], ["shift"]),
        node("Loop", ["trips", "true", "x"], ["y"], body=inner),
    ]
    made = model(
        nodes,
        [info("x", F, ["n", 3]), info("other", F, ["n", 3])],
        [info("y", F, ["n", 3])],
        {"scale": values(3), "trips": np.int64(3), "true": np.bool_(True)},
    )
    return made, [{"x": values(2, 3), "other": values(2, 3)}]


def loop_with_a_branch_inside():
    """Two levels: a branch in a loop reads an input that nothing else reads, and the loop's own counter."""
    then = body([node("Add", ["state", "deep"], ["then_out"])], [info("then_out", F, None)])
    other = body(
        [node("Cast", ["i"], ["count"], to=F), node("Sub", ["state", "count"], ["else_out"])],
        [info("else_out", F, None)],
    )
    inner = body(
        [
            node("Less", ["i", "two"], ["early"]),
            node("If", ["early"], ["state_out"], then_branch=then, else_branch=other),
            node("Identity", ["goes_on"], ["goes_on_out"]),
            node("Neg", ["state_out"], ["scan_out"]),
        ],
        [info("goes_on_out", BOOL, []), info("state_out", F, [3]), info("scan_out", F, [3])],
        [info("i", I64, []), info("goes_on", BOOL, []), info("state", F, [3])],
    )
    made = model(
        [node("Loop", ["trips", "", "x"], ["y", "each"], body=inner)],
        [info("x", F, [3]), info("deep", F, [3]), info("trips", I64, [])],
        [info("y", F, [3]), info("each", F, [None, 3])],
        {"two": np.int64(2)},
    )
    return made, [{"x": values(3), "deep": values(3), "trips": np.array(4)}]


def scan_that_captures():
    """`torch.scan` and tf2onnx's recurrent cells: the body reads weights from around it."""
    step = body(
        [
            node("MatMul", ["row", "kernel"], ["projected"]),
            node("Add", ["projected", "state"], ["sum"]),
            node("Tanh", ["sum"], ["state_out"]),
            node("Identity", ["state_out"], ["row_out"]),
        ],
        [info("state_out", F, [2, 3]), info("row_out", F, [2, 3])],
        [info("state", F, [2, 3]), info("row", F, [2, 4])],
    )
    nodes = [node("Scan", ["initial", "x"], ["last", "all"], body=step, num_scan_inputs=1)]
    made = model(
        nodes,
        [info("x", F, ["time", 2, 4])],
        [info("last", F, [2, 3]), info("all", F, ["time", 2, 3])],
        {"initial": np.zeros((2, 3), np.float32), "kernel": values(4, 3)},
    )
    return made, [{"x": values(5, 2, 4)}]


def function(name, inputs, outputs, nodes, attributes=(), domain="pkg.torch", overload="", defaults=(), opset=18):
    imports = [
        helper.make_opsetid("", opset),
        helper.make_opsetid("pkg.torch", 1),
        helper.make_opsetid("pkg.common", 1),
    ]
    made = helper.make_function(domain, name, inputs, outputs, nodes, imports, attributes, list(defaults))
    made.overload = overload
    return made


def _referring(op, inputs, outputs, attribute, refers_to, kind, **more):
    made = node(op, inputs, outputs, **more)
    made.attribute.append(onnx.AttributeProto(name=attribute, ref_attr_name=refers_to, type=kind))
    return made


def functions_of_functions():
    """PyTorch's older torch.export-based exporter: one function for each module, which calls functions of its library."""
    leaky = function(
        "aten_leaky_relu",
        ["x"],
        ["y"],
        [_referring("LeakyRelu", ["x"], ["y"], "alpha", "slope", onnx.AttributeProto.FLOAT)],
        ["slope"],
        "pkg.common",
    )
    softmax = function(
        "aten_softmax",
        ["x"],
        ["y"],
        [_referring("Softmax", ["x"], ["y"], "axis", "dim", onnx.AttributeProto.INT)],
        domain="pkg.common",
        defaults=[helper.make_attribute("dim", -1)],
    )
    block = function(
        "Block",
        ["x", "weight"],
        ["y"],
        [
            node("MatMul", ["x", "weight"], ["z"]),
            helper.make_node("aten_leaky_relu", ["z"], ["a"], domain="pkg.common", slope=0.25),
            helper.make_node("aten_softmax", ["a"], ["y"], domain="pkg.common"),
        ],
    )
    nodes = [
        helper.make_node("Block", ["x", "w1"], ["h"], "block.0", domain="pkg.torch"),
        helper.make_node("Block", ["h", "w2"], ["g"], "block.1", domain="pkg.torch"),
        helper.make_node("aten_softmax", ["g"], ["y"], "last", domain="pkg.common", dim=0),
    ]
    made = model(
        nodes,
        [info("x", F, ["batch", 4])],
        [info("y", F, ["batch", 4])],
        {"w1": values(4, 4), "w2": values(4, 4)},
        opset=18,
        functions=[block, leaky, softmax],
        domains=("pkg.torch", "pkg.common"),
    )
    return made, [{"x": values(2, 4)}, {"x": values(3, 4)}]


def functions_of_one_name():
    """IR 10: two functions of one name, told apart by their overload."""
    bodies = [
        function("Act", ["x"], ["y"], [node("Relu", ["x"], ["y"])]),
        function("Act", ["x"], ["y"], [node("Neg", ["x"], ["y"])], overload="1"),
    ]
    first, second = (helper.make_node("Act", [a], [b], b, domain="pkg.torch") for a, b in (("x", "h"), ("h", "y")))
    second.overload = "1"
    made = model(
        [first, second],
        [info("x", F, [2, 3])],
        [info("y", F, [2, 3])],
        opset=18,
        ir=10,
        functions=bodies,
        domains=("pkg.torch",),
    )
    return made, [{"x": values(2, 3)}]


def function_in_a_branch():
    """A function that only a branch calls, and that holds a branch itself, which reads the function's input."""
    then = body([node("Neg", ["x"], ["n"])], [info("n", F, None)])
    other = body([node("Identity", ["x"], ["p"])], [info("p", F, None)])
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Constant", [], ["zero"], value_float=0.0),
        node("Less", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    absolute = function("AbsSum", ["x"], ["y"], nodes)
    left = body([helper.make_node("AbsSum", ["h"], ["l"], domain="pkg.torch")], [info("l", F, None)])
    right = body([node("Identity", ["h"], ["r"])], [info("r", F, None)])
    outer = [
        node("Mul", ["x", "x0"], ["h"]),
        node("If", ["flag"], ["y"], then_branch=left, else_branch=right),
    ]
    made = model(
        outer,
        [info("x", F, ["n"]), info("flag", BOOL, [])],
        [info("y", F, ["n"])],
        {"x0": np.float32(2)},
        opset=18,
        functions=[absolute],
        domains=("pkg.torch",),
    )
    return made, [{"x": -np.abs(values(3)), "flag": np.array(True)}, {"x": values(4), "flag": np.array(False)}]


def constants_as_outputs():
    """An initializer, a Constant and an input are outputs of the model."""
    nodes = [
        node("Add", ["x", "anchors"], ["y"]),
        node("Constant", [], ["stride"], value=constant("", np.array([8, 16]))),
    ]
    made = model(
        nodes,
        [info("x", F, ["n", 2])],
        [info("y", F, ["n", 2]), info("anchors", F, [3, 2]), info("stride", I64, [2]), info("x", F, ["n", 2])],
        {"anchors": values(3, 2)},
    )
    return made, [{"x": values(3, 2)}, {"x": values(1, 2)}]


def nothing_but_an_input():
    """The output is the input: a module in evaluation mode whose only layer was Dropout."""
    made = model([node("Identity", ["x"], ["y"])], [info("x", F, ["n"])], [info("y", F, ["n"])])
    return made, [{"x": values(3)}]


def weights_as_inputs():
    """IR 3: every initializer is an input of the graph too (PyTorch 1.0, keep_initializers_as_inputs)."""
    weight, bias = values(3, 2, 3, 3), values(3)
    made = model(
        [node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4)],
        [info("x", F, [1, 2, 5, 5]), info("w", F, [3, 2, 3, 3]), info("b", F, [3])],
        [info("y", F, [1, 3, 5, 5])],
        {"w": weight, "b": bias},
        opset=9,
        ir=3,
    )
    return made, [{"x": values(1, 2, 5, 5)}]


def minus_one_dims():
    """Paddle's: free dims are written as -1, in the outputs and in between too."""
    made = model(
        [node("Conv", ["x", "w"], ["h"], pads=[1] * 4), node("Relu", ["h"], ["y"])],
        [info("x", F, [-1, 2, -1, -1])],
        [info("y", F, [-1, 3, -1, -1])],
        {"w": values(3, 2, 3, 3)},
        opset=11,
        ir=7,
    )
    made.graph.value_info.append(info("h", F, [-1, 3, -1, -1]))
    return made, [{"x": values(2, 2, 4, 5)}, {"x": values(1, 2, 7, 3)}]


def dims_called_question_mark():
    """Free dims of one name that says nothing: they need not be equal."""
    made = model(
        [node("Transpose", ["b"], ["t"], perm=[1, 0]), node("MatMul", ["a", "t"], ["y"])],
        [info("a", F, ["?", 4]), info("b", F, ["?", 4])],
        [info("y", F, ["?", "?"])],
    )
    return made, [{"a": values(2, 4), "b": values(3, 4)}]


def unused_inputs():
    """Paddle detection's: ``im_shape`` is an input that nothing reads."""
    made = model(
        [node("Mul", ["image", "scale_factor"], ["y"])],
        [info("im_shape", F, ["n", 2]), info("image", F, ["n", 4]), info("scale_factor", F, [])],
        [info("y", F, ["n", 4])],
        opset=11,
    )
    return made, [{"im_shape": values(2, 2), "image": values(2, 4), "scale_factor": np.array(0.5, np.float32)}]


def scalars():
    """tf2onnx's: inputs and outputs without axes."""
    made = model(
        [
            node("Mul", ["x", "rate"], ["scaled"]),
            node("ReduceMean", ["scaled"], ["y"], keepdims=0),
            node("Add", ["rate", "one"], ["z"]),
        ],
        [info("x", F, ["unk__1", 3]), info("rate", F, [])],
        [info("y", F, []), info("z", F, [])],
        {"one": np.float32(1)},
        opset=13,
    )
    rate = np.array(0.5, np.float32)
    rate.flags.writeable = False
    return made, [{"x": values(2, 3), "rate": rate}]


def numbers_of(dtype):
    """A model whose input and outputs are of one type: arithmetic in it where ONNX has that, else a Cast."""

    def make():
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        made = model(
            [node("Add", ["x", "one"], ["y"]), node("Cast", ["y"], ["z"], to=F)],
            [info("x", kind, ["n", 3])],
            [info("y", kind, ["n", 3]), info("z", F, ["n", 3])],
            {"one": np.ones(3, dtype)},
        )
        return made, [{"x": np.arange(6).astype(dtype).reshape(2, 3)}]

    return make


MODELS = {
    make.__name__: make
    for make in (
        if_that_captures, loop_that_captures, loop_with_a_branch_inside, scan_that_captures, functions_of_functions,
        functions_of_one_name, function_in_a_branch, constants_as_outputs, nothing_but_an_input, weights_as_inputs,
        minus_one_dims, dims_called_question_mark, unused_inputs, scalars, old_resize, old_axes, old_normalization, old_branches,
    )
}  # fmt: skip
DTYPES = ("float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
MODELS.update({f"numbers_of_{dtype}": numbers_of(dtype) for dtype in DTYPES})
