"""Time of one enqueue of a plugin in TensorRT, which goes on top of its kernels' own.

Plugins are created, saved, loaded and attached through TensorRT's plugin registry, as an engine does it; the lean package
is enough. With CuPy and a GPU the arrays are the GPU's and kernels run; else they are NumPy's, over the same code. Before
anything is timed, its result is compared with `compute`. Run it: python -m benchmarks.tensorrt_enqueue
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.cuda import CudaKernel, gpu_reason, launches_kernels
from pytrtplugins.engines.tensorrt._api import Api, load
from pytrtplugins.engines.tensorrt.creators import register
from pytrtplugins.engines.tensorrt.memory import DeviceMemory, use_memory
from pytrtplugins.engines.tensorrt.plugin_fields import Extras, to_fields
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.tensor import DType
from pytrtplugins.utils.numbers import FloatRange, IntRange
from tests.host_memory import HostMemory

from .pages.machine import about
from .pages.results import publish, write_json

TWICE = """
template <typename T> __global__ void twice(const T* x, T* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i];
}
"""
WARM, SYNCHRONIZE = 200, 200  # calls before the clock starts; calls between two waits for the GPU
DIMS = (1, 64, 26, 26)


@ptp.plugin(namespace="benchmark")
class Nothing(ptp.Plugin):
    """The adapter alone."""

    def output_dims(self, x: Any) -> Any:
        return x

    def compute(self, x: Any) -> Any:
        return x * 0

    def enqueue(self, inputs: Any, outputs: Any, workspace: Any, stream: Any) -> None:
        pass


@ptp.plugin(namespace="benchmark")
class Twice(ptp.Plugin):
    """One kernel; on a CPU one call of NumPy."""

    kernel = CudaKernel.from_source(TWICE, "twice")

    def output_dims(self, x: Any) -> Any:
        return x

    def compute(self, x: Any) -> Any:
        return x + x

    def enqueue(self, inputs: Any, outputs: Any, workspace: Any, stream: Any) -> None:
        (x,), (y,) = inputs, outputs
        if isinstance(x, np.ndarray):
            np.add(x, x, out=y)
        else:
            self.kernel.launch(x, y, x.size, threads=x.size, stream=stream)


@ptp.plugin(namespace="benchmark")
class Twins(Twice):
    """Two inputs, two outputs, two kernels."""

    def output_dims(self, x: Any, y: Any) -> Any:  # type: ignore[override]  # one input more
        return x, y

    def compute(self, x: Any, y: Any) -> Any:  # type: ignore[override]
        return x + x, y + y

    def enqueue(self, inputs: Any, outputs: Any, workspace: Any, stream: Any) -> None:
        for x, y in zip(inputs, outputs, strict=True):
            super().enqueue((x,), (y,), workspace, stream)


@dataclass(frozen=True)
class Result:
    """Times of one plugin's enqueue.

    Attributes:
        plugin: Which.
        interface: ``"v3"`` or ``"v2"``.
        first_us: The first call's microseconds: what it would take to compile a kernel shows here.
        median_us: Of all calls.
        p99_us: 99 of 100 calls take less.
        allocations: Of GPU memory in the timed calls; None on a CPU.
        captured: Whether a captured CUDA graph gives the result; None on a CPU.
    """

    plugin: str
    interface: str
    first_us: float
    median_us: float
    p99_us: float
    allocations: int | None = None
    captured: bool | None = None


class Arrays:
    """NumPy's arrays, and no streams."""

    device = "a CPU"
    stream_address = 0

    def memory(self) -> Any:
        """What addresses mean."""
        return HostMemory()

    def array(self, values: Any) -> Any:
        """A copy of values where kernels run."""
        return np.array(values)

    def address(self, array: Any) -> int:
        """Where an array begins."""
        return int(array.ctypes.data)

    def numpy(self, array: Any) -> Any:
        """A copy of an array for NumPy."""
        return np.array(array)

    def synchronize(self) -> None:
        """Wait for what is queued."""

    def counting(self) -> Any:
        """Count allocations in a block."""
        return nullcontext(None)

    def captured(self, call: Any, outputs: Sequence[Any]) -> bool | None:
        """Whether a graph of the call gives what the outputs hold."""
        return None


