"""The sizes of pools that round up: what onnxruntime gives, and not what ONNX's inference says before opset 22."""

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.model.decompose import infer_shapes
from pytrtplugins.validation import infer, inference, pooling

POOLS = ("AveragePool", "LpPool", "MaxPool")


def sizes(info):
    return [dim.dim_value or dim.dim_param for dim in info.type.tensor_type.shape.dim]


def pools(*nodes, opset=18, dims=(1, 2, 8, 9), outputs=1):
    """A network of pools, one behind the other; of each what `helper.make_node` takes."""
    made = [helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], **attributes) for i, (op, attributes) in enumerate(nodes)]
    inputs = [helper.make_tensor_value_info("t0", TensorProto.FLOAT, dims)]
    results = [helper.make_empty_tensor_value_info(f"t{len(nodes) - index}") for index in range(outputs)]
    graph = helper.make_graph(made, "pools", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"t0": x})


def up(kernel, stride, pads, **attributes):
    return {"ceil_mode": 1, "kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads, **attributes}


@pytest.mark.parametrize("op", POOLS)
@pytest.mark.parametrize("opset", [13, 18, 21, 22])
def test_sizes_are_onnxruntimes(op, opset):
    wrong = 0
    for kernel, stride, pads in itertools.product((1, 2, 3), (1, 2, 3), ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0])):
        if max(pads) >= kernel or (op == "LpPool" and opset < 18):
            continue
        for height in (7, 8, 9):
            model = pools((op, up(kernel, stride, pads)), opset=opset, dims=(1, 2, height, 10))
            x = np.random.default_rng(0).standard_normal((1, 2, height, 10)).astype(np.float32)
            (wanted,) = run(model, x)
            found = infer_shapes(model)
            assert sizes(found.graph.output[0]) == list(wanted.shape), (kernel, stride, pads, height)
            assert found.graph.node[0] == model.graph.node[0]
            wrong += sizes(onnx.shape_inference.infer_shapes(model).graph.output[0]) != list(wanted.shape)
    assert (wrong > 0) == (opset < 22 and not (op == "LpPool" and opset < 18))  # else nothing is tested


@pytest.mark.parametrize("claimed", [False, True])
def test_what_follows_has_the_right_sizes_too_whatever_the_model_says(claimed):
    plain = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}
    model = pools(
        ("MaxPool", up(2, 2, [1, 1, 1, 1])), ("AveragePool", plain), ("MaxPool", up(2, 2, [1] * 4)), outputs=2
    )
    if claimed:
        model = onnx.shape_inference.infer_shapes(model)
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 9)).astype(np.float32)
    last, middle = run(
        model if not claimed else pools(*((n.op_type, attributes(n)) for n in model.graph.node), outputs=2), x
    )
    found = infer_shapes(model)
    assert [sizes(info) for info in found.graph.output] == [list(last.shape), list(middle.shape)]
    assert [sizes(info) for info in found.graph.value_info if info.name == "t1"] == [[1, 2, 5, 5]]


def test_many_pools_take_few_rounds(monkeypatch):
    """Each round makes all sizes right that are known: as many rounds as pools follow each other."""
    rounds = []
    monkeypatch.setattr(
        inference, "_infer", lambda model, _infer=inference._infer, **how: rounds.append(1) or _infer(model, **how)
    )
    chain = [("MaxPool", up(2, 2, [1] * 4))] * 3
    model = pools(*chain, dims=(1, 2, 33, 33))
    for index in range(100):
        node = model.graph.node.add()
        node.CopyFrom(model.graph.node[0])
        node.output[0] = f"other{index}"
    x = np.zeros((1, 2, 33, 33), np.float32)
    found = infer(model)
    assert sizes(found.graph.output[0]) == list(run(pools(*chain, dims=(1, 2, 33, 33)), x)[0].shape)
    assert list(found.graph.node) == list(model.graph.node)
    assert len(rounds) <= 2 * (1 + len(chain))


def attributes(node):
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_engines_declare_the_sizes_that_they_give(engine):
    model = pools(("MaxPool", up(2, 2, [1] * 4)), dims=("N", 2, 8, 9))
    x = np.random.default_rng(0).standard_normal((3, 2, 8, 9)).astype(np.float32)
    with ptp.build(model, engine=engine).create_context() as context:
        found = context.run({"t0": x})["t1"]
        assert [desc.dims[1:] for desc in context.engine.outputs] == [found.shape[1:]] == [(2, 5, 5)]
    np.testing.assert_array_equal(found, run(model, x)[0])


def test_padding_that_is_written_out_is_no_padding_that_a_pool_chooses():
    model = pools(("MaxPool", up(3, 2, [0] * 4, auto_pad="NOTSET")))
    assert sizes(infer_shapes(model).graph.output[0]) == [1, 2, 4, 4]


