"""Which kernel runs which convolution, with families of the test's making."""

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.cache import Choice, TacticCache
from pytrtplugins.engines.cuda.conv.problem import DirectProvider, Scratch
from pytrtplugins.engines.cuda.conv.selector import ConvSelector
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.errors import BuildError, KernelError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.interleaving import Interleaving
from tests.passes.nets import Net


class Family:
    """Kernels that are compiled; those of ``broken`` cannot be prepared."""

    name = "family"

    def __init__(self, broken=()):
        self.broken, self.compiled, self.threads = broken, [], set()

    def tactics(self, problem):
        return [] if problem.fused else ["a", "b"]

    def compile(self, problem, tactic):
        self.compiled.append((problem.key, tactic))
        self.threads.add(threading.current_thread())
        if tactic == "b":
            raise KernelError("it does not compile", path="x", line=None)

    def prepare(self, problem, tactic, operands, scratch):
        if tactic in self.broken:
            raise BuildError(f"no {tactic} here")
        operands.on_device(HostDevice(), ["tactic", tactic], 4, lambda: np.zeros(4, np.uint8))
        return lambda x, y, residual, stream: None


class LastOfAll:
    """Packs for every candidate of the family, and chooses one."""

    def __init__(self, tactic="a"):
        self.tactic, self.asked = tactic, []

    def fastest(self, problem, operands, providers):
        self.asked.append(problem.key)
        if problem.fused:
            return Choice("unfused", "steps")
        for tactic in providers[0].tactics(problem):
            if tactic not in providers[0].broken:
                providers[0].prepare(problem, tactic, operands, Scratch())
        return Choice("family", self.tactic, 2.5, 1)


@pytest.fixture(scope="module")
def plan():
    """Three convolutions, of which two pose the same problem."""
    net = Net(channels=8)
    x = net.conv(net.conv("data", "a", channels=8), "b", channels=8)
    y = net.add("MaxPool", [net.conv(x, "c", channels=8)], "y", kernel_shape=[3, 3])
    return make_plan(lower(prepare(net.model(y)), ["stem"], float_type=DType.FLOAT16), {"N": 1})


def selector(family, timer=None, cache=None, known=None):
    device = HostDevice()
    return ConvSelector(device, [family, DirectProvider(device)], known, cache, timer)


def convolutions(plan):
    return [step for step in plan.steps if step.kind == "conv"]


def launched(chosen, plan):
    """The selector behind launches of all convolutions."""
    for step in convolutions(plan):
        chosen.launch(step, plan, Scratch())
    return chosen


def test_every_candidate_is_compiled_in_other_threads_and_each_problem_is_timed_once(plan):
    family, timer = Family(), LastOfAll()
    chosen = selector(family, timer)
    chosen.choose(plan)
    assert len(timer.asked) == len(set(timer.asked))
    assert {tactic for _, tactic in family.compiled} <= {"a", "b"}
    assert threading.main_thread() not in family.threads
    assert set(chosen.choices) == set(timer.asked)


def test_the_time_for_a_librarys_plans_begins_anew_and_is_shared_by_the_problems_that_are_unknown(plan):
    calls, timer = [], LastOfAll()
    chosen = selector(Family(), timer)
    chosen.search_time = SimpleNamespace(begin=lambda: calls.append("begin"), expect=calls.append)
    for _ in range(2):
        chosen.choose(plan)
    assert calls == ["begin", *range(len(timer.asked), 0, -1), "begin"]


def test_only_the_chosen_kernels_operands_stay_on_the_device(plan):
    chosen = launched(selector(Family(), LastOfAll()), plan)
    assert {form for forms in chosen.packed().values() for form in forms} == {"tactic a"}


def test_known_choices_are_neither_timed_nor_are_their_rivals_compiled(plan):
    first = selector(Family(), LastOfAll())
    first.choose(plan)
    family, timer = Family(), LastOfAll()
    selector(family, timer, known=first.choices).choose(plan)
    assert timer.asked == []
    assert sorted(family.compiled) == sorted(
        (key, "a") for key, choice in first.choices.items() if choice.provider == "family"
    )


@pytest.mark.parametrize("built", [False, True])
def test_a_run_that_has_to_wait_for_new_kernels_says_so(plan, caplog, built):
    chosen = selector(Family(), LastOfAll())
    chosen.built = built
    chosen.choose(plan)
    assert ("kernels are timed first, once (convolutions: 1)" in caplog.text) == built
    caplog.clear()
    chosen.choose(plan)
    assert not caplog.text


