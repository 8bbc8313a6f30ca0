"""The operators that are raced: each is exported as the operator that it is named after, and planned by engine ``cuda``."""

import pytest

pytest.importorskip("torch")

from benchmarks.gpu.operator_cases import CASES, exported
from benchmarks.gpu.ours import step_facts
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.passes import prepare

ARRAYS = {
    ("ArgMax", "last axis"): {"ArgMax"},
    ("AveragePool", "3-D, 2x2x2"): {"AveragePool"},
    ("CumSum", "last axis"): {"CumSum"},
    ("Gather", "computed rows"): {"Gather"},
    ("GatherElements", "rows"): {"GatherElements"},
    ("GridSample", "2-D, bicubic, reflection"): {"GridSample"},
    ("GridSample", "2-D, bilinear, zeros"): {"GridSample"},
    ("GridSample", "2-D, nearest, border"): {"GridSample"},
    ("MaxPool", "1-D, 3, stride 2"): {"MaxPool"},
    ("MaxPool", "3-D, 2x2x2"): {"MaxPool"},
    ("Pad", "reflect"): {"Pad"},
    ("Resize", "cubic, 2"): {"Resize"},
    ("ScatterElements", "add"): {"ScatterElements"},
    ("ScatterElements", "none"): {"ScatterElements"},
    ("Trilu", "lower"): {"Trilu"},
}
"""Operators, by form, that this engine runs array by array in the CUDA graph."""
OUTSIDE = {
    ("Conv", "1-D, 3"): {"Conv"},
    ("Conv", "1-D, 3, stride 2"): {"Conv"},
    ("Conv", "1-D, depthwise 9"): {"Conv"},
    ("Conv", "3-D, 3x3x3"): {"Conv"},
    ("Conv", "3-D, 3x7x7, stride 2"): {"Conv"},
    ("ConvTranspose", "3-D, 2x2x2, stride 2"): {"ConvTranspose"},
    ("Einsum", "bchw,cd->bdhw"): {"Einsum"},
    ("Einsum", "bhid,bhjd->bhij"): {"Einsum"},
    ("GRU", "forward"): {"GRU"},
    ("LSTM", "bidirectional"): {"LSTM"},
    ("LSTM", "forward"): {"LSTM"},
    ("LSTM", "forward, 2 layers"): {"LSTM"},
    ("TopK", "last axis"): {"TopK"},
}
"""Operators, by form, that run outside of the CUDA graph."""
FORMS = list({(case.operator, case.form): case for case in reversed(CASES)}.values())
DECOMPOSED = {"GroupNormalization", "Gelu"}
"""Operators that PyTorch's exporter writes out."""


def test_no_two_rows_have_one_name():
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", FORMS, ids=lambda case: f"{case.operator}, {case.form}")
def test_a_form_is_exported_as_its_operator_and_planned_where_the_tables_say(case):
    model = exported(case.module(), case.arrays())
    assert case.operator in {node.op_type for node in model.graph.node} or case.operator in DECOMPOSED
    facts = step_facts(make_plan(lower(prepare(model)), {}))
    key = case.operator, case.form
    assert set(facts["arrays"]) == ARRAYS.get(key, set())
    assert set(facts["outside"]) == OUTSIDE.get(key, set())
