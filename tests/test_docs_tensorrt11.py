"""docs/how-to/tensorrt11.md and docs/how-to/tensorrt11_more.md can be followed as they stand, on a small network with a custom layer."""

import re

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.registry import availability_of
from tests.engines.tensorrt.old_project import detector, write_project
from tests.pages import Reader, read

pytest.importorskip("typer")
pytest.importorskip("onnxruntime")
Image = pytest.importorskip("PIL.Image")
PAGES = ("docs/how-to/tensorrt11.md", "docs/how-to/tensorrt11_more.md")


def test_the_page_can_be_followed(tmp_path):
    write_project(tmp_path)
    onnx.save(detector(), tmp_path / "detector.onnx")
    (tmp_path / "images").mkdir()
    for index in range(4):
        pixels = np.random.default_rng(index).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    without = () if availability_of("tensorrt_rtx").builds else ("pytrt build",)
    reader = Reader(tmp_path)
    for page in PAGES:
        reader.follow(page, without=without)
    for name in ("int8", "fp8", "onnxruntime", "openvino", "fp16", "bf16", "mixed", "everywhere"):
        onnx.checker.check_model(tmp_path / f"model-{name}.onnx", full_check=True)
    onnx.checker.check_model(tmp_path / "detector-int8.onnx", full_check=True)


def test_the_table_leads_to_all_sections():
    text = read("docs/how-to/tensorrt11.md")
    rows = [line for line in text.splitlines() if re.match(r"\| .*\]\((tensorrt11_more\.md)?#", line)]
    assert len(rows) == 8
