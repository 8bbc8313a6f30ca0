"""The parts of a step, on a CPU."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

from benchmarks.training import parts, subject  # noqa: E402
from tests.samples.training.toy import advance, make, state  # noqa: E402
from training.ranks import Ranks  # noqa: E402

PAUSE = 2e-3  # seconds


def nothing() -> None:
    """What waits for a CPU."""


def test_each_part_has_its_own_time_and_steps_are_what_they_were() -> None:
    loop, plain = make(steps=50), make(steps=50)
    forward = loop.mode.forward

    def slow(*inputs):
        time.sleep(PAUSE)
        return forward(*inputs)

    loop.mode.forward = slow
    found = parts.parts_of(loop, nothing)
    assert list(found) == ["augment", "forward", "backward", "update", "average"]
    assert found["forward"] >= 1e3 * PAUSE
    assert all(value > 0 for value in found.values())
    assert loop.mode.forward is slow
    advance(plain, loop.step)
    assert all(torch.equal(tensor, state(plain)[name]) for name, tensor in state(loop).items())


def test_a_captured_step_has_one_part_for_what_is_replayed() -> None:
    loop = make(steps=50)
    for parameter in loop.task.network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    loop._compute = lambda *_: torch.zeros(2)
    assert list(parts.parts_of(loop, nothing)) == ["replay", "update", "average"]


def test_kernels_are_told_with_their_number_longest_first() -> None:
    a = torch.ones(64, 64)

    def step() -> None:
        for _ in range(4):
            torch.mm(a, a)

    (name, spent, _), *rest = parts.kernels_of(step, nothing, torch.device("cpu"))
    assert name == "all"
    assert spent >= sum(each[1] for each in rest) * 0.999
    assert [each[1] for each in rest] == sorted((each[1] for each in rest), reverse=True)
    assert {each[0]: each[2] for each in rest}["aten::mm"] == 4
    assert parts.host_time(step, nothing) > 0


@pytest.mark.slow
def test_launches_are_told_by_part() -> None:
    device = torch.device("cpu")
    loop = subject.make_loop("compact", 2, [64], Ranks(0, 1, device, False))
    loop.advance()
    found = parts.launches_of(loop, nothing, device)
    assert list(found) == ["augment", "network forward", "loss forward"]
    assert all(count > 10 for count in found.values())
    assert loop.step == 1
