"""The generator of forms: it draws the same ones each time, uses nearly all of ONNX's schemas, and its comparison can fail."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from benchmarks.forms.compare import difference
from benchmarks.forms.contrib import CONTRIB, OPSETS, contrib_schemas, qualified_name
from benchmarks.forms.contrib_formulas import CONTRIB_FORMULAS
from benchmarks.forms.exclusions import OPERATORS, excluded
from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms, items_of, schemas
from benchmarks.forms.oracles import ask, judge, run_literal
from benchmarks.forms.runners import run_form
from benchmarks.node_tests import PASSED, REFUSED, WRONG

SAMPLE = [
    "Add",
    "Cast",
    "Conv",
    "Gemm",
    "LSTM",
    "Pad",
    "QuantizeLinear",
    "ReduceSum",
    "Resize",
    "ScatterND",
    "Slice",
    "Softmax",
]


def test_every_operator_has_a_builder_or_a_reason():
    names = {qualified_name(schema) for schema in schemas()}
    assert names == BUILDERS.keys() | OPERATORS.keys()
    assert not BUILDERS.keys() & OPERATORS.keys()
    assert all(OPERATORS.values())


def test_the_same_seed_draws_the_same_bytes_whatever_else_is_drawn():
    first = {form.name: form for form in draw_forms(3, ["Conv"])}
    again = {form.name: form for form in draw_forms(3, ["Conv", "Add"]) if form.operator == "Conv"}
    other = {form.name: form for form in draw_forms(4, ["Conv"])}
    assert {name: form.data for name, form in first.items()} == {name: form.data for name, form in again.items()}
    assert all(
        np.array_equal(array, again[name].inputs[key])
        for name, form in first.items()
        for key, array in form.inputs.items()
    )
    assert {form.data for form in first.values()} != {form.data for form in other.values()}


@pytest.mark.slow
def test_forms_use_nineteen_of_twenty_parts_of_the_schemas():
    used: defaultdict[tuple[str, int], set[tuple[str, str, str]]] = defaultdict(set)
    count = 0
    for form in draw_forms():
        used[form.operator, form.version] |= form.items
        count += 1
    wanted = [(schema, item) for schema in schemas() for item in items_of(schema) if not excluded(schema, item)]
    reached = sum(item in used[qualified_name(schema), schema.since_version] for schema, item in wanted)
    assert count >= 20_000
    assert reached >= 0.95 * len(wanted)


def test_forms_are_small_valid_models_whose_opset_has_the_version():
    for form in draw_forms(0, SAMPLE, least=3):
        assert len(form.data) < 40_000
        assert {info.name for info in form.model.graph.input} == form.inputs.keys()
        node = next(node for node in form.model.graph.node if node.name == "the_node")
        assert onnx.defs.get_schema(node.op_type, form.opset, "").since_version == form.version


def test_operators_of_onnxruntime_have_names_and_seeds_of_their_own():
    pairs = [
        schema.name for schema in contrib_schemas() if schema.name in BUILDERS and qualified_name(schema) in BUILDERS
    ]
    assert {"Attention", "DequantizeLinear", "Gelu", "QLinearConv"} <= set(pairs)
    forms = {form.name: form for form in draw_forms(0, ["Gelu", f"{CONTRIB}.Gelu"], least=12)}
    ours = [form for form in forms.values() if form.operator == f"{CONTRIB}.Gelu"]
    assert len(ours) == 12
    assert all(name.startswith(("Gelu-20/", f"{CONTRIB}.Gelu-1/")) for name in forms)
    assert {form.opset for form in ours} == set(OPSETS)
    assert {node.domain for form in ours for node in form.model.graph.node if node.name == "the_node"} == {CONTRIB}
    assert len({form.data for form in forms.values()}) == len(forms)


def test_a_domain_chooses_all_its_operators():
    drawn = {form.operator for form in draw_forms(0, [CONTRIB], least=1)}
    assert drawn == {name for name in BUILDERS if name.startswith(f"{CONTRIB}.")}


@pytest.mark.parametrize("operator", sorted(CONTRIB_FORMULAS))
def test_formulas_and_onnxruntime_agree(operator):
    pytest.importorskip("torch")
    agreed = 0
    for form in draw_forms(1, [operator], least=5):
        node = next(node for node in form.model.graph.node if node.name == "the_node")
        if form.operator.endswith(("QLinearLeakyRelu", "QLinearSigmoid")) and not any(node.input[4:]):
            continue  # onnxruntime ends the process at forms without a zero point
        expected, source = judge(form, *ask(form))
        assert expected is not None or source.startswith(("no oracle", "undefined")), (form.name, source)
        agreed += "formula" in source
    assert agreed


def test_a_difference_is_of_dtype_dims_or_numbers():
    x = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference([x], [x.copy()], "Add", False, 1.0) == ""
    assert difference([x], [x * np.float32(1 + 1e-6)], "Add", False, 1.0) == ""
    assert "float64" in difference([x], [x.astype(np.float64)], "Add", False, 1.0)
    assert "dims" in difference([x], [x.reshape(1, 3)], "Add", False, 1.0)
    assert "1 of 3" in difference([x], [np.array([1.001, np.nan, np.inf], np.float32)], "Add", False, 1.0)
    assert "1 of 3" in difference([x], [np.array([1, 0, np.inf], np.float32)], "Relu", False, 1.0)
    codes = np.array([3, 4], np.int8)
    assert difference([codes], [codes + np.int8(1)], "QLinearConv", False, 1.0) == ""
    assert difference([codes], [codes + np.int8(1)], f"{CONTRIB}.QLinearMul", False, 1.0) == ""
    assert difference([codes], [codes + np.int8(1)], f"{CONTRIB}.QuantizeLinear", False, 1.0)
    assert difference([codes], [codes + np.int8(1)], "Add", False, 1.0)
    large = np.array([2**53 + 1], np.int64)
    assert difference([large], [large - 1], "Identity", True, 1.0)


def test_an_outcome_is_right_wrong_or_refused(monkeypatch):
    form = next(form for form in draw_forms(0, ["Relu"]) if form.version == 14 and "x0" in form.inputs)
    form.expected, form.source = judge(form, *ask(form))
    assert run_form(form, "reference").kind == PASSED
    form.expected = [array + 1 for array in form.expected]
    assert run_form(form, "reference").kind == WRONG
    monkeypatch.setitem(form.inputs, "x0", np.zeros((1,) * 7, np.float32))
    assert run_form(form, "reference").kind in (REFUSED, WRONG)


def test_oracles_that_differ_are_no_oracle_without_a_verdict():
    form = next(draw_forms(0, ["Abs"]))
    answers = {"onnxruntime": [np.zeros(2, np.float32)], "onnx.reference": [np.ones(2, np.float32)]}
    expected, source = judge(form, answers, "")
    assert expected is None
    assert "differ" in source


def test_pytorch_gives_what_onnxruntime_gives_for_activations_and_lengths_of_an_rnn():
    torch = pytest.importorskip("torch")
    theirs, rng = torch.nn.RNN(2, 3, nonlinearity="relu", bias=False), np.random.default_rng(0)
    x, lengths = rng.standard_normal((4, 2, 2), dtype=np.float32), np.array([4, 2], np.int32)
    w, r = (getattr(theirs, f"weight_{kind}_l0").detach().numpy() for kind in ("ih", "hh"))
    text = """<ir_version: 8, opset_import: ["": 14]>
        rnn (float[4, 2, 2] x, float[1, 3, 2] w, float[1, 3, 3] r, int32[2] lengths) => (float[4, 1, 2, 3] y, float[1, 2, 3] last)
        { y, last = RNN<hidden_size = 3, activations = ["Relu"]>(x, w, r, "", lengths) }"""
    inputs = {"x": x, "w": w[None], "r": r[None], "lengths": lengths}
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.from_numpy(x), torch.from_numpy(lengths).long())
    found, last = theirs(packed)
    expected = torch.nn.utils.rnn.pad_packed_sequence(found, total_length=4)[0].detach().numpy()[:, None]
    y, y_last = run_literal(onnx.parser.parse_model(text), inputs)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y_last, last.detach().numpy(), rtol=1e-5, atol=1e-6)
