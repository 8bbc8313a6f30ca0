"""Nodes of old opsets compute after the conversion what they computed before: onnxruntime's and ONNX's own values."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper

from pytrtplugins.errors import ModelError
from pytrtplugins.passes import normalize, prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import F, info, model, node, values
from tests.engines.operators import literal


def network(item, inputs, opset, constants=()):
    infos = [info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in inputs.items()]
    return model([item], infos, [info("y", F, None)], constants, opset=opset, ir=4)


ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}
PLACES = [(1, (3, 2)), (1, (3,)), (0, (1,)), (0, (1, 3)), (2, (2,)), (3, (2,)), (-3, (3,)), (None, (2, 2)), (None, ())]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_second_operands_before_opset_7_lie_along_their_axis(op, constant):
    for (axis, dims), opset in itertools.product(PLACES, (1, 6)):
        a, b = abs(values(1, 3, 2, 2)), np.asarray(values(*dims))
        start = 4 - b.ndim if axis is None else axis % 4
        expected = ARITHMETIC[op](a, b.reshape(b.shape + (1,) * (4 - start - b.ndim)))
        item = node(op, ["a", "b"], ["y"], broadcast=1, **({} if axis is None else {"axis": axis}))
        inputs = {"a": a} if constant else {"a": a, "b": b}
        old = network(item, inputs, opset, {"b": b} if constant else ())
        (found,) = literal(normalize(old), inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_second_operands_lie_along_their_axis_on_tensors_of_free_dims(op, dtype):
    """ONNX's converter refuses free dims there, and one of them is enough."""
    a, b = abs(values(4, 3, 5, 4)).astype(dtype), values(5).astype(dtype)
    for opset, dims in itertools.product((1, 6), (["N", "C", "H", "W"], ["N", 3, 5, 4])):
        item = node(
            op,
            ["a", "b"],
            ["y"],
            broadcast=1,
            axis=2,
            **({"consumed_inputs": [0]} if opset == 1 and op != "Pow" else {}),
        )
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        old = model([item], [info("a", kind, dims)], [info("y", kind, None)], {"b": b}, opset=opset, ir=4)
        expected = ARITHMETIC[op](a.astype(np.float32), b.astype(np.float32).reshape(5, 1))
        for found in (literal(normalize(old), {"a": a})[0], run_on_host(prepare(old), {"a": a})[0]["y"]):
            np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype is np.float32 else 4e-3, equal_nan=True)


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal", "Less", "Greater"])
def test_second_operands_of_comparisons_lie_along_their_axis_too(op):
    number = op in ("Less", "Greater")
    a, b = (
        values(1, 3, 2, 2).round() if number else values(1, 3, 2, 2) > 0,
        values(3).round() if number else values(3) > 0,
    )
    function = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.get(op) or getattr(np, op.lower())
    old = network(node(op, ["a", "b"], ["y"], broadcast=1, axis=1), {"a": a, "b": b}, 6)
    old.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    np.testing.assert_array_equal(literal(normalize(old), {"a": a, "b": b})[0], function(a, b.reshape(3, 1, 1)))


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_hardmax_before_opset_13_takes_the_largest_of_all_axes_from_one_on(axis):
    x = values(2, 3, 4)
    old = network(node("Hardmax", ["x"], ["y"], **({} if axis is None else {"axis": axis})), {"x": x}, 11)
    np.testing.assert_array_equal(literal(normalize(old), {"x": x})[0], literal(old, {"x": x})[0])


def test_an_upsample_before_another_node_may_have_computed_scales():
    x, scales = values(1, 1, 2, 3), np.array([1, 1, 2, 1.5], np.float32)
    nodes = [node("Upsample", ["x", "s"], ["up"], mode="nearest"), node("Relu", ["up"], ["y"])]
    infos = [info("x", F, x.shape), info("s", F, [4])]
    old = model(nodes, infos, [info("y", F, None)], opset=9, ir=4)
    inputs = {"x": x, "s": scales}
    np.testing.assert_array_equal(literal(normalize(old), inputs)[0], literal(old, inputs)[0])


def test_an_axis_along_an_operand_of_unknown_rank_is_refused():
    old = network(node("Add", ["a", "b"], ["y"], broadcast=1, axis=1), {"a": values(2, 3), "b": values(3)}, 6)
    old.graph.input[1].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match=r"(?s)node 'Add_y' \(Add\).*the rank of 'b' is unknown.*Do: ") as caught:
        normalize(old)
    assert caught.value.facts["tensor"] == "b"


