"""Which package and which GPU are taken, and what is said where there is none."""

import functools
import sys
from types import ModuleType, SimpleNamespace

import pytest

from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.engines.tensorrt.device import find_device
from pytrtplugins.errors import MissingExtraError, UnavailableError
from pytrtplugins.utils import forks

find = functools.partial(_api.load.__wrapped__, "tensorrt")  # without its cache


def package(name, version):
    module = ModuleType(name)
    module.__version__ = version
    return module


@pytest.fixture
def installed(monkeypatch):
    """Make packages importable, or None for those that are not installed."""

    def set_(**modules):
        for name in _api.MODULES:
            monkeypatch.setitem(sys.modules, name, modules.get(name))

    return set_


@pytest.mark.parametrize("version", ["8.6.1", "9.3.0", "12.0.0"])
def test_other_major_versions_are_refused_with_the_command(installed, version):
    installed(tensorrt=package("tensorrt", version))
    with pytest.raises(UnavailableError, match=rf"tensorrt {version}: .* need TensorRT 10 or 11[\s\S]*Do: pip install"):
        find()


def test_without_any_package_the_full_one_is_named(installed):
    installed()
    with pytest.raises(MissingExtraError, match=r"needs the package 'tensorrt'[\s\S]*Do: pip install"):
        find()


def test_a_package_whose_libraries_are_missing_says_which(installed, monkeypatch):
    def broken(module, **facts):
        raise OSError("libnvinfer.so.10: cannot open shared object file")

    monkeypatch.setattr(_api, "require", broken)
    with pytest.raises(UnavailableError, match="the package tensorrt cannot be loaded: libnvinfer"):
        find()


def test_the_api_knows_its_package(api):
    assert api.name in _api.MODULES
    assert api.cache_version == ".".join(api.version.split(".")[:3])
    if not api.builds:
        words = rf"runs engines and cannot build them[\s\S]*tensorrt=={api.version}"
        with pytest.raises(UnavailableError, match=words):
            api.require_builder()


def test_classes_of_calibrators_are_tensorrt_10s(api):
    if api.builds and api.major == 10:
        assert api.calibrator_base("LegacyCalibration") is api.trt.IInt8LegacyCalibrator
    else:
        with pytest.raises(UnavailableError, match=r"has no calibrators[\s\S]*Do: leave out quantization"):
            api.calibrator_base("MinMaxCalibration")


class CudaError(RuntimeError):
    """CuPy's."""


def cupy_with(count):
    def devices():
        if count is None:
            raise CudaError("cudaErrorInsufficientDriver")
        return count

    runtime = SimpleNamespace(
        getDeviceCount=devices,
        getDeviceProperties=lambda index: {"name": f"GPU {index}".encode(), "major": 9, "minor": index},
        CUDARuntimeError=CudaError,
    )
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))


@pytest.mark.parametrize(("name", "index"), [(None, 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_gpus_are_found_by_their_number(monkeypatch, name, index):
    monkeypatch.setitem(sys.modules, "cupy", cupy_with(2))
    found = find_device(name)
    assert (found.index, str(found)) == (index, f"GPU {index}, compute capability 9.{index}")


@pytest.mark.parametrize(
    ("count", "name", "words"),
    [
        (None, None, "no NVIDIA GPU can be used: cudaErrorInsufficientDriver"),
        (0, None, "device 'cuda:0' is not here; there are: none"),
        (1, "cuda:1", "device 'cuda:1' is not here; there are: cuda:0"),
        (1, "CPU", "device 'CPU' is not here; there are: cuda:0"),
    ],
)
def test_what_is_no_gpu_is_unavailable(monkeypatch, count, name, words):
    monkeypatch.setitem(sys.modules, "cupy", cupy_with(count))
    with pytest.raises(UnavailableError, match=words):
        find_device(name)


def test_in_a_forked_child_the_parent_may_be_why_no_gpu_can_be_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy_with(None))
    monkeypatch.setattr(forks, "_count", 1)
    words = 'forked from one that used the GPU; start it by multiprocessing\'s "spawn"'
    with pytest.raises(UnavailableError, match=words):
        find_device()
