"""Which form of a plugin an engine runs: its class says it."""

import re
from pathlib import Path

import pytest

from pytrtplugins import plugin
from pytrtplugins.engines import BuildOptions, names
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.errors import UsageError
from pytrtplugins.plugin.policy import FORMS, GPU_FORMS, HOST_FORMS, RUNNING, check_forms, chosen_form, forms_of
from tests.broken_kernels import kernel
from tests.engines.networks import conv_net
from tests.user_plugins import Copy

LIFECYCLE = Path(__file__).parents[2] / "docs/explanation/lifecycle.md"


@plugin(namespace="test.policy")
class Computed(Copy):
    """Has `compute` alone."""


@plugin(namespace="test.policy")
class Decomposed(Copy):
    """Has a decomposition too."""

    def decompose(self, op, x):
        return op.Add(x, x)


@plugin(namespace="test.policy")
class Queued(Copy):
    """Has an `enqueue` without kernels."""

    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = inputs[0] + inputs[0]


@plugin(namespace="test.policy")
class Complete(Decomposed, Queued):
    """Has all forms, without kernels."""


@plugin(namespace="test.policy")
class Launching(Queued):
    """Has an `enqueue` with kernels."""

    kernel = kernel("    if (i < n) y[i] = x[i] * 2;")


@plugin(namespace="test.policy")
class LaunchingComplete(Complete):
    """Has all forms, with kernels."""

    kernel = kernel("    if (i < n) y[i] = x[i] * 2;")


CLASSES = (Computed, Decomposed, Queued, Complete, Launching, LaunchingComplete)
GPU = ("compute", "decomposition", "enqueue", "enqueue", "enqueue", "enqueue")
CPU = ("compute", "decomposition", "enqueue", "decomposition", "compute", "decomposition")
ORACLE = ("compute", "compute", "enqueue", "enqueue", "compute", "compute")
EXPECTED = {"cuda": GPU, "tensorrt": GPU, "cpu": CPU, "onnxruntime": CPU, "reference": ORACLE}


@pytest.mark.parametrize("engine", EXPECTED)
def test_an_engine_runs_the_first_form_of_its_row_that_a_class_has(engine):
    forms = engine_class(engine).plugin_forms
    assert tuple(chosen_form(cls, forms) for cls in CLASSES) == EXPECTED[engine]


@pytest.mark.parametrize("engine", EXPECTED)
@pytest.mark.parametrize("cls", CLASSES)
def test_the_form_that_the_user_asks_for_runs(engine, cls):
    name, forms = f"test.policy::{cls.__name__}", engine_class(engine).plugin_forms
    for form in forms_of(cls):
        assert chosen_form(cls, forms, {name: form}) == form
        assert chosen_form(cls, forms, {"test.policy::Other": form}) == chosen_form(cls, forms)


def test_a_node_whose_decomposition_cannot_be_written_runs_in_the_next_form():
    assert chosen_form(Decomposed, GPU_FORMS, among=RUNNING) == "compute"
    assert chosen_form(Complete, HOST_FORMS, among=RUNNING) == "enqueue"
    assert chosen_form(LaunchingComplete, HOST_FORMS, among=RUNNING) == "compute"
    asked = {"test.policy::LaunchingComplete": "decomposition"}
    assert chosen_form(LaunchingComplete, GPU_FORMS, asked, RUNNING) == "enqueue"


def test_the_page_of_the_life_cycle_shows_the_table():
    words = {"enqueue": "`enqueue`", "enqueue without kernels": "`enqueue` without kernels", "compute": "`compute`"}
    rows = [
        [f"`{engine}`", *(words.get(form, form) for form in forms), *[""] * (3 - len(forms))]
        for engine, forms in ((name, engine_class(name).plugin_forms) for name in names())
    ]
    section = LIFECYCLE.read_text().partition("## Which form runs")[2].partition("##")[0]
    found = [re.split(r" *\| *", line)[1:-1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(found) == sorted(rows)


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        ({"test.policy::Absent": "compute"}, "no plugin 'test.policy::Absent'; it has test.policy::Decomposed"),
        (
            {"test.policy::Decomposed": "enqueue"},
            r"cannot run as 'enqueue': it has none of its own.\nDo: .*'decomposition'",
        ),
    ],
)
def test_what_a_model_does_not_have_is_refused(requested, words):
    with pytest.raises(UsageError, match=words) as caught:
        check_forms(conv_net(Decomposed()), "cuda", GPU_FORMS, requested)
    assert caught.value.plugin in requested


def test_a_model_without_plugins_says_so():
    with pytest.raises(UsageError, match="it has none"):
        check_forms(conv_net(), "cpu", HOST_FORMS, {"test.policy::Complete": "compute"})


def test_the_oracle_runs_no_decomposition():
    forms = engine_class("reference").plugin_forms
    with pytest.raises(UsageError, match="is never run by engine 'reference'") as caught:
        check_forms(conv_net(Complete()), "reference", forms, {"test.policy::Complete": "decomposition"})
    assert str(caught.value).endswith(
        "Do: plugins={'test.policy::Complete': 'enqueue'} or plugins={'test.policy::Complete': 'compute'}"
    )


def test_options_know_the_forms():
    assert BuildOptions(plugins={"a::B": "compute"}).plugins == {"a::B": "compute"}
    with pytest.raises(UsageError, match=f"form 'fast' is unknown; there are {', '.join(FORMS)}"):
        BuildOptions(plugins={"a::B": "fast"})
    with pytest.raises(UsageError, match="expected forms by name"):
        BuildOptions(plugins="compute")
