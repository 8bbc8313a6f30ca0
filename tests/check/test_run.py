"""Which checks run on what: their order, what they need, and why some do not apply."""

import itertools

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import isolate, run
from pytrtplugins.check.cases import Case
from pytrtplugins.check.run import check_names, check_plugin
from pytrtplugins.check.search import Trial
from pytrtplugins.engines import registry
from pytrtplugins.errors import UsageError
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType

F = DType.FLOAT32
NAMES = check_names(engines=[])[1:]


@ptp.plugin(namespace="tests.run")
class Plain(ptp.Plugin):
    factor: int = 1

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * self.factor


@ptp.plugin(namespace="tests.run")
class Enqueued(Plain):
    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = inputs[0]


@ptp.plugin(namespace="tests.run")
class Coded(Enqueued):
    int8 = "requantize"


def case(*dims, plugin=None, dtype=F, **more):
    return Case(plugin or Plain(), (dims,), (dtype,), **more)


def test_checks_run_in_the_order_in_which_each_failure_has_one_cause():
    assert NAMES[:4] == ["dims", "formats", "dtypes", "determinism"]
    places = {name: place for place, name in enumerate(NAMES)}
    for first, second in itertools.pairwise(
        [
            "serialization",
            "clone",
            "memory",
            "thread order",
            "enqueue writes all",
            "enqueue",
            "graph capture",
            "large tensors",
        ]
    ):
        assert places[first] < places[second]
    assert check_names(engines=["null"], sanitize=True, reference=Plain)[-4:] == [
        "reference", "AddressSanitizer", "compute-sanitizer", "engine null",
    ]  # fmt: skip
    assert check_names(engines="reference")[-1] == "engine reference"


APPLIES = {  # check → whether it applies to a plugin with compute alone, with enqueue on arrays, with int8, with kernels
    **dict.fromkeys(("dims", "formats", "batch", "clone", "serialization", "independent results", "input unchanged"), "yyyy"),
    **dict.fromkeys(("kept inputs", "one array twice", "two threads", "ONNX node", "enqueue", "enqueue writes all", "empty batch"), "yyyy"),
    **dict.fromkeys(("memory", "thread order", "repeated runs", "changing dims", "layouts", "enqueue in other types"), "nyyy"),
    **dict.fromkeys(("enqueue on the GPU", "two streams on the GPU"), "nyyy"),
    **dict.fromkeys(("large tensors", "graph capture", "graph capture on the GPU"), "nnny"),
    "decomposition": "nnny",
    "int8 pass-through": "nnny",
}  # fmt: skip
PLUGINS = [Plain(), Enqueued(), Coded(), Reorg(stride=2)]


@pytest.mark.parametrize("name", APPLIES)
def test_checks_that_do_not_apply_say_why(monkeypatch, name):
    monkeypatch.setattr(isolate, "unavailable_reason", lambda plugin: "")
    reasons = [run._does_not_apply(plugin, name) for plugin in PLUGINS]
    assert "".join("n" if reason else "y" for reason in reasons) == APPLIES[name], reasons
    assert all("int8" in reason for reason in reasons if reason) or "int8" not in name


@pytest.mark.parametrize("name", ["memory", "thread order", "large tensors", "TensorRT builds it", "dims", "batch"])
def test_what_needs_a_process_of_its_own_says_why_there_is_none(monkeypatch, name):
    monkeypatch.setattr(isolate, "unavailable_reason", lambda plugin: "no fork")
    reason = run._does_not_apply(Reorg(stride=2), name)
    assert reason == ("" if name in ("dims", "batch") else "no fork")


def test_few_cases_are_the_largest_of_three_plugins_of_at_most_four_axes():
    others = [Plain(factor=number) for number in range(2, 5)]
    cases = [
        case(1),
        case(2),
        case(1, 1, 1, 1, 9),
        *(case(3, plugin=other) for other in others),
        case(7, plugin=others[0]),
    ]
    assert run._select_cases(cases) == [cases[1], cases[6], cases[4]]
    assert run._select_cases(cases[2:3]) == cases[2:3]
    assert run._select_cases([case(2), case(1, 1, 1, 1)]) == [case(1, 1, 1, 1)]
    several = Case(Plain(), ((1,), (1, 1, 1, 1, 9)), (F, F))
    assert run._select_cases([case(2), several]) == [case(2)]


