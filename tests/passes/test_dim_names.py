"""Names of the dims that a prepared model's outputs have, and what engines show of them."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.passes import PropagateConstants, prepare, to_ir
from pytrtplugins.passes.dim_names import derived_output_dims
from pytrtplugins.tensor import SymbolicDim
from tests.onnx_parts import parsed

RESIZE = 'a = Relu (x) y = Resize <mode = "linear"> (a, , twice)'
PLACES = "places = NonZero (x) y = Cast <to = 1> (places)"


def model(text, given, said, more=(), **constants):
    """Nodes from x to y, with the dims that the file says of both, and further inputs."""
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)]
    ends += [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in more]
    made = parsed(f"() => (float[] y) {{ {text} }}", 17, 9, **(constants or {"twice": np.float32([1, 1, 2, 2])}))
    made.graph.input.extend(ends)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, said))
    return made


def names(info):
    return [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]


@pytest.mark.parametrize(
    ("given", "said", "name"),
    [
        ("N", "Resize8_dim_0", "N"),  # as PyTorch's exporter calls it
        ("N", None, "N"),
        ("N", "N", "N"),
        ("unk__3", "unk__4", "unk__3"),
        ("batch-size", "(2 * a)", "batch-size"),
        (None, None, "x.0"),
        ("?", "?", "x.0"),
    ],
)
def test_free_dims_of_outputs_are_called_as_those_of_inputs(given, said, name):
    made = model(RESIZE, [given, 3, 8, 8], [said, 3, 16, 16])
    (x,), (y,) = ptp.build(made, engine="reference", progress=False).inputs, prepare(made).graph.output
    assert (x.dims, x.name) == ((SymbolicDim(name), 3, 8, 8), "x")
    assert names(y) == [name, 3, 16, 16]
    with ptp.build(made, engine="onnxruntime", progress=False).create_context() as context:
        assert context.run({"x": np.zeros((2, 3, 8, 8), np.float32)})["y"].shape == (2, 3, 16, 16)


def test_a_dim_that_follows_from_another_is_an_expression_of_it():
    (y,) = prepare(model(RESIZE, ["N", 3, 8, "W"], ["P", "Q", "R", "S"])).graph.output
    assert names(y) == ["N", 3, 16, "(W * 2)"]


def test_computed_bounds_and_pads_hide_no_name():
    """As in torchvision's ShuffleNet and Swin Transformer."""
    text = """s = Shape (x) c = Gather <axis = 0> (s, one) half = Div (c, two) part = Slice (x, zero, half, one)
        pads = ConstantOfShape <value = int64[1] {0}> (eight) y = Pad (part, pads)"""
    numbers = {"zero": 0, "one": 1, "two": 2, "eight": 8}
    constants = {name: np.int64([number]) for name, number in numbers.items()}
    (y,) = prepare(model(text, ["N", 4, 8, 8], ["Pad6_dim_0", "b", "c2", "d"], **constants)).graph.output
    assert names(y) == ["N", 2, 8, 8]


def test_a_dim_that_a_run_decides_keeps_its_name():
    (y,) = prepare(model(PLACES, ["N", 3, 8, 8], [4, "found"])).graph.output
    assert names(y) == [4, "found"]


def test_free_dims_of_two_inputs_have_two_names():
    made = model("y = MatMul (x, z)", [None, 3], [None, None], [("z", [3, None])])
    engine = ptp.build(made, engine="reference", progress=False)
    assert [each.dims for each in engine.inputs] == [(SymbolicDim("x.0"), 3), (3, SymbolicDim("z.1"))]
    assert engine.outputs[0].dims == (SymbolicDim("x.0"), SymbolicDim("z.1"))


def test_a_fixed_dim_that_is_declared_where_it_follows_an_input_is_free():
    """As PyTorch's exporters write it where `dynamic_axes` speaks of inputs alone."""
    (y,) = prepare(model(RESIZE, ["N", 3, 8, 8], [1, 3, 16, 16])).graph.output
    assert names(y) == ["N", 3, 16, 16]


def test_declared_names_are_told_from_those_that_follow():
    prepared = prepare(model(PLACES, ["N", 3, 8, 8], [4, "N"]))
    assert names(prepared.graph.output[0]) == [4, "N"]
    assert str(derived_output_dims(prepared)["y"][1]) != "N"
    assert [str(dim) for dim in derived_output_dims(prepare(model(RESIZE, ["N", 3, 8, 8], ["N", 3, 16, 16])))["y"]] == [
        *("N", "3", "16", "16")
    ]


def test_axes_in_any_order_give_the_dims_that_the_run_gives():
    """ONNX's rule for Squeeze of opset 1 takes sorted axes only, and the file declares what it says: four dims."""
    made = parsed("(float[5,1,5,1,1] x) => (float[a,b,c,d] y) { [squeeze] y = Squeeze <axes = [4, 1]> (x) }", 1, 9)
    assert names(prepare(made).graph.output[0]) == [5, 5, 1]
    with ptp.build(made, engine="reference", progress=False).create_context() as context:
        assert context.run({"x": np.zeros((5, 1, 5, 1, 1), np.float32)})["y"].shape == (5, 5, 1)


def test_names_behind_computed_shapes_are_those_that_each_node_gives():
    """As in a transformer: attention of heads that Reshape makes of computed sizes, in two layers."""
    layer = """s{i} = Shape (x{i}) n{i} = Slice (s{i}, zero, two, zero) p{i} = Concat <axis = 0> (n{i}, heads)
        h{i} = Reshape (x{i}, p{i}) q{i} = Transpose <perm = [0, 2, 1, 3]> (h{i}) k{i} = Transpose <perm = [0, 2, 3, 1]> (h{i})
        a{i} = MatMul (q{i}, k{i}) b{i} = Softmax (a{i}) c{i} = MatMul (b{i}, q{i}) d{i} = Transpose <perm = [0, 2, 1, 3]> (c{i})
        e{i} = Concat <axis = 0> (n{i}, all) f{i} = Reshape (d{i}, e{i}) x{j} = Add (f{i}, x{i}) """
    text = "x0 = Relu (x) " + layer.format(i=0, j=1) + layer.format(i=1, j=2) + "y = Relu (x2)"
    numbers = {"zero": [0], "two": [2], "heads": [2, 4], "all": [8]}
    transformer = model(
        text, ["N", "L", 8], ["A", "B", 8], **{name: np.int64(value) for name, value in numbers.items()}
    )
    full = prepare(transformer)
    assert names(full.graph.output[0]) == ["N", "L", 8]
    dims = []
    for inferred in ((), {info.name for info in full.graph.value_info}):
        propagated = to_ir(full, checked=True)
        PropagateConstants(inferred=inferred)(propagated)
        dims.append(
            {value.name: [str(dim) for dim in value.shape] for node in propagated.graph for value in node.outputs}
        )
    assert dims[0] == dims[1]
    assert dims[0]["c1"] == ["N", "2", "L", "4"]
