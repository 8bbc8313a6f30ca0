"""The same lives on a GPU: device addresses, a stream of its own, CUDA graphs, and the time of one enqueue."""

import shutil

import numpy as np
import pytest

from pytrtplugins.cuda import gpu_reason
from pytrtplugins.layers import Region, Reorg, Yolo

from .conftest import ROOT, build_driver, runtime_library
from .driver import RUNTIME, Driver, Place
from .user_plugins import Bias

pytestmark = pytest.mark.gpu
MAX_US = 15.0
CASES = [
    (Reorg(stride=2), (1, 64, 26, 26)),
    (Reorg(stride=2, reverse=True), (2, 64, 26, 26)),
    (Region(classes=20, num=5, softmax=True), (1, 125, 13, 13)),
    (Yolo(anchors=(1, 2, 3, 4, 5, 6), mask=(0, 1, 2), classes=80), (1, 255, 13, 13)),
]
IN_BOTH = [(*case, language) for case in CASES for language in ("python", "c++")]


class Gpu(Place):
    """CuPy's arrays and a stream of their own."""

    def __init__(self):
        self.cupy = pytest.importorskip("cupy")
        self.queue = self.cupy.cuda.Stream(non_blocking=True)
        self.stream = self.queue.ptr

    def array(self, values):
        return self.cupy.asarray(values)

    def numpy(self, array):
        return self.cupy.asnumpy(array)

    def address(self, array):
        return array.data.ptr

    def synchronize(self):
        self.cupy.cuda.runtime.deviceSynchronize()


@pytest.fixture(scope="module")
def place():
    if gpu_reason():
        pytest.skip(gpu_reason())
    return Gpu()


@pytest.fixture(scope="module")
def driver(place, api, headers):
    """The driver alone, without the C++ plugins."""
    built = build_driver(headers, "-DPYTRTPLUGINS_TENSORRT_HOST=ON", target="tensorrt_driver")
    return Driver(built, api, runtime_library(api), place)


@pytest.fixture(scope="module")
def cuda_driver(place, api, headers):
    """With the layers in C++, compiled by nvcc."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc. Do: install CUDA's toolkit")
    assert list((ROOT / "plugins" / "layers").glob("*.cu")), "the C++ layers have no CUDA source"
    built = build_driver(headers, "-DCMAKE_CUDA_ARCHITECTURES=native", suffix="-cuda")
    return Driver(built, api, runtime_library(api), place)


def input_of(dims, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(dims).astype(dtype)


def assert_equal(found, plugin, x):
    (expected,) = plugin.all_outputs([x])
    if isinstance(plugin, (Reorg, Bias)):
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-3 if x.dtype == np.float16 else 1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize(("plugin", "dims"), [*CASES, (Bias(by=0.5), (3, 5))], ids=repr)
def test_a_life_in_python_gives_what_compute_gives(driver, plugin, dims, dtype):
    x = input_of(dims, dtype)
    with driver.offered(type(plugin), "python"):
        (found,) = driver.run(plugin, driver.build(plugin, [x]), [x])
    assert_equal(found, plugin, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize(("plugin", "dims"), CASES, ids=repr)
def test_a_life_in_cpp_gives_what_compute_gives(cuda_driver, plugin, dims, dtype):
    x = input_of(dims, dtype)
    with cuda_driver.offered(type(plugin), "c++"):
        (found,) = cuda_driver.run(plugin, cuda_driver.build(plugin, [x]), [x])
    assert_equal(found, plugin, x)


def attached(driver, plugin, x):
    """A context, and a function that queues its work some times; the array that it fills."""
    place = driver.place
    built = driver.build(plugin, [x])
    made = driver.create(type(plugin), built.fields, RUNTIME)
    context, tensors = driver.attach(made, [x], built.outputs)
    given, out = place.array(x), place.array(np.zeros_like(built.outputs[0]))
    scratch = place.array(np.zeros(built.workspace + 1, np.uint8))
    place.synchronize()
    addresses = [place.address(given)], [place.address(out)], place.address(scratch), place.stream

    def enqueue(times=1):
        return driver.enqueue(context, tensors, *addresses, times=times)

    return enqueue, given, out


@pytest.mark.parametrize(("plugin", "dims", "language"), IN_BOTH, ids=repr)
def test_a_captured_graph_runs_on_new_values(request, plugin, dims, language):
    driver = request.getfixturevalue("driver" if language == "python" else "cuda_driver")
    queue, x = driver.place.queue, input_of(dims)
    with driver.offered(type(plugin), language):
        enqueue, given, out = attached(driver, plugin, x)
        enqueue()
        driver.place.synchronize()
        queue.begin_capture()
        enqueue()
        graph = queue.end_capture()
        given[...] = driver.place.array(-x)
        out.fill(0)
        driver.place.synchronize()
        graph.launch(queue)
        driver.place.synchronize()
    assert_equal(driver.place.numpy(out), plugin, -x)


@pytest.mark.parametrize(("plugin", "dims", "language"), [*IN_BOTH, (Bias(), (1, 64, 26, 26), "python")], ids=repr)
def test_an_enqueue_takes_less_than_15_us_of_the_thread(request, plugin, dims, language):
    driver = request.getfixturevalue("driver" if language == "python" else "cuda_driver")
    x = input_of(dims)
    with driver.offered(type(plugin), language):
        enqueue, _, out = attached(driver, plugin, x)
        first = enqueue()[0] / 1e3
        times = []
        for _ in range(20):  # few at a time: a full queue would make the thread wait for the GPU
            times.append(enqueue(100) / 1e3)
            driver.place.synchronize()
    assert_equal(driver.place.numpy(out), plugin, x)
    median, late = np.percentile(times[1:], [50, 99])
    print(
        f"\nenqueue {plugin!r} in {language}: first {first:.1f} us, median {median:.2f} us, 99th percentile {late:.1f} us"
    )
    assert median < MAX_US