@pytest.mark.parametrize(("size", "kernel", "stride", "pads", "dilation", "count"), [
    (8, 2, 2, (1, 1), 1, 5), (9, 2, 2, (1, 1), 1, 5), (7, 3, 2, (0, 0), 1, 3), (8, 3, 2, (0, 0), 1, 4), (5, 1, 3, (0, 0), 1, 2),
    (4, 1, 3, (0, 0), 1, 2),
    (3, 1, 3, (0, 1), 1, 1), (9, 2, 3, (0, 0), 3, 3), (8, 2, 3, (0, 0), 3, 3), (3, 3, 1, (0, 0), 1, 1),
    (2, 3, 1, (0, 0), 1, None), (2, 3, 1, (0, 1), 1, 1),
])  # fmt: skip
def test_windows_are_counted_by_the_formula_of_the_specification(size, kernel, stride, pads, dilation, count):
    """ceil((size + padding - reach) / stride) + 1, without one that begins in the padding behind."""
    attributes = {"ceil_mode": 1, "kernel_shape": [kernel], "strides": [stride], "pads": pads, "dilations": [dilation]}
    node = helper.make_node("MaxPool", ["x"], ["y"], **attributes)
    x = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 1, size])
    windows = pooling.last_windows(node, {"x": x})
    assert windows is None if count is None else [window.count for window in windows] == [count]
    if count is not None:
        plain = pooling.without_ceil_mode(node, {"x": x})
        found = onnx.shape_inference.infer_node_outputs(onnx.defs.get_schema("MaxPool", 18, ""), plain, {"x": x}, {})
        assert found["y"].tensor_type.shape.dim[2].dim_value == count
        (window,) = windows
        reach = dilation * (kernel - 1) + 1
        assert (window.reach, window.stride, window.size, window.before, window.behind) == (reach, stride, size, *pads)
        assert window.ends_behind == (window.begin + reach > size + sum(pads))


@pytest.mark.parametrize("name", ["strides", "dilations", "pads", "kernel_shape"])
def test_pools_with_another_number_of_values_than_axes_have_no_windows(name):
    attributes: dict[str, Any] = {
        "ceil_mode": 1,
        **{key: [2, 2] for key in ("kernel_shape", "strides", "dilations")},
        "pads": [0] * 4,
    }
    x = {"x": helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 1, 8, 8])}
    assert pooling.last_windows(helper.make_node("MaxPool", ["x"], ["y"], **attributes), x)
    for dims in ([1, 1, 8], [1, 1, 8, 8, 8]):
        other = {"x": helper.make_tensor_type_proto(TensorProto.FLOAT, dims)}
        assert pooling.last_windows(helper.make_node("MaxPool", ["x"], ["y"], **attributes), other) is None
    for values in (attributes[name][:-1], [*attributes[name], 1]):
        assert (
            pooling.last_windows(helper.make_node("MaxPool", ["x"], ["y"], **{**attributes, name: values}), x) is None
        )


def test_free_sizes_stay_free():
    model = pools(("MaxPool", up(2, 2, [1] * 4)), dims=("N", 2, "H", 9))
    assert sizes(infer_shapes(model).graph.output[0])[:2] == ["N", 2]


@pytest.mark.parametrize(
    "attributes",
    [
        {"ceil_mode": 1, "kernel_shape": [2, 2], "strides": [0, 0]},
        {"ceil_mode": 1, "kernel_shape": [20, 20]},
        {"ceil_mode": 1, "kernel_shape": [2, 2, 2]},
        {"ceil_mode": 1, "kernel_shape": [2, 2], "pads": [1]},
    ],
)
def test_attributes_that_make_no_sense_are_left_to_onnx(attributes):
    model = pools(("MaxPool", attributes))
    try:
        wanted = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        with pytest.raises(ptp.ModelError):
            infer(model)
    else:
        if not wanted.graph.output[0].type.tensor_type.elem_type:  # which is known, and the dims are not
            wanted.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        assert infer(model) == wanted


UP = {"ceil_mode": 1, "kernel_shape": [2, 2]}


@pytest.mark.parametrize(
    ("op_type", "domain", "attributes", "rounds", "ignores"),
    [
        *(
            (name, domain, UP, True, False)
            for name in ("AveragePool", "LpPool", "MaxPool")
            for domain in ("", "ai.onnx")
        ),
        ("MaxPool", "acme", UP, False, False),
        ("Conv", "", UP, False, False),
        ("MaxPool", "", {**UP, "ceil_mode": 0}, False, False),
        ("MaxPool", "", {"kernel_shape": [2, 2]}, False, False),
        ("MaxPool", "", {**UP, "auto_pad": "NOTSET"}, True, False),
        ("MaxPool", "", {**UP, "auto_pad": "VALID"}, False, True),
        ("MaxPool", "acme", {**UP, "auto_pad": "VALID"}, False, False),
    ],
)
def test_ceil_mode_counts_for_pools_of_onnx_that_do_not_pad_themselves(op_type, domain, attributes, rounds, ignores):
    pool = helper.make_node(op_type, ["x"], ["y"], domain=domain, **attributes)
    assert (pooling.rounds_up(pool), pooling.ignores_ceil_mode(pool)) == (rounds, ignores)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", range(5, 10))
def test_padding_that_a_pool_chooses_gives_as_many_windows_as_the_specification_says(auto_pad, size):
    attributes = {"ceil_mode": 1, "auto_pad": auto_pad, "kernel_shape": [2, 2], "strides": [3, 3]}
    model = pools(("AveragePool", attributes), opset=19, dims=(1, 2, size, 6))
    begins = size - 1 if auto_pad == "VALID" else size
    assert sizes(infer_shapes(model).graph.output[0]) == [1, 2, -(-begins // 3), 2]


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("engine", ["reference", "onnxruntime", "cpu"])
def test_ceil_mode_has_no_part_in_padding_that_a_pool_chooses_itself(auto_pad, engine):
    attributes = {"ceil_mode": 1, "auto_pad": auto_pad, "kernel_shape": [2, 1], "strides": [3, 2]}
    model = pools(("AveragePool", attributes), opset=19, dims=(1, 2, 6, 6))
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 6)).astype(np.float32)
    (wanted,) = run(model, x)
    assert sizes(infer_shapes(model).graph.output[0]) == list(wanted.shape)
    with ptp.build(model, engine=engine).create_context() as context:
        np.testing.assert_allclose(context.run({"t0": x})["t1"], wanted, rtol=1e-6)