class DeviceArrays(Arrays):
    """CuPy's, and a stream of its own."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self.stream_address = self._stream.ptr
        self.device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    def memory(self) -> Any:
        return DeviceMemory()

    def array(self, values: Any) -> Any:
        array = self._cupy.asarray(values)
        self._cupy.cuda.get_current_stream().synchronize()  # the copy is queued there, and kernels on another stream
        return array

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def numpy(self, array: Any) -> Any:
        self.synchronize()
        return array.get()

    def synchronize(self) -> None:
        self._stream.synchronize()

    def counting(self) -> Any:
        class Counter(self._cupy.cuda.MemoryHook):  # type: ignore[name-defined]
            name = "counter"
            count = 0

            def alloc_preprocess(self, **facts: Any) -> None:
                self.count += 1

            malloc_preprocess = alloc_preprocess

        return Counter()

    def captured(self, call: Any, outputs: Sequence[Any]) -> bool | None:
        expected = [self.numpy(array) for array in outputs]
        with self._stream:
            self._stream.begin_capture()
            try:
                call()
            finally:
                graph = self._stream.end_capture()
            for array in outputs:
                array.fill(0)
            graph.launch(self._stream)
        return all(np.array_equal(self.numpy(array), value) for array, value in zip(outputs, expected, strict=True))


def attach(api: Api, plugin: ptp.Plugin, interface: str) -> Any:
    """The plugin of an execution context: created, serialized, loaded and attached by TensorRT's registry."""
    trt = api.trt
    namespace, name, version = plugin.plugin_key()
    register(type(plugin), interface=interface)
    creator = trt.get_plugin_registry().get_creator(name, version, namespace)
    if interface == "v2":
        made = trt.IPluginCreator.create_plugin(creator, name, to_fields(api, plugin, Extras()))
        loaded = trt.IPluginCreator.deserialize_plugin(creator, name, bytes(trt.IPluginV2.serialize(made)))
        return trt.IPluginV2.clone(loaded)
    make, phases = trt.IPluginCreatorV3One.create_plugin, trt.TensorRTPhase
    made = make(creator, name, to_fields(api, plugin, Extras()), phases.BUILD)
    loaded = make(creator, name, made.get_fields_to_serialize(), phases.RUNTIME)
    return loaded.attach_to_context(None)


def describe(api: Api, arrays: Sequence[Any]) -> list[Any]:
    """TensorRT's descriptions of arrays."""
    descs = []
    for array in arrays:
        desc = api.trt.PluginTensorDesc()
        desc.dims, desc.type = api.trt.Dims(list(array.shape)), api.data_type(DType.of(array))
        if hasattr(api.trt, "TensorFormat"):
            desc.format = api.trt.TensorFormat.LINEAR
        descs.append(desc)
    return descs


