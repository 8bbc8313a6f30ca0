"""`--shape` says the dims of tensors behind nodes that nobody has a class for."""

import numpy as np
import onnx
import pytest

from pytrtplugins.cli.opaque import read_shapes
from pytrtplugins.errors import UsageError
from tests.model.test_opaque import detector

pytest.importorskip("onnxruntime")


def test_texts_become_dims_and_types():
    found = read_shapes(["boxes=1x100x4", "count=Nx1:int32", "a=b=3"])
    assert found == {"boxes": ((1, 100, 4), "float32"), "count": (("N", 1), "int32"), "a=b": ((3,), "float32")}
    assert read_shapes(None) == {}


@pytest.mark.parametrize(
    "text", ["boxes", "=1x2", "boxes=", "boxes=1x", "boxes=1x-2", "boxes=1x2:", "boxes=1:complex64"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(UsageError, match=r"--shape .*: expected TENSOR=DIMS, such as boxes=1x100x4"):
        read_shapes([text])


def test_commands_go_around_the_nodes(pytrt, refused, tmp_path):
    onnx.save(detector(middle=True), tmp_path / "net.onnx")
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "one.npz", data=np.random.default_rng(0).random((1, 3, 16, 16), np.float32))
    code, out, err = pytrt("calibrate", "net.onnx", "--calibration", "data", "--cache", "net.cache")
    assert (code, out, err) == (0, "net.cache: 7 tensors, MinMaxCalibration\n", "")
    assert "\nDo: --shape boxes=1x100x4" in refused("quantize", "net.onnx", "-o", "q.onnx")
    code, out, err = pytrt("quantize", "net.onnx", "--shape", "boxes=1x8x16x16", "-o", "q.onnx")
    assert (code, err) == (0, "")
    assert "1 node without a known class, written as before: 'nms'\n" in out
    assert "  nms, input 0: largest error " in out
    assert "; (3) a node without a known class comes before it.\n" in out
    code, out, err = pytrt("convert", "net.onnx", "--precision", "fp16", "--shape", "boxes=1x8x16x16", "-o", "h.onnx")
    assert (code, err) == (0, "")
    assert "  nms: it has no known class\n" in out


@pytest.mark.parametrize("attributes", [{}, {"plugin_namespace": "TRT", "plugin_version": "1"}])
def test_inspect_says_what_is_known_of_them(printed, tmp_path, attributes):
    onnx.save(detector(attributes=attributes, middle=True), tmp_path / "net.onnx")
    out = printed("inspect", "net.onnx")
    assert "c_leaky: float32[1, 8, 16, 16] → boxes: type unknown" in out
    assert (
        "They stay as they are in pytrt calibrate, quantize and convert; --shape says the dims of what they give."
        in out
    )
    out = printed("inspect", "net.onnx", "--nodes", "--shape", "boxes=1x8x16x16")
    assert "→ boxes: float32[1, 8, 16, 16]" in out
    assert "→ e: float32[1, 8, 16, 16]" in out
