"""docs/how-to/triton.md does what it says."""

import re
import shlex
import sys

import onnx
import pytest

from pytrtplugins.cli import main
from tests.export.triton_server import parse, serve
from tests.model.networks import documented_layers, network, node
from tests.pages import read, texts

TEXT = read("docs/how-to/triton.md")
(COMMAND,) = (text.strip().removeprefix("pytrt ") for text in texts("docs/how-to/triton.md", "sh"))
PRINTED, REFUSED = texts("docs/how-to/triton.md", "text")
(CONFIG,) = texts("docs/how-to/triton.md", "pbtxt")
LAYERS = documented_layers("mycompany")


def model(op_type, **attributes):
    attributes |= {"domain": "mycompany", "plugin_namespace": "mycompany", "plugin_version": "1"}
    return network([node("Relu", "x", "a", "relu"), node(op_type, "a", "y", "custom", **attributes)], ("N", 8, 16, 16))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that the page speaks of."""
    onnx.save(model("ChannelShuffle", groups=4), tmp_path / "model.onnx")
    (tmp_path / "mylayers.py").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mylayers", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run(command, code):
    with pytest.raises(SystemExit) as end:
        main(shlex.split(command))
    assert end.value.code == code


def test_its_command_writes_and_prints_what_it_shows(folder, capsys):
    run(COMMAND, 0)
    size = f"{(folder / 'models' / 'model' / '1' / 'model.onnx').stat().st_size:,} bytes"  # that of onnx's version
    assert capsys.readouterr().out.replace(size, "N bytes") == re.sub(r"(onnx: )[\d,]+", r"\1N", PRINTED)
    assert (folder / "models" / "model" / "config.pbtxt").read_text() == CONFIG
    config, _ = serve(folder / "models" / "model")
    assert config == parse(CONFIG)
    onnx.save(model("Halve"), folder / "model.onnx")
    run(f"{COMMAND} --version 2", 2)
    assert capsys.readouterr().err.split() == REFUSED.split()


def test_it_names_every_option(capsys):
    run("export-triton --help", 0)
    general = {"--help", "--json", "--quiet", "--verbose", "--config"}
    options = (
        set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - general - {"--output", "--weights", "--name"}
    )
    assert {option for option in options if option not in TEXT} == set()
