"""What a user chooses is taken as it is meant, or refused in words, without a GPU."""

from types import SimpleNamespace

import pytest

from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.cuda import engine
from pytrtplugins.engines.cuda.conv import cache
from pytrtplugins.engines.cuda.settings import batches, check_fp8, cudnn_seconds, device_number, float_type, holds_fp8
from pytrtplugins.errors import UnavailableError, UsageError
from pytrtplugins.passes import quantize
from pytrtplugins.tensor import DType
from tests.passes.nets import ones, tiny_yolo


def test_a_gpu_without_arithmetic_in_fp8_is_named_with_what_it_has():
    for capability in (89, 90, 120):
        check_fp8(SimpleNamespace(number=0, model="NVIDIA L4", capability=capability))
    with pytest.raises(UnavailableError, match=r"GPU 1, NVIDIA A100, has compute capability 8.0, and no") as error:
        check_fp8(SimpleNamespace(number=1, model="NVIDIA A100", capability=80))
    assert (error.value.device, error.value.capability) == (1, 80)
    assert 'Do: precision="int8", with the same calibration, or precision="fp16"' in str(error.value)


def test_codes_of_fp8_are_found_under_any_name():
    fp8, int8 = (quantize(tiny_yolo(opset=19), ones(tiny_yolo()), precision=precision) for precision in ("fp8", "int8"))
    assert holds_fp8(fp8)
    assert not holds_fp8(int8)


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        ({"batch": 0}, batches),
        ({"batch": [1, "8"]}, batches),
        ({"batch": []}, batches),
        ({"float": "int8"}, float_type),
        ({"cudnn_seconds": 0}, cudnn_seconds),
        ({"cudnn_seconds": "long"}, cudnn_seconds),
        ({"cudnn_seconds": 24 * 3600 + 1}, cudnn_seconds),
    ],
)
def test_wrong_settings_are_usage_errors(settings, check):
    with pytest.raises(UsageError, match=next(iter(settings))):
        check(BuildOptions("int8", settings=settings))


def test_settings_have_the_values_that_they_say():
    assert batches(BuildOptions()) == (1,)
    assert batches(BuildOptions(settings={"batch": [1, 8]})) == (1, 8)
    for seconds in (1, 300, 24 * 3600):
        assert cudnn_seconds(BuildOptions(settings={"cudnn_seconds": seconds})) == seconds
    assert float_type(BuildOptions("int8")) is DType.FLOAT16
    assert float_type(BuildOptions("int8", settings={"float": "float32"})) is DType.FLOAT32
    assert float_type(BuildOptions("fp16")) is DType.FLOAT16
    assert float_type(BuildOptions("tf32")) is DType.FLOAT32


def test_devices_are_cuda_with_a_number():
    assert [device_number(name) for name in (None, "cuda", "cuda:0", "cuda:3")] == [0, 0, 0, 3]
    for name in ("CPU", "cuda:x", "gpu"):
        with pytest.raises(UnavailableError, match="Do: pytrt devices"):
            device_number(name)


FACTS = {
    "no change": {},
    "GPU": {"model": "NVIDIA L4"},
    "driver": {"driver": 12080},
    "frontend": {"cudnn_versions": {"cudnn-frontend": "1.1", "cudnn": "91900"}},
    "cuDNN": {"cudnn_versions": {"cudnn-frontend": "1.0", "cudnn": "92000"}},
    "cuBLASLt": {"cublaslt_version": "2"},
    "format": {"FORMAT": -1},
    "kernels": {"kernels_digest": "another"},
    **{f"without {name}": {"disabled": {f"{name}-kernels"}} for name in ("handwritten", "cudnn", "cublaslt")},
    "without two": {"disabled": {"cudnn-kernels", "handwritten-kernels"}},
    "longer search": {"cudnn_seconds": 300},
    "shorter search": {"cudnn_seconds": 1},
}


def test_each_fact_that_kernels_are_chosen_by_gives_the_cache_another_file(monkeypatch, tmp_path):
    """GPU, driver, libraries, kernels, what may be chosen among, and how long cuDNN's plans are tried."""
    monkeypatch.setattr(cache, "cache_folder", lambda kind: tmp_path)

    def path(model="NVIDIA H200", driver=13000, disabled=(), cudnn_seconds=45, **versions):
        plain = {
            "cudnn_versions": {"cudnn-frontend": "1.0", "cudnn": "91900"},
            "cublaslt_version": "1",
            "kernels_digest": "one",
        }
        with monkeypatch.context() as patch:
            patch.setattr(engine, "FORMAT", versions.pop("FORMAT", 1))
            for name, value in {**plain, **versions}.items():
                patch.setattr(engine, name, lambda value=value: value)
            options = BuildOptions(settings={"cudnn_seconds": cudnn_seconds})
            device = SimpleNamespace(model=model, driver=driver)
            self = SimpleNamespace(device=device, disabled=frozenset(disabled), options=options)
            return engine.CudaEngine._cache(self).path

    paths = {name: path(**facts) for name, facts in FACTS.items()}
    assert len(set(paths.values())) == len(FACTS), paths
    assert path(disabled={"tactics", "graph"}) == paths["no change"]
    assert path(disabled={"cudnn-kernels"}, cudnn_seconds=300) == paths["without cudnn"]
