"""Rates and requests at a time, in one process and in several."""

import os

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.shared import rate_limiter as module
from pytrtplugins.serving.shared.rate_limiter import RateLimiter

needs_memfd = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")


class Clock:
    def __init__(self):
        self.now = 10**12

    def monotonic_ns(self):
        return self.now


class Pausing(Clock):
    """A clock that waits, where it is read, until somebody closes the other end of a pipe; it says when that is."""

    def __init__(self, reached, go):
        super().__init__()
        self.reached, self.go = reached, go

    def monotonic_ns(self):
        os.write(self.reached, b".")
        os.read(self.go, 1)
        return self.now


def fork(work):
    """A child that does some work, which gives its exit code."""
    child = os.fork()
    if not child:
        try:
            os._exit(work())
        except BaseException:
            os._exit(255)
    return child


def exit_code(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def allowed(meter, count, name="a", rate=None, burst=1, concurrent=None):
    """How many of so many requests are."""
    done = 0
    for _ in range(count):
        try:
            meter.take(name, rate, burst, concurrent)
        except RequestError:
            continue
        done += 1
    return done


def test_a_burst_comes_at_once_and_then_one_for_each_step(clock):
    meter = RateLimiter()
    meter.name(["a"])
    assert allowed(meter, 10, rate=2.0, burst=4) == 4
    clock.now += 500_000_000
    assert allowed(meter, 10, rate=2.0, burst=4) == 1
    clock.now += 60 * 10**9
    assert allowed(meter, 10, rate=2.0, burst=4) == 4


def test_the_refusal_says_when_to_come_again(clock):
    meter = RateLimiter()
    meter.name(["a"])
    meter.take("a", 0.1, 1, None)
    with pytest.raises(RequestError, match=r"key 'a' allows 0\.1 requests a second") as caught:
        meter.take("a", 0.1, 1, None)
    assert (caught.value.status, caught.value.retry_after) == (429, 10)
    clock.now += 10 * 10**9
    meter.take("a", 0.1, 1, None)


def test_requests_at_a_time_end_with_their_answers():
    meter = RateLimiter()
    meter.name(["a", "b"])
    assert allowed(meter, 5, concurrent=2) == 2
    meter.give_back("a")
    assert allowed(meter, 5, concurrent=2) == 1
    assert allowed(meter, 5, name="b", concurrent=2) == 2


def test_a_change_of_the_keys_keeps_what_is_under_way():
    meter = RateLimiter()
    meter.name(["a", "b"])
    allowed(meter, 1, concurrent=9)
    allowed(meter, 2, name="b", concurrent=9)
    meter.name(["b"])
    assert allowed(meter, 5, name="b", concurrent=3) == 1
    meter.give_back("a")  # whose key is gone
    meter.name(["c", "b", "a"])
    assert allowed(meter, 5, concurrent=1) == 1
    assert allowed(meter, 5, name="c", concurrent=1) == 1


def test_a_key_in_the_place_of_another_does_not_wait_for_it(clock):
    meter = RateLimiter()
    meter.name(["slow", "fast"])
    assert allowed(meter, 2, name="slow", rate=0.001) == 1
    assert allowed(meter, 60, name="fast", rate=50.0, burst=50) == 50
    meter.name(["fast"])  # where the slow one was
    clock.now += 10**9
    assert allowed(meter, 60, name="fast", rate=50.0, burst=50) == 50
    assert allowed(meter, 60, name="fast", rate=50.0, burst=50) == 0


@needs_memfd
def test_processes_count_together_and_one_that_died_is_forgotten(clock):
    descriptor = RateLimiter.create(2)
    first, second = RateLimiter(descriptor, 2, 0), RateLimiter(descriptor, 2, 1)
    for each in (first, second):
        each.name(["a"])
    assert [allowed(each, 5, rate=1.0, burst=3) for each in (first, second)] == [3, 0]
    clock.now += 10**10
    assert [allowed(each, 5, concurrent=8) for each in (first, second)] == [5, 0]
    replaced = RateLimiter(descriptor, 2, 0)
    replaced.name(["a"])
    assert allowed(second, 20, concurrent=8) == 8
    os.close(descriptor)


@needs_memfd
@pytest.mark.parametrize(
    "change",
    [lambda meter: meter.take("b", 1.0, 1, None), lambda meter: meter.charge("b", 1.0, 1)],
    ids=["take", "charge"],
)
def test_a_change_of_a_key_is_locked_against_other_processes_and_other_keys_are_not(monkeypatch, change):
    """A child stands still within a change; this process tries to lock its key, and others."""
    fcntl = pytest.importorskip("fcntl")
    descriptor = RateLimiter.create(2)
    (reached, says), (go, goes) = os.pipe(), os.pipe()

    def take():
        monkeypatch.setattr(module, "time", Pausing(says, go))
        os.close(goes)
        meter = RateLimiter(descriptor, 2, 1)
        meter.name(["a", "b", "c"])
        change(meter)
        return 0

    child, locked = fork(take), []
    try:
        assert os.read(reached, 1) == b"."
        for place in range(3):
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 8, 8 * place)
                fcntl.lockf(descriptor, fcntl.LOCK_UN, 8, 8 * place)
            except OSError:
                locked.append(place)
    finally:
        os.close(goes)
        assert exit_code(child) == 0
        for each in (descriptor, reached, says, go):
            os.close(each)
    assert locked == [1]


@needs_memfd
@pytest.mark.parametrize("processes", [2, 8])
def test_processes_at_a_time_allow_no_more_than_one_would(processes):
    descriptor = RateLimiter.create(processes)
    (go, goes), each_asks = os.pipe(), 100

    def asks(number):
        os.close(goes)
        meter = RateLimiter(descriptor, processes, number)
        meter.name(["a"])
        os.read(go, 1)  # they begin together
        return allowed(meter, each_asks, rate=0.001, burst=processes * each_asks // 8)

    children = [fork(lambda number=number: asks(number)) for number in range(processes)]
    os.close(goes)
    counts = [exit_code(child) for child in children]
    os.close(go)
    os.close(descriptor)
    assert sum(counts) == processes * each_asks // 8
