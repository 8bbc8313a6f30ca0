"""Plans byte by byte: what shares memory is ordered, nothing is written over that is still read, vectors begin at vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.branches import dense, inception, joined, networks, partial, stacked
from tests.engines.cuda.host import host_execution
from tests.engines.cuda.memory_model import accesses, clobbered, misaligned, races, touched
from tests.passes.nets import Net

FLOATS = st.sampled_from([DType.FLOAT32, DType.FLOAT16])
DISABLE = st.sampled_from([(), ("outputs",), ("concat",), ("schedule",)])


def plan_of(model, float_type=DType.FLOAT16, disable=()):
    return make_plan(lower(prepare(model), disable, float_type=float_type), {"N": 2}, disable)


def assert_sound(plan):
    assert races(plan) == []
    assert clobbered(plan) == []
    assert misaligned(plan) == []


@given(networks(), FLOATS, DISABLE)
def test_any_network_of_splits_and_concats_is_sound(model, float_type, disable):
    assert_sound(plan_of(model, float_type, disable))


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("make", [inception, partial, stacked, dense])
def test_blocks_of_branches_are_sound(make, float_type):
    plan = plan_of(make(), float_type)
    assert_sound(plan)
    if make is inception:
        assert set(plan.schedule.streams) > {0}  # else nothing could race


@pytest.mark.parametrize("channels", [(4, 8, 4), (4, 16), (12, 8, 16), (8, 4, 8)])
@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
def test_a_part_that_would_begin_within_16_bytes_is_copied(channels, float_type):
    net = Net(channels=8)
    parts = [net.conv("data", f"c{index}", count, kernel=3) for index, count in enumerate(channels)]
    plan = plan_of(joined(net, parts, sum(channels)), float_type)
    assert_sound(plan)
    vector = 16 // float_type.numpy.itemsize
    firsts = np.cumsum([0, *channels[:-1]])
    copied = {step.inputs[0] for step in plan.steps if step.op == "Concat" and step.kind == "reformat"}
    places = zip(parts, firsts, channels, strict=True)
    assert copied == {name for name, first, count in places if first % vector or count % vector}


@pytest.mark.parametrize(("before", "behind", "float_type"), [(12, 4, DType.FLOAT16), (6, 2, DType.FLOAT32)])
def test_parts_of_one_tensor_that_would_begin_within_16_bytes_are_copied(before, behind, float_type):
    net = Net(channels=8)
    whole = net.conv("data", "whole", 16, kernel=3)
    net.add("Split", [whole, net.constant("sizes", np.array([8, 8], np.int64))], "left", 8, axis=1)
    net.nodes[-1].output.append("right")
    net.channels["right"] = 8
    parts = [net.conv("data", "first", before), "left", "right", net.conv("data", "end", behind)]
    plan = plan_of(joined(net, parts, before + 16 + behind), float_type)
    assert_sound(plan)
    assert plan.tensors[whole].storage != plan.tensors["joined"].storage


@given(networks(), FLOATS)
def test_a_step_writes_nothing_but_what_the_model_of_memory_says(model, float_type):
    """Each step runs on two arenas that are equal where it reads, and differ in every bit elsewhere: what it writes is equal after."""
    x = {"data": np.random.default_rng(2).standard_normal((2, 8, 8, 8), dtype=np.float32)}
    execution = host_execution(prepare(model), x, float_type)
    arena = execution._arena
    given = np.random.default_rng(3).integers(0, 256, arena.size).astype(np.uint8)
    for (reads, writes), (step, launch) in zip(accesses(execution.plan), execution.launches, strict=True):
        left = []
        for flips in (np.uint8(0), np.where(reads, np.uint8(0), np.uint8(255))):
            arena[:] = given ^ flips
            with np.errstate(all="ignore"):
                launch(None)
            left.append(np.array(arena))
        written = np.where(reads, left[0] != given, left[0] == left[1])
        beside = int((written & ~writes).sum())
        assert not beside, f"{step.name} writes {beside} bytes beside its outputs"
        for name in step.outputs if step.kind != "zero" else ():
            whole = written[touched(execution.plan, name, rounded=False)].all()
            assert whole, f"{step.name} leaves bytes of {name} unwritten"
