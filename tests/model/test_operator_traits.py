"""Traits of operators, compared with ONNX's schemas and shape inference, and with onnxruntime."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from pytrtplugins.model.operator_traits import RECURRENT, TRAITS, Trait, operators

OPSET = 24
KINDS = {"And": bool, "Or": bool, "Xor": bool, "Not": bool, "BitwiseNot": np.int32, "BitwiseAnd": np.int32,
         "BitwiseOr": np.int32, "BitwiseXor": np.int32, "BitShift": np.uint32}  # fmt: skip
ATTRIBUTES: dict[str, dict[str, object]] = {
    "BitShift": {"direction": "LEFT"},
    "Mod": {"fmod": 1},
    "Cast": {"to": TensorProto.FLOAT16},
    "DepthToSpace": {"blocksize": 2},
    "SpaceToDepth": {"blocksize": 2},
    "MaxPool": {"kernel_shape": [2, 2]},
    "Concat": {"axis": 1},
    "Compress": {"axis": 0},
    "Split": {"axis": 1},
}
DATA = np.random.default_rng(3).permutation(2 * 4 * 4 * 6).astype(np.float32).reshape(2, 4, 4, 6) / 64
OTHERS: dict[str, list[np.ndarray | None]] = {
    "Expand": [np.array([3, 2, 4, 4, 6])],
    "Gather": [np.array([1, 0, 1])],
    "GatherElements": [np.zeros((1, 4, 4, 6), np.int64)],
    "GatherND": [np.array([[1, 2], [0, 3]])],
    "Reshape": [np.array([4, 48])],
    "Resize": [None, np.array([1, 1, 2, 0.5], np.float32)],
    "Slice": [np.array([1]), np.array([3]), np.array([2])],
    "Split": [np.array([3, 1])],
    "Squeeze": [np.array([0])],
    "Tile": [np.array([1, 2, 1, 3])],
    "Unsqueeze": [np.array([0, 3])],
}


def run(op: str, *arrays: np.ndarray | None, outputs: int = 1, **attributes: object) -> list[np.ndarray]:
    """What onnxruntime computes without optimizations."""
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(arrays)]
    given = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True) if array is not None}
    node = helper.make_node(op, names, [f"y{index}" for index in range(outputs)], **attributes)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(name) for name in node.output])
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, given)


def inputs_of(op: str) -> tuple[list[np.ndarray | None], dict[str, object]]:
    arrays: list[np.ndarray | None] = [DATA[:1] if op == "Squeeze" else DATA, *OTHERS.get(op, [])]
    return arrays, ATTRIBUTES.get(op, {})


def test_operators_are_onnxs():
    assert all(onnx.defs.has(name) for name in TRAITS)
    assert all(TRAITS.values())
    assert operators(Trait.ACTIVATION | Trait.RECTIFIER) == {"Clip", "Relu"}


@pytest.mark.parametrize("op", sorted(operators(Trait.UNARY)))
def test_unary_operators_compute_each_element_by_itself(op):
    kind = KINDS.get(op, np.float32)
    x = np.linspace(-0.9, 0.9, 24).reshape(4, 6) if kind is np.float32 else np.arange(24).reshape(4, 6)
    x = (x + 2 if op == "Acosh" else abs(x) if op in ("Log", "Sqrt") else x).astype(kind)
    (y,), (moved,) = (run(op, array, **ATTRIBUTES.get(op, {})) for array in (x, np.ascontiguousarray(x[::-1].T)))
    assert y.shape == x.shape
    np.testing.assert_array_equal(moved, y[::-1].T)


def test_activations_are_those_that_networks_have_between_layers():
    assert operators(Trait.ACTIVATION) == {
        *("Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu", "Selu"),
        *("Sigmoid", "Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu"),
    }


def test_no_operator_of_one_tensor_whose_dims_the_result_has_is_forgotten():
    """As ONNX's inference says; the others look at neighbours, draw numbers, or take something else than numbers."""
    others = {"OptionalGetElement", "RegexFullMatch"}
    found = {"Cast", "Clip"}  # which have a type, and bounds
    for schema in onnx.defs.get_all_schemas():
        one = (schema.min_input, schema.max_input, schema.max_output) == (1, 1, 1)
        if schema.domain or schema.deprecated or not one or any(each.required for each in schema.attributes.values()):
            continue
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(KINDS.get(schema.name, np.float32)))
        x, y = helper.make_tensor_value_info("x", kind, (2, 3, 4)), helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph([helper.make_node(schema.name, ["x"], ["y"])], "g", [x], [y])
        dims = onnx.shape_inference.infer_shapes(helper.make_model(graph)).graph.output[0].type.tensor_type.shape.dim
        if [dim.dim_value for dim in dims] == [2, 3, 4]:
            found.add(schema.name)
    further = {"CastLike", "CumProd", "CumSum", "Dropout", "Trilu"}  # they have further inputs
    unseen = {"LRN", "MeanVarianceNormalization"}  # one has a size that is required, the other is a function
    assert found - others | further | unseen == operators(Trait.KEEPS_DIMS)
    neighbours = {"Hardmax", "LogSoftmax", "LpNormalization", "Softmax"}
    assert found - others - operators(Trait.RANDOM) - neighbours == operators(Trait.UNARY)


