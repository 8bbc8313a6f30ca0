"""Networks are read from darknet's files as they were written, and trained further."""

# ruff: noqa: E402  (the samples need PyTorch)
from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

import train_yolov2

from pytrtplugins.errors import CfgError, WeightsError
from tests.samples.needs_torch import WITHOUT_RANKS
from tests.samples.rectangles import ANCHORS, TINY, tiny_network
from yolov2_training import darknet, export, model

SHIPPED = Path(__file__).parents[2] / "samples/models/yolov2-animals.cfg"
pytestmark = [pytest.mark.usefixtures("one_thread", "no_figure"), WITHOUT_RANKS]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    net = tiny_network(2)
    export.write_darknet(tmp_path / "net", net, ANCHORS, ("red", "green"), size=64)
    found = darknet.load_darknet(tmp_path / "net.cfg")
    assert found.classes == ("red", "green")
    torch.testing.assert_close(found.anchors, ANCHORS)
    assert list(found.network.state_dict()) == list(net.state_dict())
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(found.network(x), net(x), rtol=0, atol=1e-4)


def test_the_shipped_network_is_read() -> None:
    found = darknet.load_darknet(SHIPPED)
    assert found.classes == ("person", "dog", "cat", "horse", "cow", "sheep")
    assert sum(p.numel() for p in found.network.parameters()) > 3_700_000
    export_size = sum(t.numel() for t in found.network.state_dict().values() if t.is_floating_point())
    assert SHIPPED.with_suffix(".weights").stat().st_size == 4 * export_size + 20


def test_other_layers_are_refused(tmp_path: Path) -> None:
    net = tiny_network(2)
    export.write_darknet(tmp_path / "net", net, ANCHORS, ("red", "green"), size=64)
    text = (tmp_path / "net.cfg").read_text()
    (tmp_path / "net.cfg").write_text(text.replace("filters=16\nsize=3", "filters=12\nsize=3", 1))
    with pytest.raises((CfgError, WeightsError)):
        darknet.load_darknet(tmp_path / "net.cfg")


def test_a_run_begins_with_darknets_files_or_names_what_does_not_fit(rectangles: Path, tmp_path: Path, capsys) -> None:
    net = tiny_network(2)
    export.write_darknet(tmp_path / "net", net, ANCHORS, ("red", "green"), size=64)
    widths = ["--stages", "4,8,8,8,16,16", "--head", "16", "--passthrough", "4"]
    line = ["--data", str(rectangles), *TINY[:4], "--device", "cpu", "--steps", "1"]
    line += ["--start", str(tmp_path / "net.cfg")]
    assert train_yolov2.main([*line, *widths, "--output", str(tmp_path / "out"), "--learning-rate", "1e-9"]) == 0
    found, _ = model.load_model(tmp_path / "out/model.pt")
    torch.testing.assert_close(found.anchors, ANCHORS)
    torch.testing.assert_close(found.network.parts[0][0].weight, net.parts[0][0].weight, rtol=0, atol=2e-3)
    assert train_yolov2.main([*line, *TINY[4:], "--output", str(tmp_path / "other")]) == 1
    assert "a network of other widths or classes (red, green)" in capsys.readouterr().err
