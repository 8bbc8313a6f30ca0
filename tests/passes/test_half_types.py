"""Which tensors, attributes and constants change their type in half precision, and where casts stand."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.errors import BuildError, PrecisionError
from pytrtplugins.passes.half import to_half
from pytrtplugins.tensor import DType
from tests.engines.operators import literal
from tests.onnx_parts import parsed

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def plain(text, *, dims="1,4,6,6", outputs="float[] y", opset=18, **constants):
    """A model as it stands, not prepared, with the types of its tensors."""
    return onnx.shape_inference.infer_shapes(
        parsed(f"(float[{dims}] x) => ({outputs}) {{ {text} }}", opset, 8, **constants)
    )


def product(*values):
    return plain("y = Mul (x, w)", dims=f"1,{len(values)}", w=np.float32(values))


def all_types(model):
    """Type of every tensor: inputs, outputs, constants, and those between."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    found = {
        info.name: info.type.tensor_type.elem_type for info in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    return found | {tensor.name: tensor.data_type for tensor in inferred.initializer}


def node_of(model, name):
    return next(node for node in model.graph.node if node.name == name)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("op", "floats", "opset"),
    [("Resize", (1, 2), 18), ("Upsample", (1,), 9), ("RoiAlign", (1,), 18), ("Mul", (), 18)],
)
def test_inputs_that_are_sizes_or_places_stay_float32(op, floats, opset, constant):
    values = {"one": np.ones(8 if op == "Resize" else 4, np.float32), "two": np.ones(4, np.float32)}
    if op == "RoiAlign":
        values = {"one": np.ones((1, 4), np.float32), "two": np.zeros(1, np.int64)}
    if op == "Mul":
        values = {"one": np.ones((1, 4, 6, 6), np.float32)}
    names = ["one", "two"][: 2 if op in ("Resize", "RoiAlign") else 1]
    first = "" if constant else " ".join(f"[{name}_abs] {name}_abs = Abs ({name})" for name in names)
    given = ", ".join(names if constant else (f"{name}_abs" for name in names))
    attributes = '<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">' if op == "Resize" else ""
    text = f"[n] n = Neg (x) {first} [op] r = {op} {attributes} ({', '.join(filter(None, ('n', given)))}) [last] y = Abs (r)"
    model = plain(text, opset=opset, **{name: values[name] for name in names})
    half = to_half(model, DType.FLOAT16)
    types, made = all_types(half), node_of(half, "op")
    expected = [HALF] + [FLOAT if index in floats else HALF for index in range(1, 3)]
    if op == "RoiAlign":
        expected[2] = INT64
    assert [types[name] for name in made.input] == expected[: len(made.input)]


def test_an_operator_of_that_name_in_another_domain_reads_half():
    model = plain("[op] h = else.Resize (x, s, s) [a] y = Abs (h)", s=np.float32([1, 1, 1, 1]))
    half = to_half(model, DType.FLOAT16)
    assert list(node_of(half, "op").input)[1:] == ["s_float16", "s_float16"]


@pytest.mark.parametrize(
    ("op", "attributes", "changed"),
    [
        ("Cast", {"to": FLOAT}, {"to": HALF}),
        ("Cast", {"to": INT64}, {"to": INT64}),
        ("EyeLike", {"dtype": FLOAT, "k": 1}, {"dtype": HALF, "k": 1}),
        ("EyeLike", {"dtype": INT64, "k": 1}, {"dtype": INT64, "k": 1}),
        ("Softmax", {"axis": 1}, {"axis": 1}),
        ("Gemm", {"transA": 1, "alpha": 1.0}, {"transA": 1, "alpha": 1.0}),
    ],
)
def test_types_in_attributes_change_and_other_numbers_do_not(op, attributes, changed):
    inputs = "x, x" if op == "Gemm" else "x"
    for domain, expected in (("", changed), ("elsewhere.", attributes)):
        model = plain(f"[op] h = {domain}{op} ({inputs}) [last] y = Cast <to = 1> (h)", dims="4,4")
        model.graph.node[0].attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        for keep, wanted in (((), expected), (("op",), attributes)):
            made = node_of(to_half(model, DType.FLOAT16, keep=keep), "op")
            assert {item.name: helper.get_attribute_value(item) for item in made.attribute} == wanted


