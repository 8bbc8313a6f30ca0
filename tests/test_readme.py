"""The programs in README run as they stand."""

import re
import shutil
from pathlib import Path

import pytest

import pytrtplugins as ptp
from tests.pages import ROOT, Reader, texts

MODEL = ROOT / "samples" / "models" / "yolov2-animals"
PROGRAMS = texts("README.md", "python")


@pytest.fixture
def folder(tmp_path):
    """A folder with the files that the programs name: the shipped model under YOLOv2-VOC's name, and the cat as a dog."""
    data = Path(pytest.importorskip("skimage").__file__).parent / "data"
    for suffix, name in ((".cfg", "yolov2-voc.cfg"), (".weights", "yolov2-voc.weights"), (".names", "voc.names")):
        shutil.copy(MODEL.with_suffix(suffix), tmp_path / name)
    (tmp_path / "images").mkdir()
    for name in ("dog.jpg", "images/cat.png"):
        shutil.copy(data / "chelsea.png", tmp_path / name)
    return tmp_path


def test_a_layer_of_your_own(tmp_path):
    assert Reader(tmp_path).python(PROGRAMS[0] + "print(ChannelShuffle(groups=4))") == "ChannelShuffle(groups=4)\n"


def test_darknet_files_to_boxes(folder):
    assert re.match(r"cat \d\d% \(", Reader(folder).python(PROGRAMS[1]))


def test_int8_with_a_table_that_is_made_once(folder):
    import onnx

    from darknet2caffe import read_network, to_onnx

    onnx.save(to_onnx(read_network(folder / "yolov2-voc.cfg", folder / "yolov2-voc.weights")), folder / "yolov2.onnx")
    Reader(folder).python(PROGRAMS[2])
    assert (folder / "yolov2.cache").read_bytes().startswith(b"TRT-")
    assert ptp.load_engine(folder / "yolov2.int8.engine").precision == "int8"
    Reader(folder).python(PROGRAMS[2])


def test_there_are_three_programs():
    assert len(PROGRAMS) == 3
