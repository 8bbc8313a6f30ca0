"""Kernels chosen by the time of the whole network, with families of the test's making whose times depend on their neighbours."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.cache import Choice, TacticCache
from pytrtplugins.engines.cuda.conv.problem import DirectProvider
from pytrtplugins.engines.cuda.conv.selector import ConvSelector
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.engines.cuda.run import network_timer as module
from pytrtplugins.engines.cuda.run.execution import Execution
from pytrtplugins.engines.cuda.run.network_timer import NetworkClock, choose_in_network
from pytrtplugins.errors import BuildError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.gpu_clock import GpuClock
from tests.engines.cuda.host import NumpyProvider
from tests.passes.nets import Net

ALONE = {"small": 1.0, "large": 1.2, "broken": 1.25}


class Family(NumpyProvider):
    """Kernels that compute what they should, and tell which of them ran; ``broken`` cannot be prepared."""

    name = "family"

    def __init__(self):
        self.ran = []

    def tactics(self, problem):
        return [] if problem.fused else list(ALONE)

    def prepare(self, problem, tactic, operands, scratch):
        if tactic == "broken":
            raise BuildError("too large")
        operands.on_device(HostDevice(), [tactic], 4, lambda: np.zeros(4, np.uint8))
        launch = super().prepare(problem, "numpy", operands, scratch)

        def told(x, y, residual, stream):
            self.ran.append(tactic)
            launch(x, y, residual, stream)

        return told


class Alone:
    """Chooses by the times of kernels alone."""

    def fastest(self, problem, operands, providers):
        if problem.fused:
            return Choice("unfused", "steps")
        best, *others = ALONE
        return Choice("family", best, ALONE[best], 2, tuple(("family", name, ALONE[name]) for name in others))


def plan_of(model):
    return make_plan(lower(prepare(model), ["stem"], float_type=DType.FLOAT16), {"N": 1})


@pytest.fixture(scope="module")
def plan():
    """Three convolutions that pose different problems; the last one writes the linear output, in steps."""
    net = Net(channels=8)
    x = net.conv(net.conv("data", "a", channels=16), "b", channels=24)
    return plan_of(net.model(net.conv(x, "c", channels=8)))


def chosen(plan, family, cache=None):
    device = HostDevice()
    selector = ConvSelector(device, [family, DirectProvider(device)], None, cache and (lambda: cache), Alone())
    selector.choose(plan)
    return selector


def settle(plan, selector, family, cost):
    """Choose by what a run costs, told the kernels that ran; gives how often that was asked."""
    asked = []

    def measure(execution):
        family.ran.clear()
        execution.queue(None)
        asked.append(tuple(family.ran))
        return cost(family.ran)

    choose_in_network(plan, selector, lambda tried: Execution(HostDevice(), plan, tried.launch), measure)
    return asked


def tactics(plan, selector):
    """Of the convolutions, the last one's behind its fused output."""
    steps = [step for step in plan.steps if step.kind == "conv"]
    return [selector.chosen(selector.problem(step, plan))[-1][1].tactic for step in steps]


@pytest.mark.parametrize(
    ("cost", "wanted"),
    [
        (lambda ran: 10 - 2 * (ran[1] == "large"), ["small", "large", "small"]),
        (lambda ran: 10 - ran.count("large"), ["large"] * 3),
        (lambda ran: 10 + ran.count("large"), ["small"] * 3),
        (lambda ran: 10.0 - 0.001 * ran.count("large"), ["small"] * 3),
    ],
    ids=["one", "all", "none", "noise"],
)
def test_a_kernel_stays_where_the_network_is_faster_with_it(plan, cost, wanted):
    family = Family()
    selector = chosen(plan, family)
    assert tactics(plan, selector) == ["small"] * 3
    asked = settle(plan, selector, family, cost)
    assert tactics(plan, selector) == wanted
    assert asked[0] == ("small",) * 3
    changes = [sum(a != b for a, b in zip(*runs, strict=True)) for runs in itertools.pairwise(asked)]
    assert max(changes) <= 2


def test_a_gain_that_does_not_come_again_is_none(plan):
    family, seen = Family(), []

    def cost(ran):
        seen.append(tuple(ran))
        return 5.0 if "large" in ran and seen.count(tuple(ran)) == 1 else 10.0

    selector = chosen(plan, family)
    settle(plan, selector, family, cost)
    assert tactics(plan, selector) == ["small"] * 3


def test_outputs_are_the_same_and_only_what_runs_is_packed(plan):
    family = Family()
    selector = chosen(plan, family)

    def run():
        execution = Execution(HostDevice(), plan, selector.launch)
        x = np.random.default_rng(0).random(execution.input("data").shape)
        execution.input("data")[...] = x
        execution.queue(None)
        (name,) = plan.outputs
        return execution.output(name).copy()

    settle(plan, selector, family, lambda ran: 10 - ran.count("large"))
    after = run()
    assert {form for forms in selector.packed().values() for form in forms if "small" in str(form)} == set()
    selector.choices.update(chosen(plan, family).choices)
    assert np.array_equal(run(), after)