def test_cases_in_other_formats_are_told_apart_by_their_layouts():
    linear, nhwc = case(1, 2, 3, 4, dtype=DType.FLOAT16), case(1, 2, 3, 4, layouts=("nhwc", "linear"))
    assert run._with_layouts([linear, nhwc], nhwc=False) == [linear]
    assert run._with_layouts([linear, nhwc], nhwc=True) == [nhwc]
    step = run._step_of_formats("layouts", run.in_formats, [nhwc], [linear, linear])
    assert (step.cases, step.remark, step.max_attempts) == (
        [nhwc],
        "accepted, not run: 1 more, as float16 -> float16",
        40,
    )
    for name, words in (("layouts", "layouts"), ("enqueue in other types", "types")):
        assert run._step_of_formats(name, run.in_formats, [], []).skip == f"supports_format accepts no other {words}"


STEPS = {  # check → cases, smaller cases that are tried, where it runs, what must have passed before
    "dims": "2 80 apart: ",
    "formats": "2 80 apart: dims",
    "dtypes": "2 80 apart: dims, formats",
    "determinism": "2 80 apart: dims, formats, dtypes",
    "half precision": "2 80 apart: BASIC",
    "symbolic dims": "2 80 apart: BASIC",
    "batch": "2 80 apart: BASIC",
    "non-contiguous input": "2 80 apart: BASIC",
    "serialization": "2 80 apart: BASIC",
    "damaged bytes": "1 10 apart: BASIC, serialization",
    "clone": "2 80 apart: BASIC",
    "memory": "2 80 apart: BASIC, clone",
    "input unchanged": "2 80 apart: BASIC, memory",
    "independent results": "2 80 apart: BASIC",
    "thread order": "2 80 apart: BASIC, clone, memory, input unchanged",
    "enqueue writes all": "2 80 apart: BASIC, RUNS",
    "enqueue": "2 80 apart: BASIC, RUNS, enqueue writes all",
    "graph capture": "2 80 apart: BASIC, RUNS, enqueue writes all, enqueue",
    "large tensors": "1 0 apart: BASIC, RUNS, enqueue writes all, enqueue",
    "repeated runs": "2 80 apart: BASIC, RUNS, enqueue writes all, enqueue",
    "kept inputs": "2 80 apart: BASIC, RUNS, enqueue writes all, enqueue, repeated runs, independent results",
    "changing dims": "2 80 apart: BASIC, RUNS, enqueue writes all, enqueue, repeated runs",
    "empty batch": "2 80 apart: BASIC, RUNS, batch, enqueue writes all, enqueue",
    "enqueue in other types": "1 40 apart: BASIC, ENQUEUE",
    "layouts": "1 40 apart: BASIC, ENQUEUE",
    "one array twice": "2 80 apart: BASIC, RUNS, enqueue writes all, enqueue",
    "two threads": "1 10 apart: BASIC, RUNS, enqueue writes all, enqueue, independent results, repeated runs",
    "int8 pass-through": "2 80 apart: BASIC",
    "TensorRT builds it": "1 10 apart: BASIC, serialization, clone",
    "enqueue on the GPU": "4 80 here: BASIC, RUNS",
    "graph capture on the GPU": "2 80 here: BASIC, RUNS, graph capture, enqueue on the GPU",
    "two streams on the GPU": "2 80 here: BASIC, RUNS, enqueue on the GPU, two threads",
    "ONNX node": "1 10 here: BASIC",
    "decomposition": "1 10 here: BASIC, ONNX node",
    "reference": "4 40 apart: BASIC, RUNS, enqueue writes all",
}  # fmt: skip
GROUPS = {
    "BASIC": "dims, formats, dtypes, determinism",
    "RUNS": "clone, memory, input unchanged, thread order",
    "ENQUEUE": "RUNS, enqueue writes all, enqueue, graph capture, repeated runs, changing dims, empty batch",
}