@pytest.mark.parametrize("opset", [2, 9, 10])
@pytest.mark.parametrize("mode", ["reflect", "edge", "constant"])
def test_pads_of_old_opsets_have_a_value_in_every_mode(mode, opset):
    x = values(1, 1, 3, 4)
    old = network(node("Pad", ["x"], ["y"], mode=mode, value=0.5, pads=[0, 0, 1, 1, 0, 0, 1, 2]), {"x": x}, opset)
    fill = {"constant_values": 0.5} if mode == "constant" else {}
    expected = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 2)), mode=mode, **fill)
    np.testing.assert_array_equal(literal(normalize(old), {"x": x})[0], expected)


SCALES = [(1, 1, 2, 2), (1, 1, 1.7, 3.3), (1, 1, 0.6, 0.6), (1, 1, 1.7, 0.6), (1, 1, 0.3, 2)]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", SCALES)
def test_resizes_before_opset_11_map_coordinates_as_they_did(mode, scales):
    x = values(1, 2, 5, 7)
    forms = [(10, node("Resize", ["x", "s"], ["y"], mode=mode))]
    if min(scales) >= 1:
        forms += [(9, node("Upsample", ["x", "s"], ["y"], mode=mode))]
        forms += [(7, node("Upsample", ["x"], ["y"], mode=mode, scales=[float(scale) for scale in scales]))]
    for opset, item in forms:
        old = network(item, {"x": x}, opset, {"s": np.float32(scales)} if opset > 7 else ())
        (expected,), (found,) = literal(old, {"x": x}), literal(normalize(old), {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("roi", [np.float32([]), np.float32([0, 0, 0, 0, 1, 1, 1, 1])])
def test_a_resize_by_sizes_loses_its_empty_scales_whatever_its_region_is(roi):
    x, constants = values(1, 1, 2, 3), {"roi": roi, "s": np.float32([]), "n": np.int64([1, 1, 4, 6])}
    old = network(node("Resize", ["x", "roi", "s", "n"], ["y"]), {"x": x}, 11, constants)
    newer = normalize(old)
    (resize,) = (item for item in newer.graph.node if item.op_type == "Resize")
    assert resize.input[2] == ""
    np.testing.assert_array_equal(literal(newer, {"x": x})[0], x.repeat(2, 2).repeat(2, 3))


def test_nearest_neighbours_by_computed_scales_are_refused():
    inputs = {"x": values(1, 1, 2, 2), "s": np.float32([1, 1, 2, 2])}
    with pytest.raises(ModelError, match=r"(?s)node 'Resize_y' \(Resize\).*scales that are computed.*Do: "):
        normalize(network(node("Resize", ["x", "s"], ["y"]), inputs, 10))
    linear = network(node("Resize", ["x", "s"], ["y"], mode="linear"), inputs, 10)
    np.testing.assert_array_equal(literal(normalize(linear), inputs)[0], literal(linear, inputs)[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_bounds_of_old_clips_have_the_type_of_what_they_bound(dtype):
    x = np.linspace(-2, 9, 6, dtype=dtype)
    old = network(node("Clip", ["a"], ["y"], min=0.5, max=6.0), {"x": x}, 6)
    old.graph.node.insert(0, node("Neg", ["x"], ["a"]))
    old.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    (found,) = literal(normalize(old), {"x": x})
    np.testing.assert_array_equal(found, (-x).clip(0.5, 6))
    assert found.dtype == dtype


def converted(item, inputs, opset, constants=()):
    return onnx.version_converter.convert_version(network(item, inputs, opset, constants), 13)


def test_the_converter_of_onnx_still_needs_these_forms_rewritten():
    """Each fails once the library converts the form right: then its rewriting can go."""
    x = values(1, 1, 3, 3)
    resize = converted(node("Resize", ["x", "s"], ["y"], mode="linear"), {"x": x}, 10, {"s": np.float32([1, 1, 2, 2])})
    assert "coordinate_transformation_mode" not in {item.name for item in resize.graph.node[-1].attribute}
    pad = converted(node("Pad", ["x"], ["y"], mode="edge", value=0.0, pads=[0, 0, 1, 1, 0, 0, 1, 1]), {"x": x}, 10)
    assert "value" in {item.name for item in pad.graph.node[-1].attribute}
    clip = converted(node("Clip", ["x"], ["y"], min=0.0, max=6.0), {"x": x.astype(np.float16)}, 6)
    bounds = [item.attribute[0].t.data_type for item in clip.graph.node if item.op_type == "Constant"]
    assert bounds == [onnx.TensorProto.FLOAT] * 2
    inputs = {"x": x.repeat(3, 1), "b": values(3)}
    add = converted(node("Add", ["x", "b"], ["y"], broadcast=1, axis=1), inputs, 6)
    axes = next(item.input[1] for item in add.graph.node if item.op_type == "Unsqueeze")
    (tensor,) = (item.attribute[0].t for item in add.graph.node if item.output[0] == axes)
    assert onnx.numpy_helper.to_array(tensor).tolist() != [1, 2]  # behind the dims of b
