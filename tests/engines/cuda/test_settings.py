"""What a user chooses is taken as it is meant, or refused in words, without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.cuda.settings import batches, check_fp8, cudnn_seconds, device_number, float_type, holds_fp8
from pytrtplugins.errors import UnavailableError, UsageError
from pytrtplugins.passes import quantize
from pytrtplugins.tensor import DType
from tests.passes.nets import ones, tiny_yolo


def test_a_gpu_without_arithmetic_in_fp8_is_named_with_what_it_has():
    check_fp8(SimpleNamespace(number=0, model="NVIDIA L4", capability=89))
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
    ],
)
def test_wrong_settings_are_usage_errors(settings, check):
    with pytest.raises(UsageError, match=next(iter(settings))):
        check(BuildOptions("int8", settings=settings))


def test_settings_have_the_values_that_they_say():
    assert batches(BuildOptions()) == (1,)
    assert batches(BuildOptions(settings={"batch": [1, 8]})) == (1, 8)
    assert cudnn_seconds(BuildOptions(settings={"cudnn_seconds": 300})) == 300
    assert float_type(BuildOptions("int8")) is DType.FLOAT16
    assert float_type(BuildOptions("int8", settings={"float": "float32"})) is DType.FLOAT32
    assert float_type(BuildOptions("fp16")) is DType.FLOAT16
    assert float_type(BuildOptions("tf32")) is DType.FLOAT32


def test_devices_are_cuda_with_a_number():
    assert [device_number(name) for name in (None, "cuda", "cuda:0", "cuda:3")] == [0, 0, 0, 3]
    for name in ("CPU", "cuda:x", "gpu"):
        with pytest.raises(UnavailableError, match="Do: pytrt devices"):
            device_number(name)
