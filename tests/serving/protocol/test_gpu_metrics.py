"""NVIDIA's management library, played."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from pytrtplugins.serving.protocol import gpu_metrics
from pytrtplugins.serving.protocol.gpu_metrics import Gpu, gpus


class NVMLError(Exception):
    pass


class Library(ModuleType):
    """Two GPUs, of which the second has no utilization."""

    NVMLError = NVMLError

    def __init__(self, driver=True, lost=False):
        super().__init__("pynvml")
        self.driver, self.lost = driver, lost

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        if self.lost:
            raise NVMLError("GPU is lost")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, device):
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, device):
        return SimpleNamespace(used=3 << 30, total=141 << 30)

    def nvmlDeviceGetUtilizationRates(self, device):
        if device:
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=25, memory=1)


@pytest.fixture
def library(monkeypatch):
    def use(made):
        monkeypatch.setitem(sys.modules, "pynvml", made)
        gpu_metrics._library.cache_clear()

    yield use
    gpu_metrics._library.cache_clear()


def test_gpus_say_how_busy_and_how_full_they_are(library, client):
    library(Library())
    assert gpus() == [Gpu(0, "NVIDIA H200", 0.25, 3 << 30, 141 << 30)]
    text = client.get("/metrics").body.decode()
    assert 'pytrt_gpu_utilization_ratio{gpu="0",name="NVIDIA H200"} 0.25' in text


@pytest.mark.parametrize(
    "made", [None, Library(driver=False), Library(lost=True)], ids=["no package", "no driver", "lost"]
)
def test_without_a_driver_or_the_package_there_are_none(library, client, made):
    library(made)
    assert gpus() == []
    assert "pytrt_gpu" not in client.get("/metrics").body.decode()
