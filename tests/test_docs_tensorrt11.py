"""docs/tensorrt11.md can be followed as it stands, on a small network with a custom layer."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.registry import availability_of
from tests.engines.tensorrt.old_project import detector, write_project
from tests.pages import Reader, read

pytest.importorskip("typer")
pytest.importorskip("onnxruntime")
Image = pytest.importorskip("PIL.Image")


def test_the_page_can_be_followed(tmp_path):
    write_project(tmp_path)
    onnx.save(detector(), tmp_path / "detector.onnx")
    (tmp_path / "images").mkdir()
    for index in range(4):
        pixels = np.random.default_rng(index).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    without = () if availability_of("tensorrt_rtx").builds else ("pytrt build",)
    Reader(tmp_path).follow("docs/tensorrt11.md", without=without)
    for name in ("int8", "fp8", "onnxruntime", "openvino", "fp16", "bf16", "mixed", "everywhere"):
        onnx.checker.check_model(tmp_path / f"model-{name}.onnx", full_check=True)
    onnx.checker.check_model(tmp_path / "detector-int8.onnx", full_check=True)


def test_the_table_leads_to_all_sections():
    text = read("docs/tensorrt11.md")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "](#" in line]
    assert len(rows) == 8
