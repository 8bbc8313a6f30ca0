"""Which checks run on what: their order, what they need, and why some do not apply."""

import itertools

import pytest

import pytrtplugins as ptp
from pytrtplugins.check import isolate, run
from pytrtplugins.check.cases import Case
from pytrtplugins.check.run import check_names, check_plugin
from pytrtplugins.check.search import Trial
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


def test_a_check_needs_those_before_it_alone_and_what_these_need_of_enqueue():
    needs = {name: set(run._NEEDS.get(name, ())) for name in NAMES}
    assert needs.keys() >= run._NEEDS.keys()
    for name, before in needs.items():
        assert before <= {*NAMES[: NAMES.index(name)]} | {"clone", "serialization"}, name
    plain = {
        "enqueue writes all",
        "enqueue",
        "repeated runs",
        "graph capture",
        "enqueue on the GPU",
        "two threads",
        "independent results",
    }
    for name, before in needs.items():
        for other in before & (plain - {"enqueue on the GPU", "two threads", "graph capture", "repeated runs"}):
            assert needs[other] <= before, (name, other)
        if before & {"enqueue writes all", "enqueue on the GPU"} or name in (
            "enqueue writes all",
            "enqueue on the GPU",
        ):
            assert before >= {"clone", "memory", "input unchanged", "thread order"}, name


def test_an_engine_is_asked_after_all_that_would_fail_on_it_too():
    before = {"clone", "memory", "input unchanged", "thread order", "enqueue writes all", "enqueue", "repeated runs"}
    assert {*run._ENGINE_NEEDS} == before | {"ONNX node", "decomposition"}


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


def test_steps_have_the_cases_that_their_checks_need():
    cases = [case(2), case(3), case(4, role="other format"), case(5, role="not run")]
    steps = {step.name: step for step in run._steps(Enqueued(), cases)}
    assert [*steps] == NAMES
    assert steps["dims"].needs == ()
    assert steps["determinism"].needs == ("dims", "formats", "dtypes")
    assert (steps["batch"].cases, steps["batch"].max_attempts, steps["batch"].apart) == (cases[:2], 80, True)
    assert (steps["clone"].needs, steps["ONNX node"].apart) == (("dims", "formats", "dtypes", "determinism"), False)
    assert [len(steps[name].cases) for name in ("two threads", "damaged bytes", "enqueue on the GPU")] == [1, 1, 3]
    assert steps["damaged bytes"].max_attempts == 10
    assert list(run._steps(Enqueued(), [])) == []
    with_reference = list(run._steps(Enqueued(), cases, Plain()))[-1]
    assert (with_reference.name, with_reference.cases, with_reference.max_attempts) == ("reference", cases[:3], 40)


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


def test_own_arrays_bring_their_dims_and_variants_are_of_classes_alone():
    given = run.own_inputs(Plain(), [[[1.0, 2.0]]])
    cases, remark = run._all_cases(Plain(), None, given, 0, Trial(), vary=False)
    assert ([found.dims for found in cases], remark) == ([((1, 2),)], "")
    varied, _ = run._all_cases(Plain(), [(2, 3)], (), 0, Trial(), vary=True)
    assert len({found.plugin.factor for found in varied}) > 1
    alone, _ = run._all_cases(Plain(), [(2, 3)], (), 0, Trial(), vary=False)
    assert {found.plugin.factor for found in alone} == {1}
    assert run._all_cases(Plain(), [], (), 0, Trial(), vary=False) == ([], "shapes= is empty")
