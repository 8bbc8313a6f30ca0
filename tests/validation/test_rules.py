"""Each rule about a model, at its limits and at each of its places: the last value that is taken, and the first that is refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytrtplugins.errors import ModelError
from pytrtplugins.validation import check_ranks, model, validated, well_formed
from pytrtplugins.validation.domains import plain_domains
from pytrtplugins.validation.operand_types import check_operand_types
from pytrtplugins.validation.operators import check_node, node_text, standard_opset
from pytrtplugins.validation.tensors import check_dims, check_sparse_tensor, check_tensor, dims_text
from pytrtplugins.validation.untyped import add_types, input_of_same_type, missing_types
from tests.onnx_parts import RELU, add, body, branches, call, function, info, node
from tests.onnx_parts import model as model_of


def refused(check, *args, match=None):
    with pytest.raises(ModelError, match=match) as caught:
        check(*args)
    return caught.value


def check_one(operator_node, opset=18, domain=""):
    check_node(operator_node, {domain: opset}, frozenset(), "", None)


COUNTED = [
    *(
        "block_size",
        "blocksize",
        "dilations",
        "group",
        "hidden_size",
        "kernel_shape",
        "kv_num_heads",
        "num_groups",
        "num_heads",
    ),
    *("num_outputs", "output_height", "output_width", "pooled_shape", "q_num_heads", "strides"),
]


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("value", [-1, 0, 1, 2**31 - 1, 2**31])
def test_what_operators_divide_by_is_at_least_1_and_has_32_bits(name, value):
    for values in (value, [2, value]):
        operator_node = helper.make_node("Ours", ["x"], ["y"], domain="com.microsoft", **{name: values})
        if 0 < value < 2**31:
            check_one(operator_node)
        else:
            error = refused(check_one, operator_node, match=f"{name!r} has the value {value}; expected 1 to 2147483647")
            assert (error.attribute, error.found) == (name, value)


@pytest.mark.parametrize("name", ["dtype", "output_datatype", "output_dtype", "stash_type", "to"])
def test_numbers_of_element_types_are_those_of_onnx(name):
    for value, good in (
        (0, name == "output_dtype"),
        (1, True),
        (max(TensorProto.DataType.values()), True),
        (99, False),
    ):
        operator_node = helper.make_node("Ours", ["x"], ["y"], domain="com.microsoft", **{name: value})
        if good:
            check_one(operator_node)
        else:
            refused(check_one, operator_node, match=f"{name!r} has the value {value}, which is no element type")


def attribute(name, **fields):
    operator_node = node("Relu", "x", "y")
    operator_node.attribute.add(name=name, **fields)
    return operator_node


def test_attributes_need_a_name_and_a_type():
    for name in ("", "slope"):
        refused(check_one, attribute(name, type=0 if name else 1), match="has no type" if name else "without a name")
    check_node(attribute("slope", ref_attr_name="outer"), {}, frozenset({("", "Relu")}), "", None)


ARITIES = {  # operator → the fewest and the most inputs, and of outputs, by ONNX's documentation of opset 18
    "Relu": ((1, 1), (1, 1)), "Conv": ((2, 3), (1, 1)), "Clip": ((1, 3), (1, 1)), "TopK": ((2, 2), (2, 2)), "Dropout": ((1, 3), (1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("operator", ARITIES)
def test_a_node_has_as_many_inputs_and_outputs_as_its_schema(operator):
    inputs, outputs = ARITIES[operator]
    for count in range(5):
        for operator_node, (low, high), side in (
            (helper.make_node(operator, ["x"] * count, ["y", "z"][: outputs[0]]), inputs, "input"),
            (helper.make_node(operator, ["x"] * inputs[0], [f"y{i}" for i in range(count)]), outputs, "output"),
        ):
            if low <= count <= high:
                check_one(operator_node)
            else:
                expected = low if low == high else f"{low} to {high}"
                text = rf"has {count} {side}{'s' * (count != 1)}; {operator} of opset 18 has {expected}$"
                assert refused(check_one, operator_node, match=text).found == count


def test_an_operator_of_any_number_of_inputs_has_at_least_one():
    check_one(helper.make_node("Max", ["x"] * 300, ["y"]))
    refused(check_one, helper.make_node("Max", [], ["y"]), match="has 0 inputs; Max of opset 18 has at least 1$")


@pytest.mark.parametrize(
    ("operator", "needed"), [("Clip", (True, False, False)), ("Conv", (True, True, False)), ("Concat", (True,) * 3)]
)
def test_only_optional_inputs_may_be_left_out(operator, needed):
    for place, is_needed in enumerate(needed):
        names = ["" if index == place else f"x{index}" for index in range(3)]
        operator_node = helper.make_node(operator, names, ["y"], **({"axis": 0} if operator == "Concat" else {}))
        if is_needed:
            refused(check_one, operator_node, match=f"leaves out its input {place}, ")
        else:
            check_one(operator_node)


@pytest.mark.parametrize(("opset", "good"), [(0, False), (1, True), (2**31 - 1, True), (2**31, False)])
def test_opsets_are_whole_numbers_of_32_bits(opset, good):
    network = model_of(RELU, opset=18)
    network.opset_import[1].version = opset
    if good:
        validated(network)
    else:
        refused(validated, network, match=f"imports version {opset} of the domain 'local'")


def test_the_opset_is_that_of_onnxs_own_domain_under_both_of_its_names():
    for domain in ("", "ai.onnx"):
        network = model_of(RELU)
        network.opset_import[0].domain = domain
        assert standard_opset(network) == 18
    del network.opset_import[0]
    assert standard_opset(network) == 0


def test_a_node_is_named_by_its_name_or_its_first_output():
    assert node_text(helper.make_node("Relu", ["x"], ["", "b"])) == "node 'b' (Relu)"
    assert node_text(helper.make_node("Relu", ["x"], ["b"], name="a")) == "node 'a' (Relu)"


TYPES = [name for name, _ in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]


@pytest.mark.parametrize("name", TYPES)
def test_a_constant_has_exactly_the_bytes_or_values_of_its_type(name):
    kind = TensorProto.DataType.Value(name)
    raw = onnx.numpy_helper.from_array(np.ones(5, helper.tensor_dtype_to_np_dtype(kind)))
    typed = helper.make_tensor("w", kind, [5], np.ones(5))
    check_tensor(raw, "w")
    check_tensor(typed, "w")
    field = helper.tensor_dtype_to_field(kind)
    for change in (-1, 1):
        other = TensorProto.FromString(raw.SerializeToString())
        other.raw_data = other.raw_data[:-1] if change < 0 else other.raw_data + b"\0"
        assert refused(check_tensor, other, "w", match=r"needs .* bytes, found").found == len(other.raw_data)
        other = TensorProto.FromString(typed.SerializeToString())
        values = [*getattr(other, field)]
        getattr(other, field)[:] = values[:-1] if change < 0 else [*values, values[0]]
        assert refused(check_tensor, other, "w", match=r"needs .* values, found").expected == len(values)
    other.ClearField(field)
    wrong = "float_data" if field != "float_data" else "int32_data"
    getattr(other, wrong)[:] = [1] * 5
    refused(check_tensor, other, "w", match=f"{name} data belong into {field}, found {wrong}")


def test_texts_are_no_raw_bytes():
    check_tensor(TensorProto(name="w", data_type=8, dims=[2], string_data=[b"a", b"b"]), "w")
    refused(check_tensor, TensorProto(data_type=8, dims=[1], raw_data=b"a"), "w", match="STRING data in raw_data")


@pytest.mark.parametrize("elements", [64, 65])
def test_bytes_of_a_large_constant_are_counted_unless_nobody_reads_them(elements):
    short = TensorProto(name="w", data_type=1, dims=[elements], raw_data=bytes(8))
    for check in (lambda **more: check_tensor(short, "w", **more), lambda **more: validated(add(short), **more)):
        with pytest.raises(ModelError, match="needs"):
            check()
        if elements > 64:
            check(large=False)
        else:
            with pytest.raises(ModelError, match="needs"):
                check(large=False)


@pytest.mark.parametrize(
    ("dims", "kind", "good"),
    [
        ((1,) * 64, 1, True), ((1,) * 65, 1, False), ((2**32,), 1, True), ((2**32, 1, 1), 1, True), ((2**32 + 1,), 1, False),
        ((2**34,), 3, True), ((2**34 + 1,), 3, False), ((2**35,), 22, True), ((2**35 + 2,), 22, False), ((0, -1), 1, False),
        ((0, 2**40), 1, True), ((), 1, True), ((1,), 0, False),
    ],
)  # fmt: skip
def test_a_tensor_has_at_most_64_axes_and_16_gib(dims, kind, good):
    if good:
        assert check_dims(dims, kind, "w") == np.prod([*map(int, dims)], dtype=object)
    else:
        refused(check_dims, dims, kind, "w")


@pytest.mark.parametrize(("rank", "text"), [(8, "(1, 1, 1, 1, 1, 1, 1, 1)"), (9, "(1, 1, 1, 1, 1, 1, 1, 1, …)")])
def test_eight_dims_are_shown(rank, text):
    assert dims_text((1,) * rank) == text


@pytest.mark.parametrize(
    ("values", "indices", "kind", "good"),
    [
        *(([2], indices, 7, True) for indices in ([2], [2, 2])),
        *(([2], indices, kind, False) for indices, kind in (([3], 7), ([2, 3], 7), ([2], 6))),
        ([1, 2], [2], 7, False),
    ],
)  # fmt: skip
def test_a_sparse_constant_has_a_place_for_each_value(values, indices, kind, good):
    tensors = [
        TensorProto(data_type=t, dims=d, raw_data=bytes(w * int(np.prod(d))))
        for t, d, w in ((1, values, 4), (kind, indices, 8 if kind == 7 else 4))
    ]
    sparse = onnx.SparseTensorProto(values=tensors[0], indices=tensors[1], dims=[3, 3])
    if good:
        check_sparse_tensor(sparse, "w")
    else:
        refused(check_sparse_tensor, sparse, "w", match=r"2 values need INT64 indices of dims \(2\) or \(2, 2\)")


@pytest.mark.parametrize(("most", "good"), [(4, True), (3, False)])
def test_nodes_are_counted_with_those_of_bodies_and_of_functions_as_often_as_they_are_called(monkeypatch, most, good):
    """An If, and one node in each of its branches; a call, and the two nodes of its function."""
    calls = model_of(call("F", "x", "t"), call("F", "t", "y"), functions=[function("F", node("Abs", "a", "b"))])
    for module, network, number in (
        (well_formed, branches(body(node("Abs", "x", "b"), node("Abs", "b", "c"), output="c")), 4),
        (model, calls, 4),
    ):
        monkeypatch.setattr(module, "MAX_NODES", most - 4 + number)
        if good:
            validated(network)
        else:
            refused(validated, network, match="more than 3 nodes")
        monkeypatch.setattr(module, "MAX_NODES", 10**6)


RANKS = {  # operator → place → the axes that it takes, by ONNX's documentation
    "ConstantOfShape": {0: "1"}, "CumProd": {0: "1+"}, "CumSum": {0: "1+"}, "Expand": {1: "1"}, "GRU": {0: "3", 1: "3", 2: "3"},
    "GatherElements": {0: "1+", 1: "1+"}, "LSTM": {0: "3", 1: "3", 2: "3"}, "LpNormalization": {0: "1+"}, "RNN": {0: "3", 1: "3", 2: "3"},
    "Reshape": {1: "1"}, "ScatterElements": {0: "1+", 1: "1+"}, "Tile": {1: "1"},
    "com.microsoft.GatherBlockQuantized": {0: "1+", 2: "1+"},
}  # fmt: skip


@pytest.mark.parametrize("operator", RANKS)
def test_ranks_are_those_of_each_input(operator):
    domain, _, op = operator.rpartition(".")
    for place in range(3):
        check_ranks(model_of(helper.make_node(op, ["t0", "t1", "t2"][:place], ["y"], domain=domain)))
        ranks = RANKS[operator].get(place, "0+")
        for rank in range(6):
            names = [f"t{index}" for index in range(3)]
            network = model_of(
                helper.make_node(op, names, ["y"], domain=domain), inputs=[info(names[place], [2] * rank)]
            )
            if rank == int(ranks[0]) or (ranks.endswith("+") and rank > int(ranks[0])):
                check_ranks(network)
            else:
                expected = ranks if len(ranks) == 1 else f"at least {ranks[0]}"
                refused(check_ranks, network, match=rf"'t{place}', has {rank} axes; {op} reads {expected}$")


@pytest.mark.parametrize("operator", ["BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"])
def test_operators_on_bits_take_whole_numbers(operator):
    count = 1 if operator.endswith("Not") else 2
    for kind, good in ((TensorProto.UINT8, True), (TensorProto.FLOAT, False), (TensorProto.BOOL, False)):
        network = model_of(helper.make_node(operator, ["x"] * count, ["y"]), inputs=[info("x", [2], kind)])
        if good:
            check_operand_types(network)
        else:
            refused(check_operand_types, network, match=f"{operator} takes whole numbers")


def test_tensors_of_unknown_type_are_compared_with_nothing():
    for inputs in ("x u", "u x", "u u"):
        check_operand_types(model_of(node("Ours", "x", "u", domain="acme"), node("Add", inputs, "y")))


@pytest.mark.parametrize(("domain", "version"), [("com.microsoft", 1), ("ai.onnx.ml", 3)])
def test_domains_that_are_not_imported_have_the_versions_of_onnxruntime(domain, version):
    for network in (
        model_of(node("Ours", "x", "y", domain=domain)),
        model_of(call("F", "x", "y"), functions=[function("F", node("Ours", "a", "b", domain=domain))]),
    ):
        scope = network.functions[0] if network.functions else network
        before = network.SerializeToString()
        plain = plain_domains(network)
        scope = plain.functions[0] if plain.functions else plain
        assert {item.domain: item.version for item in scope.opset_import}[domain] == version
        assert network.SerializeToString() == before
        assert plain_domains(plain) is plain


def test_of_several_imports_of_a_domain_the_last_counts():
    network = model_of(RELU)
    network.opset_import.add(domain="ai.onnx", version=17)
    plain = plain_domains(network)
    assert [(item.domain, item.version) for item in plain.opset_import] == [("", 17), ("local", 1)]
    network = model_of(helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx"))
    assert plain_domains(network).graph.node[0].domain == ""


@pytest.mark.parametrize(
    ("operator", "place", "known", "source"),
    [("Where", 0, (True, False, True), 2), ("Where", 0, (True, False, False), None), ("Concat", 0, (False,) * 5 + (True,), 5),
     ("Split", 3, (True, True), 0), ("TopK", 0, (True, True), 0),
     ("TopK", 1, (True, True), None), ("Shape", 0, (True,), None), ("RandomNormal", 0, (), None)],
)  # fmt: skip
def test_an_output_has_the_type_of_the_first_input_of_its_variable(operator, place, known, source):
    assert input_of_same_type(onnx.defs.get_schema(operator, 18, ""), place, known) == source


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_types_of_constants_are_known(kind):
    network = model_of(node("Nobody", "x", "u"), node("GroupNormalization", "u s s", "t", num_groups=1), opset=21)
    values = TensorProto(name="s", data_type=TensorProto.FLOAT16)
    assert missing_types(network) == {}
    if kind == "dense":
        network.graph.initializer.append(values)
    else:
        network.graph.sparse_initializer.add(values=values)
    assert missing_types(network) == {"t": TensorProto.FLOAT16}


def test_types_are_added_to_outputs_of_known_operators_alone():
    network = model_of(
        node("GroupNormalization", "x s s", "t", num_groups=1),
        node("Nobody", "x", "u"),
        node("Relu", "x", "v", domain="acme"),
        node("Relu", "u", "y"),
        opset=21,
    )
    network.graph.input.append(info("s", [3]))
    missing = missing_types(network)
    assert missing == {"t": TensorProto.FLOAT}
    add_types(network, {**missing, "y": TensorProto.FLOAT16})
    assert [(item.name, item.type.tensor_type.elem_type) for item in network.graph.value_info] == [
        ("t", TensorProto.FLOAT)
    ]
    assert network.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16


@pytest.mark.parametrize(
    ("operator", "opset", "count", "reads", "good"),
    [("Scan", 8, 3, 2, True), ("Scan", 8, 2, 2, False), ("Scan", 8, 4, 2, False), ("Scan", 9, 2, 2, True), ("Scan", 9, 3, 2, False),
     ("Loop", 18, 2, 2, True), ("Loop", 18, 3, 3, True), ("Loop", 18, 3, 2, False), ("Loop", 18, 2, 3, False)],
)  # fmt: skip
def test_bodies_read_what_loops_and_scans_give_them(operator, opset, count, reads, good):
    """Before opset 9 a Scan's first input is the lengths of the batch; a Loop gives its number and condition."""
    graph = body(node("Identity", "i0", "b"))
    graph.input.extend(info(f"i{index}") for index in range(reads))
    attributes = {"num_scan_inputs": 1} if operator == "Scan" else {}
    operator_node = helper.make_node(operator, [f"x{index}" for index in range(count)], ["y"], body=graph, **attributes)
    if good:
        check_one(operator_node, opset)
    else:
        expected = count - (operator == "Scan" and opset < 9)
        text = f"has {count} inputs, and its body has {reads}; {operator} of opset {opset} gives its body {expected}$"
        assert refused(check_one, operator_node, opset, match=text).found == reads


@pytest.mark.parametrize("field", ["name", "doc_string"])
@pytest.mark.parametrize("place", ["tensor", "key", "model", "input", "node", "attribute"])
def test_every_text_is_utf8(field, place):
    data = add(helper.make_tensor("w", 1, [1], [1.0]))
    tensor = data.graph.initializer[0]
    named = {"tensor": tensor, "model": data.graph, "input": data.graph.input[0], "node": data.graph.node[0]}
    if place == "key":
        tensor.external_data.add(key="locatiXX", value="x")
    elif place == "attribute":
        setattr(data.graph.node[0].attribute.add(type=1), field, "locatiXX")
    else:
        setattr(named[place], field, "locatiXX")
    broken = onnx.ModelProto.FromString(data.SerializeToString().replace(b"locatiXX", b"locati\xff\xff"))
    refused(well_formed.check_well_formed, broken, match="is not text: .* is not UTF-8")
