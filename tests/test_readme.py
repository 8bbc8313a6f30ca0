"""The programs in README run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytrtplugins as ptp

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "samples" / "models" / "yolov2-animals"
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the programs name: the shipped model under YOLOv2-VOC's name, and the cat as a dog."""
    data = Path(pytest.importorskip("skimage").__file__).parent / "data"
    for suffix, name in ((".cfg", "yolov2-voc.cfg"), (".weights", "yolov2-voc.weights"), (".names", "voc.names")):
        shutil.copy(MODEL.with_suffix(suffix), tmp_path / name)
    (tmp_path / "photos").mkdir()
    for name in ("dog.jpg", "photos/cat.png"):
        shutil.copy(data / "chelsea.png", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(program):
    """Run a program in a process of its own; what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_layer_of_your_own():
    assert run(PROGRAMS[0] + "print(ChannelShuffle(groups=4))") == "ChannelShuffle(groups=4)\n"


def test_darknet_files_to_boxes(folder):
    assert re.match(r"cat \d\d% \(", run(PROGRAMS[1]))


def test_int8_with_a_table_that_is_made_once(folder):
    import onnx

    from darknet2caffe import read_network, to_onnx

    onnx.save(to_onnx(read_network("yolov2-voc.cfg", "yolov2-voc.weights")), "yolov2.onnx")
    run(PROGRAMS[2])
    assert (folder / "yolov2.cache").read_bytes().startswith(b"TRT-")
    assert ptp.load_engine("yolov2.int8.engine").precision == "int8"
    run(PROGRAMS[2])


def test_there_are_three_programs():
    assert len(PROGRAMS) == 3