def measure(api: Api, place: Arrays, plugin: ptp.Plugin, dims: tuple[int, ...], interface: str, calls: int) -> Result:
    """Compare the result, then time."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(dims).astype(np.float32) for _ in range(plugin.num_inputs or 1)]
    expected = plugin.all_outputs(inputs)
    ins, outs = [place.array(array) for array in inputs], [place.array(np.zeros_like(array)) for array in expected]
    in_descs, out_descs = describe(api, ins), describe(api, outs)
    attached = attach(api, plugin, interface)
    if interface == "v3":
        attached.set_tactic(0)
        attached.on_shape_change(in_descs, out_descs)
    size = attached.get_workspace_size(in_descs, out_descs) if interface == "v2" else attached.host.workspace_bytes
    scratch = place.array(np.zeros(max(size, 1), np.uint8))
    addresses = [[place.address(array) for array in side] for side in (ins, outs)]
    arguments = (in_descs, out_descs, *addresses, place.address(scratch), place.stream_address)

    times = [_time(attached, arguments)]
    for array, value in zip(outs, expected, strict=True):
        np.testing.assert_allclose(place.numpy(array), value, rtol=1e-5, atol=1e-5)
    with place.counting() as counter:
        for number in range(WARM + calls):
            times.append(_time(attached, arguments))
            if number % SYNCHRONIZE == 0:
                place.synchronize()
    allocations = None if counter is None else int(counter.count)
    timed = sorted(times[1 + WARM :])
    captured = place.captured(lambda: attached.enqueue(*arguments), outs)
    median, p99 = statistics.median(timed), timed[int(0.99 * len(timed))]
    return Result(repr(plugin), interface, times[0], median, p99, allocations, captured)


def _time(attached: Any, arguments: Sequence[Any]) -> float:
    begin = time.perf_counter_ns()
    attached.enqueue(*arguments)
    return (time.perf_counter_ns() - begin) / 1000


def cases(place: Arrays) -> list[tuple[ptp.Plugin, tuple[int, ...]]]:
    """Plugins and dims of their inputs; those whose kernels need a GPU only there."""
    found: list[tuple[ptp.Plugin, tuple[int, ...]]] = [(Nothing(), DIMS), (Twice(), DIMS), (Twins(), DIMS)]
    own: list[tuple[ptp.Plugin, tuple[int, ...]]] = [
        (Reorg(stride=2), DIMS),
        (Region(classes=20, num=5, softmax=True), (1, 125, 13, 13)),
        (Yolo(anchors=(1, 2, 3, 4, 5, 6), mask=(0, 1, 2), classes=80), (1, 255, 13, 13)),
    ]
    if isinstance(place, DeviceArrays):
        found += [(plugin, dims) for plugin, dims in own if launches_kernels(type(plugin))]
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Parse arguments, measure, print a table; 1 where a result is wrong, memory was allocated, or it took too long."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tensorrt_enqueue", description=__doc__)
    parser.add_argument(
        "--calls", type=IntRange(1, 10_000_000), default=20000, help="timed calls of each plugin (default: %(default)s)"
    )
    parser.add_argument(
        "--fail-above", type=FloatRange(1e-6, 1e9), metavar="US", help="fail if a median takes more microseconds"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--docs", type=Path, metavar="FOLDER", help="keep the results, and write benchmarks.md there")
    arguments = parser.parse_args(words)
    api = load("tensorrt")
    place = Arrays() if gpu_reason() else DeviceArrays()
    print(
        f"{api.name} {api.version}, Python {sys.version.split()[0]}, arrays on {place.device}, {arguments.calls} calls"
    )
    print(f"{'plugin':60}{'interface':>10}{'first':>10}{'median':>9}{'99 %':>9}  µs   allocations  CUDA graph")
    results = []
    with use_memory(place.memory()):
        for interface in ("v3", "v2") if api.has_v2 else ("v3",):
            for plugin, dims in cases(place):
                found = measure(api, place, plugin, dims, interface, arguments.calls)
                results.append(found)
                facts = f"{found.first_us:10.1f}{found.median_us:9.2f}{found.p99_us:9.2f}"
                graph = {None: "-", True: "equal", False: "WRONG"}[found.captured]
                count = "-" if found.allocations is None else found.allocations
                print(f"{found.plugin[:59]:60}{interface:>10}{facts}{count:>18}{graph:>12}", flush=True)
    record = {"subject": "enqueue", **about((api.name, "numpy")), "rows": [asdict(found) for found in results]}
    if arguments.json:
        write_json(arguments.json, record)
    if arguments.docs:
        publish(record, "benchmarks", "enqueue", arguments.docs)
    slow = [found for found in results if arguments.fail_above and found.median_us > arguments.fail_above]
    wrong = [found for found in results if found.captured is False or found.allocations]
    return 1 if slow or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