def test_what_was_found_is_remembered_for_this_network_alone(plan, tmp_path):
    family, cache = Family(), TacticCache({"gpu": "test"}, tmp_path)
    first = chosen(plan, family, cache)
    assert settle(plan, first, family, lambda ran: 10 - ran.count("large"))
    again = chosen(plan, family, TacticCache({"gpu": "test"}, tmp_path))
    assert tactics(plan, again) == ["small"] * 3
    assert settle(plan, again, family, lambda ran: 10 + ran.count("large")) == []
    assert tactics(plan, again) == ["large"] * 3
    net = Net(channels=8)
    other = plan_of(net.model(net.conv("data", "a", channels=16)))
    here = chosen(other, family, TacticCache({"gpu": "test"}, tmp_path))
    assert settle(other, here, family, lambda ran: 10 + ran.count("large"))
    assert tactics(other, here) == ["small"]


class FamilyOfFused(Family):
    """Writes the linear output itself, too; its values are not asked for."""

    def prepare(self, problem, tactic, operands, scratch):
        if tactic == "fused":
            return lambda x, y, residual, stream: self.ran.append("fused")
        return super().prepare(problem, tactic, operands, scratch)


class FusedAlone(Alone):
    """One kernel is the fastest alone, and its steps are hardly slower."""

    def fastest(self, problem, operands, providers):
        if problem.fused:
            return Choice("family", "fused", 1.0, 1, (("unfused", "steps", 1.1),))
        return super().fastest(problem, operands, providers)


@pytest.mark.parametrize("interrupted", [False, True])
def test_steps_that_win_in_the_network_are_chosen_from_what_is_on_the_disk(plan, tmp_path, interrupted):
    def steps_win(ran):
        return 10 + 5 * ran.count("fused")

    def build():
        device, family = HostDevice(), FamilyOfFused()
        cache = TacticCache({"gpu": "test"}, tmp_path)
        selector = ConvSelector(device, [family, DirectProvider(device)], None, lambda: cache, FusedAlone())
        selector.choose(plan)
        return selector, family

    def stopped(ran):
        raise KeyboardInterrupt

    selector, family = build()
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            settle(plan, selector, family, stopped)
    else:
        assert len(settle(plan, selector, family, steps_win)) > 1
    selector, family = build()
    assert bool(settle(plan, selector, family, steps_win)) == interrupted
    last = [step for step in plan.steps if step.kind == "conv"][-1]
    whole, alone = (choice for _, choice in selector.chosen(selector.problem(last, plan)))
    assert (whole.title, alone.provider) == ("unfused steps", "family")


@pytest.mark.parametrize(
    ("spans", "median"),
    [([1 / 16] * 5, 62.5), ([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1 / 16], 125), ([8, 1 / 8, 1 / 4, 1, 2], 1000)],
)
def test_a_networks_time_is_the_median_of_five_spans_in_microseconds(spans, median):
    """Of milliseconds; a span is 2 ms of runs as long as the first one, two runs at least."""
    clock = GpuClock()
    count = max(2, math.ceil(2 / spans[0]))
    left = iter([spans[0]] * 3 + [span for span in spans for _ in range(count)])
    execution = SimpleNamespace(capture=lambda stream: None, queue=lambda stream: clock.work(next(left))())
    device = SimpleNamespace(xp=SimpleNamespace(cuda=clock))
    assert NetworkClock(device)(execution) == pytest.approx(median)
    assert not list(left)


def changed_plans(plan):
    """The plan with one fact of what runs changed, by the fact's name."""
    first, *others = plan.steps
    output = plan.tensors[first.outputs[0]]
    wider = replace(output, format=replace(output.format, pitch=output.format.pitch + 8))
    return {
        "no change": plan,
        "streams": replace(plan, schedule=replace(plan.schedule, streams=(1, *plan.schedule.streams[1:]))),
        "order": replace(plan, steps=(*others, first)),
        "a step": replace(
            plan, steps=plan.steps[1:], schedule=replace(plan.schedule, streams=plan.schedule.streams[1:])
        ),
        "kind": replace(plan, steps=(replace(first, kind="generic", op="Relu"), *others)),
        "operator": replace(plan, steps=(replace(first, kind="generic", op="Neg"), *others)),
        "format": replace(plan, tensors={**plan.tensors, first.outputs[0]: wider}),
    }


def test_what_was_found_for_a_network_holds_for_no_other(plan):
    selector = chosen(plan, Family())
    plans = changed_plans(plan)
    digests = {name: module.plan_digest(changed, selector) for name, changed in plans.items()}
    digests["tf32"] = module.plan_digest(plan, SimpleNamespace(problem=lambda step, of: SimpleNamespace(key="another")))
    assert len(set(digests.values())) == len(digests), digests
    assert module.plan_digest(plan, selector) == digests["no change"]


def test_a_network_with_steps_outside_of_the_graph_is_left_as_it_is():
    net = Net(channels=8)
    plan = plan_of(net.model(net.add("NonZero", [net.conv("data", "a", channels=8)], "y")))
    assert not all(step.capturable for step in plan.steps)
    family = Family()
    selector = chosen(plan, family)
    assert settle(plan, selector, family, lambda ran: 10 - ran.count("large")) == []
    assert tactics(plan, selector) == ["small"]
