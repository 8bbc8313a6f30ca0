"""The operators that are raced: each is exported as the operator that it is named after, and planned by engine ``cuda``."""

import pytest

pytest.importorskip("torch")

from benchmarks.gpu.operator_cases import CASES, exported
from benchmarks.gpu.ours import step_facts
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.passes import prepare

FORMS = list({(case.operator, case.form): case for case in reversed(CASES)}.values())
DECOMPOSED = {"GroupNormalization", "Gelu"}
"""Operators that PyTorch's exporter writes out."""


def test_no_two_rows_have_one_name():
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", FORMS, ids=lambda case: f"{case.operator}, {case.form}")
def test_a_form_is_exported_as_its_operator_and_planned_as_kernels_in_the_graph(case):
    model = exported(case.module(), case.arrays())
    assert case.operator in {node.op_type for node in model.graph.node} or case.operator in DECOMPOSED
    facts = step_facts(make_plan(lower(prepare(model)), {}))
    assert not facts["arrays"]
    assert not facts["outside"]