@pytest.mark.parametrize("op", ["CastLike", "CumProd", "CumSum", "Dropout", "Trilu"])
def test_further_inputs_change_no_dims(op):
    dims = (5, 1, 7) if op == "CastLike" else ()
    kind = TensorProto.FLOAT if op in ("CastLike", "Dropout") else TensorProto.INT64
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, DATA.shape),
        helper.make_tensor_value_info("other", kind, dims),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "other"], ["y"])], "g", infos, [helper.make_empty_tensor_value_info("y")]
    )
    shape = onnx.shape_inference.infer_shapes(helper.make_model(graph)).graph.output[0].type.tensor_type.shape
    assert tuple(dim.dim_value for dim in shape.dim) == DATA.shape


@pytest.mark.parametrize("op", sorted(operators(Trait.BROADCASTS)))
def test_operators_broadcast(op):
    a, b = np.arange(1, 5).reshape(4, 1), np.arange(1, 4)
    arrays = [array.astype(KINDS.get(op, np.float32)) for array in (a, b)]
    if op == "Where":
        arrays.insert(0, np.array([[[True]], [[False]]]))
    (y,) = run(op, *arrays, **ATTRIBUTES.get(op, {}))
    full = np.broadcast_shapes(*(array.shape for array in arrays))
    assert y.shape == full
    (same,) = run(
        op, *(np.ascontiguousarray(np.broadcast_to(array, full)) for array in arrays), **ATTRIBUTES.get(op, {})
    )
    np.testing.assert_array_equal(same, y)


@pytest.mark.parametrize("op", sorted(operators(Trait.KEEPS_ORDER)))
def test_the_order_of_elements_is_kept(op):
    arrays, attributes = inputs_of(op)
    (y,) = run(op, *arrays, **attributes)
    np.testing.assert_array_equal(y.ravel(), arrays[0].ravel())


def positions(op):
    """Where each element of the results stands in the first input, whose elements all differ."""
    arrays, attributes = inputs_of(op)
    if op == "Gather":
        arrays[1] = np.array(1)
    order = np.argsort(arrays[0], axis=None)
    results = run(op, *arrays, outputs=2 if op == "Split" else 1, **attributes)
    return [order[np.searchsorted(arrays[0].ravel()[order], y)] for y in results]


def has_strides(places):
    """Whether a step along an axis is one step in memory, wherever it begins."""
    steps = [np.diff(places, axis=axis) for axis in range(places.ndim)]
    return all(step.size == 0 or (step == step.flat[0]).all() for step in steps)


@pytest.mark.parametrize("op", sorted(operators(Trait.MOVES) - {"GatherElements", "GatherND"}))
def test_strided_results_are_views_of_what_is_read(op):
    assert all(map(has_strides, positions(op))) is (op in operators(Trait.STRIDED))


@pytest.mark.parametrize("op", sorted(operators(Trait.COPIES) - {"Concat", "Dropout", "MaxPool"}))
def test_elements_are_repeated_by_these_operators_alone(op):
    places = np.concatenate([each.ravel() for each in positions(op)])
    assert (np.unique(places).size < places.size) is (op in operators(Trait.REPEATS))