def test_a_choice_on_disk_that_does_not_work_any_more_is_made_again(plan, tmp_path):
    selector(Family(), LastOfAll("b"), lambda: TacticCache({"gpu": "test"}, tmp_path)).choose(plan)
    cache = TacticCache({"gpu": "test"}, tmp_path)
    chosen = launched(selector(Family(broken="b"), LastOfAll("a"), lambda: cache), plan)
    assert {row.choice.tactic for row in chosen.kernels()} == {"a"}
    assert "b" not in {cache.get(key).tactic for key in chosen.choices}


def test_a_choice_of_a_file_that_does_not_work_is_an_error(plan):
    first = selector(Family(), LastOfAll("b"))
    first.choose(plan)
    chosen = selector(Family(broken="b"), LastOfAll("a"), known=first.choices)
    with pytest.raises(BuildError, match="no b here"):
        chosen.launch(convolutions(plan)[0], plan, Scratch())


def test_the_table_has_one_row_for_each_convolution_that_differs(plan):
    chosen = launched(selector(Family(), LastOfAll()), plan)
    rows = chosen.kernels()
    assert sorted(name for row in rows for name in row.layers) == sorted(step.name for step in convolutions(plan))
    assert len(rows) < len(convolutions(plan))
    assert all(row.choice == Choice("family", "a", 2.5, 1) for row in rows)
    assert rows[0].problem == "3x3, 8 → 8 channels, 1 x 8x8, float16 → float16"


def test_without_a_timer_the_first_kernel_of_the_first_family_is_taken_and_alone_compiled(plan):
    family = Family()
    chosen = selector(family)
    chosen.choose(plan)
    assert sorted(family.compiled) == sorted((key, "a") for key in chosen.choices)
    assert set(chosen.choices.values()) == {Choice("family", "a")}


def test_choices_on_disk_are_not_asked_for_where_a_file_holds_all(plan):
    first = selector(Family(), LastOfAll())
    first.choose(plan)

    def forbidden():
        raise AssertionError("the cache was opened")

    chosen = selector(Family(), LastOfAll(), forbidden, known=first.choices)
    chosen.choose(plan)
    for step in convolutions(plan):
        chosen.launch(step, plan, Scratch())


def test_what_is_made_of_steps_is_told_with_its_convolution():
    net = Net(channels=8)
    y = net.add("MaxPool", [net.conv("data", "a", channels=8)], "y", kernel_shape=[2, 2], strides=[2, 2])
    pooled = make_plan(lower(prepare(net.model(y)), ["stem"], float_type=DType.FLOAT16), {"N": 1})
    chosen = launched(selector(Family(), LastOfAll()), pooled)
    assert [row.choice.title for row in chosen.kernels()] == ["unfused steps", "family a"]
    assert [row.layers for row in chosen.kernels()] == [("a",), ("a",)]


def test_a_bar_says_what_is_being_timed(plan, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    selector(Family(), LastOfAll()).choose(plan, progress=True)
    shown = capsys.readouterr().err
    assert "choosing kernels" in shown
    assert "1/1" in shown
    known = selector(Family(), LastOfAll())
    known.choose(plan)
    known.choose(plan, progress=True)
    assert capsys.readouterr().err == ""


def test_a_librarys_kernel_that_gives_wrong_numbers_is_not_taken_where_nothing_is_timed(plan):
    class Library(Family):
        name = "cudnn"

    asked, library, device = [], Library(), HostDevice()

    def is_right(problem, operands, provider, tactic):
        asked.append((provider.name, tactic))
        return tactic == "b"

    made = ConvSelector(device, [library, Family(), DirectProvider(device)], is_right=is_right)
    made.choose(plan)
    assert {choice.title for choice in made.choices.values()} == {"cudnn b"}
    assert set(asked) == {("cudnn", "a"), ("cudnn", "b")}


USES = {
    "choose": lambda chosen, plan: chosen.choose(plan),
    "launch": lambda chosen, plan: chosen.launch(convolutions(plan)[0], plan, Scratch()),
    "packed": lambda chosen, plan: chosen.packed(),
    "weight_bytes": lambda chosen, plan: chosen.weight_bytes(),
}


@pytest.mark.parametrize("second", USES)
@pytest.mark.parametrize("first", ["choose", "launch"])
def test_a_thread_waits_until_another_has_chosen(plan, first, second):
    """Else a problem is timed twice, or operands are copied while they are packed."""

    class Waiting(LastOfAll):
        def fastest(self, *arguments):
            both.inside()
            return super().fastest(*arguments)

    timer = Waiting()
    chosen = selector(Family(), timer)
    both = Interleaving(chosen._lock)
    chosen._lock = both.lock
    both.run(lambda: USES[first](chosen, plan), lambda: USES[second](chosen, plan))
    assert both.order == ["first", "second"]
    assert len(timer.asked) == len(set(timer.asked))
