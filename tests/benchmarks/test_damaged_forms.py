"""Forms with an input or attribute left out or changed run, or are refused by the name of their node; no process ends."""

import itertools
from functools import partial

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.forms.damage import damaged
from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_form, draw_forms
from benchmarks.forms.runners import run_form
from benchmarks.node_tests import PASSED, REFUSED, run_cases
from pytrtplugins.cuda.backends import host as host_backend

OPERATORS = sorted(BUILDERS)
PARTS = 8
ENGINES = ["onnxruntime", "cpu", "reference", "cuda"]
FORMS, KIN = 12, 11
"""`make test` damages every 12th form of those that begin each version, another one for each engine, and takes each 11th of their kin."""
ENDED = (
    "com.microsoft.DynamicQuantizeMatMul-1/5: no rows in x2",
    "com.microsoft.EmbedLayerNormalization-1/28: input 8 one axis",
    "com.microsoft.GatherBlockQuantized-1/12: input 0 a scalar",
    "com.microsoft.MatMulIntegerToFloat-1/0: input 3 first axis cut",
    "com.microsoft.MatMulIntegerToFloat-1/0: no rows in x3",
    "com.microsoft.QAttention-1/1: no rows in x0",
    "com.microsoft.QAttention-1/28: input 0 first axis cut",
    "com.microsoft.QLinearConcat-1/30: no input 4",
    "com.microsoft.QLinearWhere-1/30: input 2 first axis cut",
    "com.microsoft.SkipLayerNormalization-1/1: no rows in x1",
    "CumSum-11/0: input 0 a scalar",
    "CumSum-14/26: input 0 one axis",
    "DequantizeLinear-21/16: input 0 a scalar",
    "DequantizeLinear-24/35: input 0 first axis cut",
    "Expand-8/1: input 0 first axis cut",
    "GRU-7/15: no rows in x0",
    "GRU-7/31: input 2 a scalar",
    "Gather-13/0: input 0 last axis cut",
    "GatherND-13/11: input 1 a scalar",
    "PRelu-6/21: input 0 last axis cut",
    "Scatter-9/11: input 0 first axis cut",
    "ScatterElements-13/16: input 0 first axis cut",
    "Unique-28/29: input 0 last axis cut",
)
"""Each ended the process: those of com.microsoft, GRU-7/15 and Unique in a kernel of onnxruntime 1.32, the others in OpenVINO 2026.4."""


UNNAMED = (
    "BatchNormalization-15/0: training_mode = -1",
    "Conv-22/12: strides = [1, 2, 3, 4, 5, 6, 7]",
    "ConvTranspose-11/13: no dilations",
    "Einsum-28/23: input 1 first axis cut",
    "Max-8/19: no input 1",
    "NegativeLogLikelihoodLoss-13/31: input 0 last axis cut",
    "Reshape-14/0: input 1 a scalar",
    "Resize-18/10: input 0 a scalar",
    "SoftmaxCrossEntropyLoss-12/20: input 1 one axis",
    "SpaceToDepth-28/13: input 0 last axis cut",
)
"""Others that ended a process, or in an error without a name."""


def faults(forms, engine):
    """What ended the process, or in another library's error, or in a refusal that names nothing."""
    for form, outcome in run_cases(list(forms), partial(run_form, runner=engine), 1, start="forkserver"):
        unnamed = outcome.kind == REFUSED and outcome.values == "unnamed"
        if outcome.kind not in (PASSED, REFUSED) or unnamed:
            yield f"{form.name} on {engine}: {outcome.kind}: {outcome.reason}"


def kin(names):
    """Damaged forms by their names."""
    for name in names:
        yield next(form for form in damaged(draw_form(name.partition(": ")[0])) if form.name == name)


def skip_without_compiler(engine):
    if engine == "cuda" and not host_backend.available():
        pytest.skip("kernels on host arrays need a C++ compiler")


@pytest.mark.parametrize("engine", ENGINES)
def test_what_ended_a_process_is_run_or_refused_by_name(engine):
    skip_without_compiler(engine)
    assert not list(faults(kin((*ENDED, *UNNAMED)), engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sample_of_damaged_forms_is_run_or_refused_by_name(engine):
    skip_without_compiler(engine)
    forms = itertools.islice(draw_forms(0, OPERATORS, most=1), 3 * ENGINES.index(engine), None, FORMS)
    found = list(itertools.chain.from_iterable(map(damaged, forms)))[::KIN]
    assert len(found) > 100
    assert not list(faults(found, engine))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_forms_are_run_or_refused_by_name(part, engine):
    skip_without_compiler(engine)
    found = itertools.chain.from_iterable(map(damaged, draw_forms(0, OPERATORS[part::PARTS], most=2)))
    assert not list(faults(found, engine))


def test_damage_changes_one_thing():
    form = draw_form("com.microsoft.QAttention-1/1")
    found = {each.name.partition(": ")[2]: each for each in damaged(form)}
    assert len(found) == len(list(damaged(form)))
    assert found["no rows in x0"].inputs["x0"].shape[0] == 0
    (node,) = (node for node in found["no input 1"].model.graph.node if node.op_type == "QAttention")
    assert node.input[1] == ""
    assert not any(item.name == "num_heads" for item in _node(found["no num_heads"]).attribute)
    assert all(each.expected is None for each in found.values())
    assert np.array_equal(found["no input 1"].inputs["x0"], form.inputs["x0"])


def _node(form):
    return next(node for node in form.model.graph.node if node.op_type == "QAttention")