@pytest.mark.parametrize(
    ("value", "kind"), [(np.float32([1]), HALF), (np.int64([1]), INT64), (np.float64([1]), TensorProto.DOUBLE)]
)
def test_constants_in_attributes_change_where_they_are_float32(value, kind):
    model = plain(
        "[shape] s = Shape (x) [op] h = ConstantOfShape (s) [cast] c = Cast <to = 1> (h) [last] y = Add (c, x)"
    )
    model.graph.node[1].attribute.add(name="value", type="TENSOR", t=numpy_helper.from_array(value, "v"))
    found = node_of(to_half(model, DType.FLOAT16), "op").attribute[0].t
    assert (found.data_type, found.name) == (kind, "v")
    assert numpy_helper.to_array(found) == [1]
    kept = node_of(to_half(model, DType.FLOAT16, keep=["op"]), "op").attribute[0].t
    assert kept == numpy_helper.from_array(value, "v")


@pytest.mark.parametrize(
    ("attributes", "lifted"),
    [
        ({"value": numpy_helper.from_array(np.float32([2, 2, 2, 2, 2, 2]))}, True),
        ({"value_float": 2.0}, True),
        ({"value_floats": [2.0] * 6}, True),
        ({"value": numpy_helper.from_array(np.int64([2]))}, False),
        ({"value": numpy_helper.from_array(np.float64([2]))}, False),
        ({"value_int": 2}, False),
    ],
)
def test_constants_of_nodes_become_initializers_where_they_are_float32(attributes, lifted):
    text = """[before] unread = Constant <value_int = 1> () [constant] two = Constant () [like] l = CastLike (two, x)
        [last] y = Mul (l, x) [output] z = Constant <value_float = 1.0> () [other] z2 = elsewhere.Constant <value_float = 1.0> ()"""
    model = parsed(f"(float[1,4,6,6] x) => (float[] y, float[] z) {{ {text} }}", ir_version=8)
    model.graph.node[1].attribute.extend(helper.make_attribute(*item) for item in attributes.items())
    half = to_half(onnx.shape_inference.infer_shapes(model), DType.FLOAT16)
    left = [node.name for node in half.graph.node if node.op_type == "Constant"]
    assert left == ["before", *([] if lifted else ["constant"]), "output", "other"]
    names = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
    assert names == ({"two_float16": HALF} if lifted else {})


def test_the_largest_float16_is_taken_and_infinity_too():
    for values in ([65504, -65504, np.inf, np.nan], [65504], [np.inf], [-np.inf], [np.nan]):
        (found,) = to_half(product(*values), DType.FLOAT16).graph.initializer
        assert found.name == "w_float16"
        np.testing.assert_array_equal(numpy_helper.to_array(found), np.float16(values))
    for value in (-65505, 65536, -1e6, np.nextafter(np.float32(65504), np.float32(1e6))):
        model = product(value, 0, np.inf, 1)
        with pytest.raises(PrecisionError, match=r"'w' holds (6|1e)") as caught:
            to_half(model, DType.FLOAT16)
        assert caught.value.tensor == "w"
    (found,) = to_half(model, DType.FLOAT16, refuse_overflow=False).graph.initializer
    assert numpy_helper.to_array(found)[0] == np.float16(65504)
    (found,) = to_half(product(1e6), DType.FLOAT16, refuse_overflow=False).graph.initializer
    assert np.isinf(numpy_helper.to_array(found)).all()


def test_a_constant_without_values_is_written():
    half = to_half(plain("y = Concat <axis = 0> (x, w)", w=np.zeros((0, 4, 6, 6), np.float32)), DType.FLOAT16)
    assert [tuple(tensor.dims) for tensor in half.graph.initializer] == [(0, 4, 6, 6)]


