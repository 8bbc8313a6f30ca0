"""The operators that are raced: each is exported as the operator that it is named after, and planned by engine ``cuda``."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu.operator_cases import CASES, exported
from benchmarks.gpu.operator_int8 import has_int8, quantized, quantized_values, round_weights
from benchmarks.gpu.ours import step_facts
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.measures import relative

FORMS = list({(case.operator, case.form): case for case in reversed(CASES)}.values())
DECOMPOSED = {"GroupNormalization", "Gelu"}
"""Operators that PyTorch's exporter writes out."""
IN_INT8 = [case for case in FORMS if has_int8(case)]
COMPUTED = (
    "1-D, 3",
    "2-D, depthwise 7x7",
    "2-D, 3x3, 32 groups",
    "2-D, 2x2, stride 2",
    "3-D, 2x2x2",
    "2-D, 2x2",
    "constant matrix",
)


def in_int8(case):
    """A case's module with rounded weights, its input in float16's values, and the model that the engine gets."""
    module, (x,) = case.module(), case.arrays()
    round_weights(module)
    x = x.half().float()
    return module, x, quantized(case, module, [x])


def test_no_two_rows_have_one_name():
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", FORMS, ids=lambda case: f"{case.operator}, {case.form}")
def test_a_form_is_exported_as_its_operator_and_planned_as_kernels_in_the_graph(case):
    model = exported(case.module(), case.arrays())
    assert case.operator in {node.op_type for node in model.graph.node} or case.operator in DECOMPOSED
    facts = step_facts(make_plan(lower(prepare(model)), {}))
    assert not facts["arrays"]
    assert not facts["outside"]


@pytest.mark.parametrize("case", IN_INT8, ids=lambda case: f"{case.operator}, {case.form}")
def test_a_form_in_int8_reads_codes_and_has_ends_in_float16(case):
    model = prepare(in_int8(case)[2])
    plan = make_plan(lower(model), {})
    facts = step_facts(plan)
    assert not facts["arrays"]
    assert not facts["outside"]
    (codes,) = [step for step in plan.steps if step.op == "QuantizeLinear"]
    assert plan.tensors[codes.inputs[0]].format.dtype is DType.FLOAT16
    computing = next(step for step in plan.steps if step.kind in ("conv", "pool", "indexed"))
    assert plan.tensors[computing.inputs[0]].format.dtype is DType.INT8
    assert {plan.tensors[name].format.dtype for name in plan.outputs.values()} == {DType.FLOAT16}


@pytest.mark.parametrize(
    "case", [case for case in IN_INT8 if case.form in COMPUTED], ids=lambda case: f"{case.operator}, {case.form}"
)
def test_a_form_in_int8_gives_what_pytorch_gives_for_the_same_codes(case):
    module, x, model = in_int8(case)
    results, _ = run_on_host(prepare(model), {"x0": x.numpy().astype(np.float16)})
    with torch.inference_mode():
        wanted, of_codes = module(x).numpy(), module(quantized_values(model, x)).numpy()
    assert relative(results["y"], of_codes) < 1e-3
    assert 3e-3 < relative(results["y"], wanted) < 5e-2
