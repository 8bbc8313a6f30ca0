"""Every reader refuses what never ends, and every writer leaves what is no file as it is."""

import os
import stat

import pytest

from darknet2caffe import read_network
from darknet2caffe.caffemodel import read_caffemodel
from darknet2caffe.cfg import read_cfg
from darknet2caffe.cli import main as darknet2caffe_main
from darknet2caffe.prototxt import read_prototxt
from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator
from pytrtplugins.cli import main as pytrt_main
from pytrtplugins.engines.base.engine_file import read_engine_file
from pytrtplugins.errors import PytrtpluginsError, UsageError
from pytrtplugins.models import Yolov2  # noqa: F401  the package is there
from pytrtplugins.models.dataset import YoloData
from pytrtplugins.models.yolov2 import read_names
from pytrtplugins.passes import Precisions
from pytrtplugins.precision.report import read_report
from pytrtplugins.utils.array_files import read_npy, read_npz
from pytrtplugins.vision import load_image

CFG = "[net]\nwidth=4\nheight=4\nchannels=1\n[connected]\noutput=2\n"


def weights(path):
    cfg = path.with_name("a.cfg")
    cfg.write_text(CFG)
    return read_network(cfg, path)


def tree(path):
    cfg = path.with_name("a.cfg")
    cfg.write_text(f"{CFG}[softmax]\ntree={path}\n")
    return read_network(cfg)


def sidecar(path):
    cache = path.with_name("net.cache")
    EntropyCalibrator(cache=cache).store_table(CalibrationTable({"x": 1}))
    os.rename(path, f"{cache}.json")
    return EntropyCalibrator(cache=cache).cached_table(["x"])


READERS = [
    read_cfg, weights, tree, read_prototxt, read_caffemodel, CalibrationTable.read, sidecar, Precisions.read, read_report,
    lambda path: read_names(path, 2), lambda path: YoloData(path), read_npy, read_npz, read_engine_file, load_image,
]  # fmt: skip


@pytest.mark.parametrize("read", READERS, ids=lambda read: getattr(read, "__qualname__", "x"))
@pytest.mark.parametrize("kind", ["fifo", "zero"])
def test_a_fifo_and_an_endless_device_are_refused_by_every_reader(tmp_path, read, kind):
    path = tmp_path / "x"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(PytrtpluginsError) as caught:
        read(path)
    assert len(str(caught.value)) < 1000


COMMANDS = {
    "convert": [darknet2caffe_main, "a.cfg", "a.weights", "-o", "{}"],
    "inspect --graph": [darknet2caffe_main, "inspect", "a.cfg", "--graph", "{}.svg"],
    "build": [pytrt_main, "build", "a.cfg", "-o", "{}"],
    "run --save": [pytrt_main, "run", "a.cfg", "--save", "{}"],
    "calibrate": [pytrt_main, "calibrate", "a.cfg", "--calibration", "photos", "--cache", "{}"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("openvino")
    from PIL import Image

    from darknet2caffe import write_darknet

    folder = tmp_path_factory.mktemp("commands")
    (folder / "a.cfg").write_text("[net]\nwidth=8\nheight=8\nchannels=3\n[convolutional]\nfilters=2\nsize=1\n")
    write_darknet(read_network(folder / "a.cfg").with_random_weights(), folder / "a.cfg", folder / "a.weights")
    (folder / "photos").mkdir()
    Image.new("RGB", (8, 8), (200, 10, 90)).save(folder / "photos" / "a.png")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_whose_output_is_a_device_leaves_it_a_device(folder, tmp_path, command, monkeypatch, capsys):
    device = tmp_path / ("null.svg" if "graph" in command else "null")
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.read_bytes()
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    main, *words = COMMANDS[command]
    monkeypatch.chdir(folder)
    target = str(device).removesuffix(".svg")
    with pytest.raises(SystemExit) as ended:
        main([word.replace("{}", target) for word in words])
    assert not ended.value.code, capsys.readouterr().err
    assert stat.S_ISCHR(device.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir() if path.name != f"{device.name}.json"] == [device.name]


def test_an_engine_is_written_through_a_link(folder, tmp_path):
    onnx = pytest.importorskip("onnx")
    from darknet2caffe import to_onnx
    from pytrtplugins import build

    link, real = tmp_path / "latest.engine", tmp_path / "1.engine"
    real.write_text("old")
    link.symlink_to(real)
    model = to_onnx(read_network(folder / "a.cfg", folder / "a.weights"))
    assert isinstance(model, onnx.ModelProto)
    build(model, engine="reference").save(link)
    assert link.is_symlink()
    assert read_engine_file(real).metadata["engine"] == "reference"
    with pytest.raises(UsageError, match="found a folder"):
        build(model, engine="reference").save(tmp_path)
