"""`impl` of quickly deployable plugins, on addresses and a stream as TensorRT gives them, on a CPU and on a GPU; without TensorRT."""

from __future__ import annotations

import enum
import shutil
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import gpu_reason
from pytrtplugins.engines.tensorrt import quick
from pytrtplugins.engines.tensorrt._api import Api
from pytrtplugins.engines.tensorrt.memory import DeviceMemory, use_memory
from pytrtplugins.engines.tensorrt.quick import QuickPlugin
from pytrtplugins.engines.tensorrt.quick_fields import to_attributes
from pytrtplugins.layers import Reorg
from pytrtplugins.plugin.base import Plugin
from tests.host_memory import HostMemory
from tests.interleaving import Interleaving
from tests.user_plugins import Copy

from .user_plugins import Scale

REASON = gpu_reason()


@ptp.plugin(namespace="quick_runs")
class Doubled(Copy):
    """Goes through its workspace."""

    def compute(self, x):
        return x * 2

    def workspace_size(self, inputs, outputs):
        return 4 * int(np.prod(inputs[0].dims))

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        scratch = workspace.view("float32").reshape(x.shape)
        scratch[...] = x * 2
        y[...] = scratch


class Place:
    """Arrays, and the plugin's calls on their addresses."""

    def __init__(self, xp: Any, stream: int) -> None:
        self.xp, self.stream = xp, stream
        trt = ModuleType("tensorrt")
        names = ["FLOAT", "HALF", "BF16", "INT8", "UINT8", "INT32", "INT64", "BOOL"]
        trt.__version__, trt.DataType = "11.0.0", enum.Enum("DataType", names)
        trt.TensorFormat = enum.Enum("TensorFormat", ["LINEAR", "HWC"])
        self.api = Api(trt)

    def made(self, cls: type[Plugin]) -> QuickPlugin:
        return QuickPlugin(self.api, ModuleType("tensorrt.plugin"), cls, "quick_runs::Any", None, None)

    def tensor(self, array: Any) -> Any:
        address = array.ctypes.data if self.xp is np else array.data.ptr
        trt = self.api.trt
        kind, layout = self.api.data_type(ptp.DType.of(np.dtype(array.dtype))), trt.TensorFormat.LINEAR
        return SimpleNamespace(dtype=kind, shape=array.shape, format=layout, scale=0.0, data_ptr=address)

    def run(self, made: QuickPlugin, attributes: list[Any], x: Any, y: Any) -> np.ndarray:
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()  # the stream does not wait for what fills x and y
        made._run(self.tensor(x), *attributes, [self.tensor(y)], stream=self.stream)
        if self.xp is np:
            return np.array(y)
        self.xp.cuda.Device().synchronize()
        return self.xp.asnumpy(y)


ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(bool(REASON), reason=REASON.partition("\n")[0] or "a GPU")]


@pytest.fixture(params=["host", pytest.param("gpu", marks=ON_GPU)])
def place(request):
    if request.param == "host":
        with use_memory(HostMemory()):
            yield Place(np, 0)
    else:
        cupy = pytest.importorskip("cupy")
        stream = cupy.cuda.Stream(non_blocking=True)
        with use_memory(DeviceMemory()):
            yield Place(cupy, stream.ptr)


@pytest.mark.parametrize(
    "plugin", [Reorg(stride=2), Scale(factor=3.0), Doubled()], ids=lambda plugin: type(plugin).__name__
)
def test_it_gives_what_compute_gives_in_every_run_and_for_other_dims(place, plugin):
    if isinstance(plugin, Reorg) and place.xp is np and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler: apt-get install g++")
    made, attributes = place.made(type(plugin)), list(to_attributes(plugin, True).values())
    for count in (1, 2, 1):
        values = np.random.default_rng(count).random((count, 4, 4, 6), np.float32)
        expected = plugin.compute(values)
        x, y = place.xp.asarray(values), place.xp.zeros(expected.shape, "float32")
        np.testing.assert_array_equal(place.run(made, attributes, x, y), expected)
    assert len(made._local.runs) == 2  # one for each dims, until there are too many


def test_what_was_not_used_for_long_is_ended(monkeypatch):
    monkeypatch.setattr(quick, "_KEPT_RUNS", 2)
    ended: list[Any] = []
    monkeypatch.setattr(Scale, "terminate", lambda self: ended.append(self.factor))
    with use_memory(HostMemory()):
        place = Place(np, 0)
        made, x = place.made(Scale), np.ones((2, 2), np.float32)
        for factor in (1.0, 2.0, 3.0, 4.0):
            found = place.run(made, list(to_attributes(Scale(factor=factor), True).values()), x, np.empty_like(x))
            np.testing.assert_array_equal(found, Scale(factor=factor).compute(x))
    assert ended == [1.0, 2.0]


def test_a_class_that_two_threads_register_at_the_same_time_is_registered_once(monkeypatch):
    class Registered(QuickPlugin):
        def register(self):
            calls.append(self.id)
            both.inside()

    calls: list[str] = []
    both = Interleaving(quick._lock)
    api = Place(np, 0).api
    monkeypatch.setattr(quick, "_load", lambda: (api, ModuleType("tensorrt.plugin")))
    monkeypatch.setattr(quick, "_lock", both.lock)
    monkeypatch.setattr(quick, "_made", {})
    monkeypatch.setattr(quick, "QuickPlugin", Registered)
    made, same = both.run(*[lambda: quick.to_qdp(Doubled)] * 2)
    assert both.order == ["first", "second"]
    assert calls == ["quick_runs::Doubled"]
    assert made is same
