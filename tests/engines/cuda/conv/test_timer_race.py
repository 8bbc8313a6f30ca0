"""A whole race of kernels on a clock of its own: what is fast and wrong never wins."""

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.problem import ConvProblem, Operands
from pytrtplugins.engines.cuda.conv.timer import Timer, hold_stream
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.errors import KernelError
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import NumpyProvider

SIDE = 128  # so many values that the norm does not show a single one


class Clock:
    """Milliseconds: the GPU's, which kernels say they take, and the host's, which queueing takes."""

    now = host = 0.0
    queueing = 0.0


class Stream:
    """Work waits for the host that queues it, and for what a function of the host holds up."""

    def __init__(self, non_blocking):
        self._begun, self._held, self._waiting = None, None, []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def queue(self, work):
        Clock.host += Clock.queueing
        if self._held is None:
            Clock.now = max(Clock.now, Clock.host)
            work()
        else:
            self._waiting.append(work)

    def launch_host_func(self, function, argument):
        self._held = function

    def synchronize(self):
        if self._held is not None:
            self._held(None)
            self._held, waiting, self._waiting = None, self._waiting, []
            Clock.now = max(Clock.now, Clock.host)
            for work in waiting:
                work()

    def begin_capture(self):
        self._begun = Clock.now

    def end_capture(self):
        took = Clock.now - self._begun

        def replay():
            Clock.now += took

        return SimpleNamespace(launch=lambda stream: stream.queue(replay))


class Event:
    def record(self, stream):
        def note():
            self.at = Clock.now

        stream.queue(note)


class Gpu(HostDevice):
    """NumPy, with streams, graphs and events that know nothing but the clock."""

    capability, cache = 80, 0
    cuda = SimpleNamespace(Stream=Stream, Event=Event, get_elapsed_time=lambda first, last: last.at - first.at)
    xp = SimpleNamespace(**vars(np), cuda=cuda)


RIGHT = dict[str, Any]()


class Oracle(NumpyProvider):
    def prepare(self, problem, tactic, operands, scratch):
        return Kernel("oracle", 0.0).prepare(problem, tactic, operands, scratch)


class Kernel:
    """The right result, changed by ``spoil``, in ``took`` milliseconds."""

    def __init__(self, name, took, spoil=lambda values: None, before=lambda: None):
        self.name, self._took, self._spoil, self._before = name, took, spoil, before

    def tactics(self, problem):
        return ["only"]

    def prepare(self, problem, tactic, operands, scratch):
        right = NumpyProvider().prepare(problem, "taps", operands, scratch)

        def launch(x, y, residual, stream):
            Clock.now += self._took
            self._before()
            if problem not in RIGHT:  # the inputs of a race are always the same
                kept = y.view.copy()
                right(x, y, residual, stream)
                RIGHT[problem] = y.view.copy()
                y.view[...] = kept
            values = RIGHT[problem].copy()
            if self._spoil(values) != "nothing written":
                y.view[...] = values

        return launch


def fails():
    raise KernelError("no such kernel on this GPU")


def problem(dtype, last=None):
    x, y = (channels_last((1, 16, SIDE, SIDE), kind) for kind in (dtype, last or dtype))
    return ConvProblem(x=x, y=y, kernel=(3, 3), pads=(1, 1, 1, 1), tensor_cores=dtype is not DType.FLOAT32)


def operands():
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32)
    return Operands(load=lambda: weights, bias=rng.standard_normal(16).astype(np.float32), y_scale=0.02)


def put(index, change):
    def spoil(values):
        values[index] = change(values[index].astype(np.float32)).astype(values.dtype)

    return spoil


SPOILED = {
    "the last row": put((..., slice(-1, None), slice(None)), lambda v: 0 * v),
    "the last channel": put((slice(None), -1), lambda v: v + 1),
    "one value": put((0, 3, 5, 7), lambda v: v - 1),
    "the values of two pixels exchanged": put((..., 9, slice(4, 6)), lambda v: v[..., ::-1]),
    "everything, by 1 %": put(..., lambda v: 1.01 * v),
    "no sign": put(..., np.abs),
    "not a number": put((0, 0, 0, 0), lambda v: v * np.float32(np.nan)),
    "nothing written": lambda values: "nothing written",
}
KINDS = {
    "float16": problem(DType.FLOAT16),
    "float32": problem(DType.FLOAT32),
    "last": problem(DType.FLOAT16, DType.FLOAT32),
}


def race(*kernels, asked=KINDS["float16"]):
    return Timer(Gpu(), Oracle()).fastest(asked, operands(), kernels)


@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fast_kernel_with_wrong_numbers_loses(kind, spoiled):
    wrong = Kernel("wrong", 1.0, SPOILED[spoiled])
    choice = race(wrong, Kernel("right", 5.0), Kernel("slow", 9.0), asked=KINDS[kind])
    assert (choice.provider, choice.tactic, choice.rivals) == ("right", "only", 2)
    assert choice.microseconds == pytest.approx(5000)


@pytest.mark.parametrize("step", [2, 3])
def test_one_code_that_is_wrong_by_more_than_a_step_loses(step):
    wrong = Kernel("wrong", 1.0, put((0, 3, 5, 7), lambda v: np.where(v > 0, v - step, v + step)))
    assert race(wrong, Kernel("right", 5.0), asked=problem(DType.INT8)).provider == "right"


def test_of_right_kernels_the_fastest_wins():
    choice = race(Kernel("slow", 5.0), Kernel("fast", 2.0), Kernel("middle", 3.0))
    assert (choice.provider, choice.rivals) == ("fast", 2)


def test_a_kernel_that_fails_is_passed_over():
    assert race(Kernel("broken", 1.0, before=fails), Kernel("right", 5.0)).provider == "right"


def test_where_all_are_wrong_none_is_chosen():
    with pytest.raises(ValueError, match="no kernel works"):
        race(Kernel("wrong", 1.0, SPOILED["one value"]), Kernel("broken", 1.0, before=fails))


def test_a_host_that_is_slow_in_queueing_does_not_count(monkeypatch):
    monkeypatch.setattr(Clock, "queueing", 0.0)
    monkeypatch.setattr(Clock, "host", Clock.now)

    def slow_down():
        Clock.queueing = 1000.0

    def speed_up():
        Clock.queueing = 0.0

    choice = race(Kernel("fast", 2.0, before=slow_down), Kernel("middle", 3.0, before=speed_up))
    assert choice.provider == "fast"
    assert choice.microseconds == pytest.approx(2000)


@pytest.mark.parametrize("collecting", [True, False])
def test_no_garbage_is_collected_while_a_stream_is_held(collecting):
    before, stream, seen = gc.isenabled(), Stream(non_blocking=True), []
    (gc.enable if collecting else gc.disable)()
    try:
        with hold_stream(stream):
            stream.queue(lambda: seen.append(gc.isenabled()))
        assert seen == [False]
        assert gc.isenabled() is collecting
        with pytest.raises(KernelError), hold_stream(stream):
            fails()
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()


def test_a_held_stream_goes_on_where_the_driver_waits_for_it_before_all_is_queued():
    stream, ran = Stream(non_blocking=True), []
    with hold_stream(stream):
        stream.queue(lambda: ran.append("queued while it was held"))
        assert not ran
        stream.synchronize()  # as the driver does before it unloads a module
        assert ran