def test_steps_have_the_cases_that_their_checks_need_and_wait_for_others(monkeypatch):
    monkeypatch.setattr(isolate, "unavailable_reason", lambda plugin: "")
    in_formats = [case(4, role="other format"), case(4, role="other format", layouts=("nhwc", "linear"))]
    plugin, cases = Reorg(stride=2), [case(2), case(3), *in_formats, case(5, role="not run")]
    found = {}
    for step in run._steps(plugin, cases, plugin):
        needs = ", ".join(step.needs)
        for name, members in GROUPS.items():
            needs = needs.replace(members, name)
        found[step.name] = f"{len(step.cases)} {step.max_attempts} {'apart' if step.apart else 'here'}: {needs}"
    assert found == STEPS
    assert [*found] == [*NAMES, "reference"]
    assert {*run._ENGINE_NEEDS} == {
        *run._RUNS,
        "enqueue",
        "enqueue writes all",
        "repeated runs",
        "ONNX node",
        "decomposition",
    }
    assert list(run._steps(plugin, [])) == []


def test_engines_that_compute_are_tried_and_others_by_name_alone(monkeypatch):
    assert "null" not in run._engines("available")
    assert set(run._engines("available")) == {name for name in registry.names() if name != "null"}
    assert run._engines("null") == run._engines(["null"]) == {"null": ""}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"plugin": int}, "expected a class under @plugin, or an instance of one; found <class 'int'>"),
        ({"plugin": ptp.Plugin}, "expected a class under @plugin"),
        ({"shapes": {"z": (1,)}}, "has the inputs x; given are z"),
        ({"shapes": {}}, "has the inputs x; given are none"),
        ({"shapes": {"x": (1,), "y": (1,)}}, "given are x, y"),
        ({"skip": ["odd"]}, "skip: there is no check 'odd'. Checks: dims, formats, dtypes, determinism, "),
        ({"skip": ["compute"]}, "skip: there is no check 'compute'"),
        ({"reference": Reorg}, "expected a plugin class with the fields ['factor']"),
        ({"reference": int}, "expected a plugin class with the fields ['factor']"),
    ],
)
def test_what_cannot_be_checked_is_refused(arguments, text):
    with pytest.raises(UsageError) as caught:
        check_plugin(**{"plugin": Plain, "engines": [], **arguments})
    assert text in str(caught.value)


def test_the_advice_names_inputs_that_differ():
    class Two(ptp.Plugin):
        def output_dims(self, x):
            return x

        def compute(self, x, y):
            return x

    two = ptp.plugin(namespace="tests.run", name="Two")(Two)()
    assert "output_dims has 1 parameters, compute 2" in run._advice(two, (), "")
    assert run._advice(Plain(), (), "").startswith("Do: check_plugin(..., shapes=[(1, 3, 8, 8)])")


@pytest.mark.parametrize(
    ("given", "types"),
    [
        ((), "FLOAT32 INT32 FLOAT32"),
        (([1, 2], [3.0]), "INT64 FLOAT32 FLOAT32"),
        (([1], np.ones(1, np.int32)), "INT64 INT32 INT64"),
    ],
)
def test_the_advice_has_the_types_of_the_inputs_and_an_output_in_the_first_that_is_no_index(given, types):
    class Both(Plain):
        def output_dims(self, x, y):  # type: ignore[override]
            return x

        def compute(self, x, y):  # type: ignore[override]
            return x

    both = ptp.plugin(namespace="tests.run", name="Both")(Both)()
    advice = run._advice(both, run.own_inputs(both, given or None), "")
    assert f"dtypes = ({', '.join(f'ptp.DType.{name}' for name in types.split())})" in advice
    assert ("as those that are given" in advice) is bool(given)


def test_own_arrays_bring_their_dims_and_variants_are_of_classes_alone():
    given = run.own_inputs(Plain(), [[[1.0, 2.0]]])
    cases, remark = run._all_cases(Plain(), None, given, 0, Trial(), vary=False)
    assert ([found.dims for found in cases], remark) == ([((1, 2),)], "")
    varied, _ = run._all_cases(Plain(), [(2, 3)], (), 0, Trial(), vary=True)
    assert len({found.plugin.factor for found in varied}) > 1
    alone, _ = run._all_cases(Plain(), [(2, 3)], (), 0, Trial(), vary=False)
    assert {found.plugin.factor for found in alone} == {1}
    assert run._all_cases(Plain(), [], (), 0, Trial(), vary=False) == ([], "shapes= is empty")