def test_gates_are_the_operators_that_onnx_lists_for_recurrent_layers():
    for op in RECURRENT:
        text = onnx.defs.get_schema(op).doc.partition("Activation functions")[2]
        listed = set(re.findall(r"\b([A-Z]\w+)\(x\)", text))
        assert listed - {"Affine", "ScaledTanh"} == operators(Trait.GATE)


@pytest.mark.parametrize("op", sorted(operators(Trait.MOVES) | operators(Trait.COPIES)))
def test_results_have_no_other_values_than_inputs(op):
    arrays, attributes = inputs_of(op)
    results = run(op, *arrays, outputs=2 if op == "Split" else 1, **attributes)
    for y in results:
        assert y.size
        assert np.isin(y, arrays[0]).all()
        assert y.dtype == arrays[0].dtype


def test_schemas_have_graphs_where_operators_have_subgraphs():
    graph = onnx.defs.OpSchema.AttrType.GRAPH
    names = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if not schema.domain and any(attribute.type == graph for attribute in schema.attributes.values())
    }
    assert names - {"SequenceMap"} == operators(Trait.SUBGRAPHS)  # of a sequence: ONNX writes it with Loop


def test_operators_whose_dims_depend_on_values_are_known():
    assert operators(Trait.DATA_DEPENDENT) == {"Compress", "NonMaxSuppression", "NonZero", "Unique"}


@pytest.mark.parametrize("op", sorted(operators(Trait.DATA_DEPENDENT)))
def test_no_dims_follow_from_dims(op):
    known: dict[str, list[tuple[int, ...]]] = {"NonMaxSuppression": [(1, 5, 4), (1, 2, 5)], "Compress": [(4, 3), (4,)]}
    dims = known.get(op, [(4, 3)])
    kinds = [TensorProto.FLOAT, TensorProto.BOOL if op == "Compress" else TensorProto.FLOAT]
    infos = [
        helper.make_tensor_value_info(f"x{index}", kind, shape)
        for index, (kind, shape) in enumerate(zip(kinds, dims, strict=False))
    ]
    node = helper.make_node(op, [info.name for info in infos], ["y"], **ATTRIBUTES.get(op, {}))
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    inferred = onnx.shape_inference.infer_shapes(helper.make_model(graph)).graph.output[0].type.tensor_type.shape
    assert any(not dim.HasField("dim_value") for dim in inferred.dim)


def test_random_operators_are_not_deterministic():
    for name in operators(Trait.RANDOM):
        assert onnx.defs.get_schema(name).non_deterministic


@pytest.mark.parametrize("op", sorted(operators(Trait.ACTIVATION) & operators(Trait.UNARY)))
def test_activations_are_no_linear_functions(op):
    x = np.linspace(-8, 8, 65, dtype=np.float32)
    arrays = [x, np.float32(-1), np.float32(1)] if op == "Clip" else [x]
    (y,) = run(op, *arrays)
    assert np.ptp(np.diff(y)) > 1e-3


