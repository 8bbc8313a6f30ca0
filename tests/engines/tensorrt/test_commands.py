"""From a shell."""

import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.passes import prepare
from tests.engines.networks import conv_net

from .builds import table_of


def test_pytrt_builds_int8_with_a_cache_and_settings(tensorrt, pytrt, tmp_path):
    model, shapes = prepare(conv_net(batch="N")), []
    onnx.save(model, tmp_path / "net.onnx")
    table_of(model).write(tmp_path / "net.cache")
    tensorrt.answers["IOptimizationProfile.set_shape"] = lambda name, *dims: shapes.append([tuple(d) for d in dims])
    words = ["build", tmp_path / "net.onnx", "--engine", "tensorrt", "--precision", "int8"]
    words += ["--cache", tmp_path / "net.cache", "--setting", "batch=1,8,16", "-o", tmp_path / "net.engine"]
    code, out, err = pytrt(*words)
    assert code == 0, out + err
    assert shapes == [[(1, 3, 8, 8), (8, 3, 8, 8), (16, 3, 8, 8)]]
    assert ptp.load_engine(tmp_path / "net.engine").precision == "int8"


@pytest.mark.parametrize(
    ("setting", "words"), [("speed=9", "no setting 'speed'"), ("batch", "expected NAME=VALUE"), ("level=no", "0 to 5")]
)
def test_pytrt_names_a_wrong_setting(tensorrt, pytrt, tmp_path, setting, words):
    onnx.save(conv_net(), tmp_path / "net.onnx")
    target = tmp_path / "net.engine"
    code, out, err = pytrt("build", tmp_path / "net.onnx", "--engine", "tensorrt", "--setting", setting, "-o", target)
    assert code == 2
    assert words in " ".join((out + err).split())
    assert not target.exists()


def test_pytrt_devices_lists_tensorrt(tensorrt, pytrt):
    code, out, err = pytrt("devices")
    assert code == 0
    assert f"tensorrt {tensorrt.version}" in " ".join((out + err).split())
