"""On a GPU: plugins created, saved, loaded and attached by TensorRT's registry run their kernels on its memory and streams."""

import numpy as np
import pytest

from benchmarks.tensorrt_enqueue import DeviceArrays, Twice, Twins, cases, describe, measure
from pytrtplugins.cuda import gpu_reason
from pytrtplugins.engines.tensorrt.memory import use_memory
from pytrtplugins.errors import PluginError

from .driver import Driver
from .user_plugins import Scale

REASON = gpu_reason()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(REASON), reason=REASON.partition("\n")[0] or "a GPU")]


@pytest.fixture
def place():
    arrays = DeviceArrays()
    with use_memory(arrays.memory()):
        yield arrays


def test_enqueue_gives_what_compute_gives_without_allocating_and_in_a_captured_graph(api, place):
    own = [(plugin, dims) for plugin, dims in cases(place) if plugin.plugin_key().namespace == "darknet"]
    assert len(own) == 3
    for interface in ("v3", "v2") if api.has_v2 else ("v3",):
        for plugin, dims in [(Twice(), (1, 3, 5, 7)), (Twins(), (2, 3)), *own]:
            found = measure(api, place, plugin, dims, interface, 50)
            assert (found.allocations, found.captured) == (0, True), found


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_compute_runs_on_tensorrts_memory_and_stream_and_is_refused_in_a_capture(api, place, dtype):
    plugin, values = Scale(factor=3.0), np.arange(8, dtype=dtype).reshape(2, 4)
    driver = Driver(api, "v3")
    attached = driver.attach(driver.reload(driver.create(plugin)))
    x, y = place.array(values), place.array(values * 0)
    descs = [describe(api, [array]) for array in (x, y)]
    attached.set_tactic(0)
    attached.on_shape_change(*descs)
    arguments = (*descs, [place.address(x)], [place.address(y)], 0, place.stream_address)
    attached.enqueue(*arguments)
    np.testing.assert_array_equal(place.numpy(y), plugin.compute(values))
    with pytest.raises(PluginError, match="while a CUDA graph is captured"):
        place.captured(lambda: attached.enqueue(*arguments), [y])