@pytest.mark.parametrize("op", sorted(operators(Trait.GLOBAL_POOL)))
def test_global_pools_give_one_number_a_channel(op):
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 5, 7))
    node = helper.make_node(op, ["x"], ["y"])
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    shape = onnx.shape_inference.infer_shapes(helper.make_model(graph)).graph.output[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [2, 3, 1, 1]


def names_of(condition):
    """ONNX's own operators whose newest schema meets a condition."""
    return {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain and condition(schema)}


def test_schemas_say_which_operators_are_layers_of_windows_and_steps():
    def has_filters(schema):
        return "kernel_shape" in schema.attributes and any(item.name in ("W", "w") for item in schema.inputs)

    assert operators(Trait.CONVOLUTION) == names_of(has_filters)
    assert operators(Trait.POOL) == names_of(lambda schema: "ceil_mode" in schema.attributes)
    assert RECURRENT.keys() == names_of(lambda schema: "hidden_size" in schema.attributes)


def test_names_say_which_operators_sum_codes_and_which_reduce():
    of_codes = names_of(lambda schema: schema.name.startswith("QLinear") or schema.name.endswith("Integer"))
    assert operators(Trait.INTEGER) == of_codes
    assert operators(Trait.REDUCES) == names_of(lambda schema: schema.name.startswith("Reduce"))


def test_schemas_name_indices_where_operators_have_positions():
    has_indices = names_of(lambda schema: any(item.name == "indices" for item in schema.inputs))
    assert operators(Trait.INDEXED) == has_indices - {
        "OneHot"
    }  # whose indices say which of its own values are the hot ones


@pytest.mark.parametrize("op", sorted(operators(Trait.RETYPES)))
def test_the_result_has_another_type_and_the_same_dims(op):
    codes, scale = np.arange(6, dtype=np.uint8).reshape(2, 3), np.float32(0.5)
    x = codes.astype(np.float32) if op == "QuantizeLinear" else codes
    (y,) = run(op, x, to=TensorProto.FLOAT) if op == "Cast" else run(op, x, scale)
    assert y.dtype != x.dtype
    assert y.shape == x.shape


@pytest.mark.parametrize("op", RECURRENT)
def test_recurrent_layers_have_these_gates_and_activations(op):
    rng, row, hidden = np.random.default_rng(5), RECURRENT[op], 4
    sizes = [(3, 2, 5), (1, row.gates * hidden, 5), (1, row.gates * hidden, hidden)]
    arrays = [rng.standard_normal(size, np.float32) for size in sizes]
    (wanted,) = run(op, *arrays, hidden_size=hidden)
    (named,) = run(op, *arrays, hidden_size=hidden, activations=list(row.activations))
    np.testing.assert_array_equal(named, wanted)
    (other,) = run(op, *arrays, hidden_size=hidden, activations=[*row.activations[:-1], "Relu"])
    assert not np.allclose(other, wanted)


@pytest.mark.parametrize("op", sorted(operators(Trait.READS_SHAPE)))
def test_shapes_are_read_without_values(op):
    for x in (DATA, np.full_like(DATA, np.nan)):
        np.testing.assert_array_equal(run(op, x)[0], DATA.shape if op == "Shape" else DATA.size)


def test_what_copies_by_indices_only_moves():
    assert operators(Trait.MOVES) - operators(Trait.COPIES) == {"Gather", "GatherElements", "GatherND"}
    assert operators(Trait.KEEPS_ORDER) <= operators(Trait.MOVES | Trait.COPIES)


@pytest.mark.parametrize("op", sorted(operators(Trait.TRUTH)))
def test_truth_values_are_computed(op):
    schema = onnx.defs.get_schema(op)
    constraint = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}
    assert constraint.get(schema.outputs[0].type_str, []) == ["tensor(bool)"]


def test_schemas_and_texts_say_which_operators_have_a_trait():
    def gives_truth(schema):
        types = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}
        kind = schema.outputs[0].type_str if len(schema.outputs) == 1 else ""
        return [*types.get(kind, [kind])] == ["tensor(bool)"]

    assert operators(Trait.BROADCASTS) == names_of(
        lambda schema: "ultidirectional" in schema.doc and not schema.deprecated
    )
    assert operators(Trait.TRUTH) == names_of(gives_truth) - {"OptionalHasElement", "RegexFullMatch"}  # of no numbers
    assert operators(Trait.GLOBAL_POOL) == names_of(lambda schema: schema.name.startswith("Global"))
    random = {
        name for name in names_of(lambda schema: schema.non_deterministic) if name[:4] in ("Rand", "Bern", "Mult")
    }
    assert operators(Trait.RANDOM) == random
    assert operators(Trait.ARITHMETIC) == {"Add", "Sub", "Mul", "Div"}
    assert operators(Trait.WEIGHTED) == {"Conv", "ConvTranspose", "Gemm", "MatMul", *RECURRENT}
    assert operators(Trait.READS_SHAPE) == {"Shape", "Size"}
    assert operators(Trait.RETYPES) == {"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"}
    assert operators(Trait.KEEPS_ORDER) == {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
    turns = {"DepthToSpace", "Expand", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose"}
    assert operators(Trait.COPIES) - operators(Trait.KEEPS_ORDER) == {*turns, "Concat", "Dropout", "MaxPool", "Resize"}
    assert operators(Trait.MOVES) & operators(Trait.COPIES) == operators(Trait.KEEPS_ORDER) | turns
