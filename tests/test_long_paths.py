"""Paths as long as a system takes are used, and longer ones refused by every reader and writer, in a short message."""

import os
import subprocess
import sys

import numpy as np
import pytest

from darknet2caffe import read_network
from darknet2caffe.caffemodel import read_caffemodel
from darknet2caffe.cfg import read_cfg
from darknet2caffe.prototxt import read_prototxt
from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator, ImageBatches
from pytrtplugins.engines.base.engine_file import read_engine_file, write_engine_file
from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.mlops.pipeline import RunRecord
from pytrtplugins.mlops.registry import ModelRegistry
from pytrtplugins.mlops.registry.facts import data_digest
from pytrtplugins.mlops.shards import Shards, check_shards, make_shards
from pytrtplugins.mlops.tables import ImagePairs
from pytrtplugins.mlops.tables.labelled import LabelledImages
from pytrtplugins.models.dataset import YoloData
from pytrtplugins.models.faces import FaceIndex
from pytrtplugins.models.yolov2 import read_names
from pytrtplugins.passes import Precisions
from pytrtplugins.precision.report import read_report
from pytrtplugins.utils.array_files import read_npy, read_npz
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision import load_image
from pytrtplugins.vision.sources import Sources

if sys.platform != "linux":
    pytest.skip("other systems have other limits", allow_module_level=True)

NAME, PATH = 255, 4095  # bytes: limits.h, NAME_MAX and PATH_MAX without the NUL


def path_of(length):
    """A path of so many bytes, whose names may all be used."""
    return f"/{'p' * 200}" * (length // 201) + "/" + "p" * (length % 201 - 1)


def tree(path):
    folder = os.getcwd()
    with open("tree.cfg", "w") as file:
        file.write(f"[net]\nwidth=1\nheight=1\nchannels=4\n[softmax]\ntree={path}\n")
    return read_network(os.path.join(folder, "tree.cfg"))


READERS = [
    read_network, read_caffemodel, read_cfg, read_prototxt, CalibrationTable.read, read_engine_file, YoloData, FaceIndex.load,
    Precisions.read, read_report, read_npy, read_npz, load_image, tree, Shards.open, check_shards, data_digest, RunRecord.load, FileSet,
    LabelledImages, lambda path: read_names(path, 3), lambda path: list(Sources([path])), lambda path: ImageBatches(path, (8, 8)),
    lambda path: ImagePairs(path, "."), lambda path: ModelRegistry(path).names(),
    lambda path: EntropyCalibrator(cache=path).cached_table(["x"]),
    lambda path: make_shards(path, "shards", progress=False),
]  # fmt: skip
WRITERS = [
    CalibrationTable({"x": 1.0}).write,
    lambda path: EntropyCalibrator(cache=path).store_table(CalibrationTable({"x": 1})),
    lambda path: write_engine_file(path, {"engine": "reference"}, b"model"),
    lambda path: FaceIndex(["a"], np.ones((1, 2), np.float32)).save(path),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("use", [*READERS, *WRITERS], ids=lambda use: getattr(use, "__qualname__", "x"))
@pytest.mark.parametrize("path", ["n" * (NAME + 1), "n" * 5000, path_of(PATH + 1)], ids=len)
def test_a_longer_one_is_refused(use, path):
    with pytest.raises(PytrtpluginsError) as caught:
        use(path)
    longest = max(map(len, str(caught.value).split("\n")))
    assert longest < 2 * len(path) + 300


def test_a_longer_one_is_told_with_its_bytes():
    with pytest.raises(PytrtpluginsError) as caught:
        read_npy("ä" * 128 + "/x")
    assert "258 bytes, of which a name has 256, are more than this system takes.\nDo: " in str(caught.value)


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_what_no_name_can_have_is_refused(path):
    with pytest.raises(PytrtpluginsError, match="not the path of a file: "):
        read_npy(path)


@pytest.mark.parametrize("name", ["n" * NAME, "ä" * 127, "n" * 250 + ".data"], ids=len)
def test_a_name_as_long_as_systems_take_is_written_and_read(name):
    CalibrationTable({"x": 1.0}).write(name)
    assert CalibrationTable.read(name) == CalibrationTable.from_bytes(CalibrationTable({"x": 1.0}).to_bytes())
    assert os.listdir() == [name]


def test_files_whose_paths_are_too_long_are_told_by_their_folder(folder):
    for _ in range(25):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    open("a.png", "w").close()
    os.chdir(folder)
    with pytest.raises(PytrtpluginsError, match="longer than this system takes"):
        FileSet(folder)


def test_a_command_says_so_in_a_short_line():
    command = [sys.executable, "-m", "pytrtplugins", "inspect", f"{'a' * 70_000}.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert done.stderr == f"{'a' * 60}...: File name too long\n"
