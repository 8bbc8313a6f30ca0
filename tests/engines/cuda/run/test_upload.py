"""Ordinary arrays on their way to a GPU, by way of page-locked memory, which a list of queued copies stands in for."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins import native
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.plan.input_rounding import InputRounding, find_input_rounding
from pytrtplugins.engines.cuda.run import upload as module
from pytrtplugins.engines.cuda.run.upload import Upload
from pytrtplugins.errors import ExecutionError, UnavailableError, UsageError
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import host_execution
from tests.engines.cuda.stand_in import OnGpu
from tests.passes.nets import Net

pytestmark = pytest.mark.skipif(native.compiled() is None, reason="no native part of this version (make native)")

MEMORY = 3 << 20
STREAM = SimpleNamespace(ptr=7)
QUEUE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Gpu(HostDevice):
    """A GPU that makes copies when it is waited for.

    Attributes:
        queued: Target, source, size and stream of each copy from page-locked memory.
        sent: Sizes of arrays that the driver was given.
        code: What the driver gives for a copy.
    """

    def __init__(self):
        self.queued: list[tuple[int, int, int, int]] = []
        self.sent: list[int] = []
        self.locked: list[np.ndarray] = []
        self.code = 0
        self._queue = QUEUE(lambda *copy: self.queued.append(copy) or self.code)
        self.queue_copy = ctypes.cast(self._queue, ctypes.c_void_p).value or 0

    def is_pinned(self, array):
        return any(array is each for each in self.locked)

    def send(self, array, memory, stream, begin=0):
        self.sent.append(array.nbytes)
        super().send(array, memory, stream, begin)

    def allocate(self, size):
        return super().allocate(size).view(OnGpu)

    def upload(self, array):
        return array.copy().view(OnGpu)

    def memory(self):
        return self.allocate(MEMORY)

    def wait(self):
        for target, source, size, stream in self.queued:
            assert stream == STREAM.ptr
            ctypes.memmove(target, source, size)
        self.queued.clear()


@pytest.fixture(params=[1, 3])
def helpers(request, monkeypatch):
    monkeypatch.setattr(module, "_helpers", lambda: request.param)
    return request.param


def uploading():
    gpu = Gpu()
    memory = gpu.memory()
    return gpu, memory, Upload(gpu, memory)


def bytes_of(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("begin", [0, 16, 4096])
@pytest.mark.parametrize("size", [module._LEAST, module._LEAST + 1, 1000001, 2 << 20])
def test_what_is_sent_arrives_though_the_array_changes_meanwhile(helpers, size, begin):
    (gpu, memory, upload), array = uploading(), bytes_of(size)
    wanted = array.copy()
    upload.send(array, STREAM, begin)
    array[...] = 0
    assert not memory.any()
    gpu.wait()
    np.testing.assert_array_equal(memory[begin : begin + size], wanted)
    assert not memory[:begin].any()
    assert not memory[begin + size :].any()
    assert not gpu.sent


def test_stripes_go_in_order_and_are_of_some_size(helpers):
    gpu, memory, upload = uploading()
    upload.send(bytes_of(2 << 20), STREAM)
    sizes = [size for _, _, size, _ in gpu.queued]
    assert [target for target, *_ in gpu.queued] == [memory.ctypes.data + sum(sizes[:at]) for at in range(len(sizes))]
    assert sum(sizes) == 2 << 20
    assert min(sizes[:-1], default=1 << 18) >= 1 << 18


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(1).random((3, 416, 416), np.float32)[:, :, ::-1],
        np.random.default_rng(1).random((400, 300), np.float32).astype(np.float16).T,
        bytes_of(4 * 500 * 400).reshape(500, 400, 4)[::-1, :, :3],
        np.arange(1 << 17, dtype=np.int64),
        np.zeros((0, 3), np.float32),
        np.array(3, np.int32),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_arrays_of_any_layout_and_type_arrive_row_by_row(helpers, array):
    gpu, memory, upload = uploading()
    upload.send(array, STREAM)
    gpu.wait()
    np.testing.assert_array_equal(memory[: array.nbytes].view(array.dtype).reshape(array.shape), array)


def test_what_is_sent_again_is_right_before_the_first_copy_is_made(helpers):
    gpu, memory, upload = uploading()
    for seed in range(3):
        upload.send(bytes_of(1 << 20, seed), STREAM)
    gpu.wait()
    np.testing.assert_array_equal(memory[: 1 << 20], bytes_of(1 << 20, 2))


def test_small_and_page_locked_arrays_and_all_without_the_native_part_go_by_the_driver(helpers, monkeypatch):
    (gpu, memory, upload), large, locked = uploading(), bytes_of(1 << 20), bytes_of(1 << 19)
    gpu.locked.append(locked)
    upload.send(large[: module._LEAST - 1], STREAM)
    upload.send(locked, STREAM)
    for name, value in (("_part", None), ("_helpers", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda value=value: value)
            upload.send(large, STREAM)
    assert (gpu.sent, gpu.queued) == ([module._LEAST - 1, 1 << 19, 1 << 20, 1 << 20], [])
    np.testing.assert_array_equal(memory[: 1 << 20], large)


@pytest.mark.parametrize(
    ("text", "cores", "found"), [("", 16, 5), ("", 8, 2), ("", 2, 0), ("0", 16, 0), ("1", 2, 1), ("64", 4, 64)]
)
def test_the_environment_or_the_cores_say_how_many_threads_copy(monkeypatch, text, cores, found):
    monkeypatch.setenv(module.COPY_THREADS, text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    assert module._helpers.__wrapped__() == found


@pytest.mark.parametrize("text", ["many", "-1", "65"])
def test_what_is_no_number_of_threads_is_refused(monkeypatch, text):
    monkeypatch.setenv(module.COPY_THREADS, text)
    with pytest.raises(UsageError, match="PYTRT_COPY_THREADS, an environment variable: expected a whole number from 0"):
        module._helpers.__wrapped__()


def test_where_the_host_has_no_memory_to_lock_the_driver_copies(helpers, monkeypatch):
    gpu = Gpu()

    def refuse(size):
        raise UnavailableError("no memory")

    monkeypatch.setattr(gpu, "mapped_memory", refuse)
    upload = Upload(gpu, gpu.memory())
    for _ in range(2):
        upload.send(bytes_of(1 << 20), STREAM)
    assert gpu.sent == [1 << 20] * 2


def test_a_copy_that_the_driver_refuses_is_an_error_with_its_code(helpers):
    gpu = Gpu()
    upload, gpu.code = Upload(gpu, gpu.memory()), 700
    with pytest.raises(ExecutionError, match="with code 700") as caught:
        upload.send(bytes_of(2 << 20), STREAM)
    assert caught.value.code == 700
    assert len(gpu.queued) == 1  # no further copies behind it


def test_uploads_of_eight_threads_at_once_are_right(helpers):
    wrong = []

    def work(seed):
        gpu, memory, upload = uploading()
        for turn in range(20):
            array = bytes_of(1 << 20, 100 * seed + turn)
            upload.send(array, STREAM)
            gpu.wait()
            if not np.array_equal(memory[: 1 << 20], array):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_helpers_of_its_own(helpers):
    work, given = test_what_is_sent_arrives_though_the_array_changes_meanwhile, (helpers, 1 << 20, 0)
    work(*given)
    child = multiprocessing.get_context("fork").Process(target=work, args=given)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def floats():
    """Special numbers, halves of a step as near as they get, and random ones."""
    rng = np.random.default_rng(0)
    special = [np.inf, -np.inf, np.nan, 1e30, -1e30, 65519, 65520, -65520, 6e-8, 2e-8, -0.0]
    halves = (np.arange(-300, 300) / 2).astype(np.float32) * STEP
    return np.concatenate([np.float32(special), halves, 4 * rng.standard_normal(99_999, np.float32)])


def codes(values):
    """int8 codes as kernels make them: NaN counts 0."""
    return np.clip(np.nan_to_num(np.rint(values / STEP), nan=0), -128, 127)


def in_order(upload, gpu):
    """Let the kernel run behind the copies, as on a stream."""
    rounded, widen = upload._rounded
    upload._rounded = (rounded, lambda stream: gpu.wait() or widen(None))


STEP = np.float32(0.0371)
ROUNDINGS = {
    "float16": (InputRounding(DType.FLOAT16), lambda values: values.astype(np.float16).astype(np.float32)),
    "int8": (InputRounding(DType.INT8, float(STEP)), lambda values: codes(values).astype(np.float32) * STEP),
}


ROUNDS = pytest.mark.skipif(
    native.compiled() is None or not native.compiled().makes("int8"), reason="no instructions for rounding"
)


@ROUNDS
@pytest.mark.parametrize("kind", ROUNDINGS)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast", "ignore:invalid value")
def test_what_the_network_rounds_is_rounded_before_it_is_copied(helpers, kind):
    rounds, wanted = ROUNDINGS[kind]
    gpu, values = Gpu(), floats()
    memory = gpu.memory()[: values.nbytes].view(np.float32)
    upload = Upload(gpu, memory, rounds)
    in_order(upload, gpu)
    upload.send(values, STREAM)
    np.testing.assert_array_equal(memory, wanted(values))
    if kind == "int8":
        np.testing.assert_array_equal(codes(memory), codes(values))
    else:
        np.testing.assert_array_equal(memory.astype(np.float16), values.astype(np.float16))


@ROUNDS
@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_network_gives_the_same_bits_for_what_was_rounded_before(helpers, monkeypatch, precision):
    net = Net(size=32)
    model = prepare(net.model(net.conv(net.conv(net.conv("data", "first", 16), "second", 8), "last", 4, leaky=False)))
    inputs = {"data": 3 * np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)}
    if precision == "int8":
        model = quantize(model, calibrate(model, MinMaxCalibrator([inputs]), engine="reference", progress=False))
    inputs["data"] *= 1.5  # so that codes saturate
    execution = host_execution(prepare(model), inputs, DType.FLOAT16 if precision == "float16" else DType.FLOAT32)
    rounds, gpu = find_input_rounding(execution.plan, "data"), Gpu()
    assert str(rounds.dtype) == precision
    monkeypatch.setattr(module, "_LEAST", 0)
    found = []
    for each in (None, rounds):
        upload = Upload(gpu, execution.input("data").view(OnGpu), each)
        if each is not None:
            in_order(upload, gpu)
        upload.send(inputs["data"], STREAM)
        gpu.wait()
        execution.queue(None)
        found.append({name: execution.output(name).copy() for name in execution.plan.outputs})
    for name, wanted in found[0].items():
        assert wanted.any()
        np.testing.assert_array_equal(found[1][name], wanted)
