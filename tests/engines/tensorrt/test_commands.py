"""From a shell."""

from __future__ import annotations

import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.passes import prepare
from tests.engines.networks import conv_net

from .builds import table_of


@pytest.fixture
def pytrt(capsys):
    """Run the command; its standard output and standard error, and its exit code."""
    pytest.importorskip("typer")
    from pytrtplugins.cli import main

    def run(*words):
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return captured.out + captured.err, code

    return run


def test_pytrt_builds_int8_with_a_cache_and_settings(tensorrt, pytrt, tmp_path):
    model, shapes = prepare(conv_net(batch="N")), []
    onnx.save(model, tmp_path / "net.onnx")
    table_of(model).write(tmp_path / "net.cache")
    tensorrt.answers["IOptimizationProfile.set_shape"] = lambda name, *dims: shapes.append([tuple(d) for d in dims])
    words = ["build", tmp_path / "net.onnx", "--engine", "tensorrt", "--precision", "int8"]
    words += ["--cache", tmp_path / "net.cache", "--setting", "batch=1,8,16", "-o", tmp_path / "net.engine"]
    text, code = pytrt(*words)
    assert code == 0, text
    assert shapes == [[(1, 3, 8, 8), (8, 3, 8, 8), (16, 3, 8, 8)]]
    assert ptp.load_engine(tmp_path / "net.engine").precision == "int8"


@pytest.mark.parametrize(
    ("setting", "words"), [("speed=9", "no setting 'speed'"), ("batch", "expected NAME=VALUE"), ("level=no", "0 to 5")]
)
def test_pytrt_names_a_wrong_setting(tensorrt, pytrt, tmp_path, setting, words):
    onnx.save(conv_net(), tmp_path / "net.onnx")
    target = tmp_path / "net.engine"
    text, code = pytrt("build", tmp_path / "net.onnx", "--engine", "tensorrt", "--setting", setting, "-o", target)
    assert code == 2
    assert words in " ".join(text.split())
    assert not target.exists()


def test_pytrt_devices_lists_tensorrt(tensorrt, pytrt):
    text, code = pytrt("devices")
    assert code == 0
    assert f"tensorrt {tensorrt.version}" in " ".join(text.split())