def layered():
    """x → a → b → c and d → y; b, c and d are kept in float32."""
    text = """[a] a = Mul (x, w) b = Mul (a, w) [c] c = Neg (b) [d] d = Sub (c, a) [e] e = Add (d, a) [y] y = Add (e, b)
        [z] z = Abs (y)"""
    values = {"w": np.full((1, 1, 6, 6), 0.1, np.float32), "out": np.float32([3]), "unread": np.float32([1])}
    model = plain(text, outputs="float[] y, float[] z, float[] out", **values)
    model.graph.output[2].type.tensor_type.shape.dim.add(dim_value=1)
    return model


def test_casts_stand_once_for_each_tensor_around_layers_that_are_kept():
    half = to_half(layered(), DType.FLOAT16, keep=["b", "c", "d"])
    onnx.checker.check_model(half, full_check=True)
    casts = [(list(node.input), list(node.output), node.name) for node in half.graph.node if node.op_type == "Cast"]
    assert casts == [
        (["x"], ["x_float16"], "x_float16_Cast"),
        (["a"], ["a_float32"], "a_float32_Cast"),
        (["d"], ["d_float16"], "d_float16_Cast"),
        (["b"], ["b_float16"], "b_float16_Cast"),
        (["y_float16"], ["y"], "y_Cast"),
        (["z_float16"], ["z"], "z_Cast"),
    ]
    types = all_types(half)
    for kind, names in (
        (HALF, ("a", "e", "x_float16", "b_float16", "w_float16", "y_float16")),
        (FLOAT, ("b", "c", "d", "a_float32", "w", "y", "out")),
    ):
        assert {name: types[name] for name in names} == dict.fromkeys(names, kind)
    assert sorted(tensor.name for tensor in half.graph.initializer) == ["out", "w", "w_float16"]
    described = {info.name: info.type.tensor_type for info in half.graph.value_info}
    for name in ("x_float16", "a_float32", "b_float16", "d_float16"):
        assert [dim.dim_value for dim in described[name].shape.dim] == [1, 4, 6, 6]
        assert described[name].elem_type == types[name]
    assert node_of(half, "z").input[0] == "y_float16"
    x = np.random.default_rng(0).random((1, 4, 6, 6), dtype=np.float32)
    for expected, found in zip(literal(layered(), {"x": x}), literal(half, {"x": x}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=1e-3)


def test_constants_of_kept_layers_are_stored_in_half_on_request():
    half = to_half(layered(), DType.FLOAT16, keep=["b", "c"], half_weights=["b", "a"])
    made = {name: node for node in half.graph.node for name in node.output}
    given = made["b"].input[1]
    assert (made[given].op_type, list(made[given].input)) == ("Cast", ["w_float16"])
    assert made["a"].input[1] == "w_float16"
    assert [tensor.name for tensor in half.graph.initializer if tensor.name.startswith("w")] == ["w_float16"]
    assert made["b"].input[0] == "a_float32"


def test_a_model_is_written_once_and_says_in_which_type():
    model = layered()
    half = to_half(model, DType.FLOAT16)
    assert {entry.key: entry.value for entry in half.metadata_props} == {"pytrtplugins.half": "float16"}
    assert to_half(half, DType.FLOAT16) == half
    model.metadata_props.add(key="another", value="note")
    assert to_half(model, DType.FLOAT16).graph == half.graph


def test_names_that_are_taken_are_avoided_in_half():
    half = to_half(plain("[x_float16_2] x_float16 = Abs (x) [last] y = Neg (x_float16)"), DType.FLOAT16)
    onnx.checker.check_model(half, full_check=True)
    assert half.graph.node[0].output[0] == "x_float16_3"
    x = np.full((1, 4, 6, 6), -2, np.float32)
    np.testing.assert_array_equal(literal(half, {"x": x})[0], -2)


@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_only_onnxs_subgraphs_are_refused(op):
    model = plain(f"[inner] h = elsewhere.{op} (x) [last] y = Neg (h)")
    half = to_half(model, DType.FLOAT16)
    assert [node.op_type for node in half.graph.node] == ["Cast", op, "Neg", "Cast"]
    model.graph.node[0].domain = ""
    with pytest.raises(BuildError, match=f"node 'inner': {op} holds a subgraph, which is not written in bfloat16"):
        to_half(model, DType.BFLOAT16)
