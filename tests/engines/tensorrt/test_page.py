"""The pages of TensorRT: their programs run as they stand, their commands are understood, and they name all settings."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import fields

import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins import errors
from pytrtplugins.engines.tensorrt.settings import Settings
from pytrtplugins.passes import prepare
from tests.engines.networks import conv_net
from tests.pages import read, texts

from .builds import table_of
from .checked import Proxy

PAGES = (
    "docs/how-to/tensorrt.md",
    "docs/how-to/tensorrt_rtx.md",
    "docs/reference/tensorrt_errors.md",
    "docs/how-to/tensorrt_programs.md",
)
TEXT = read(*PAGES)
PROGRAMS = texts(PAGES, "python")
ALL_COMMANDS = re.findall(r"^    pytrt build (.*)$", TEXT, re.MULTILINE)
COMMANDS = [command for command in ALL_COMMANDS if "tensorrt_rtx" not in command]


@pytest.fixture
def folder(player, tensorrt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorrt", tensorrt.trt)
    names: dict[str, object] = {"__name__": "mylayers"}
    exec(PROGRAMS[0], names)
    (tmp_path / "mylayers.py").write_text(PROGRAMS[0])
    model = prepare(conv_net(names["ChannelShuffle"](groups=4), batch="N"))
    for name in ("model", "yolov2"):
        onnx.save(model, tmp_path / f"{name}.onnx")
        table_of(model).write(tmp_path / f"{name}.cache")
    return names


def test_its_programs_run(folder, tensorrt, api, monkeypatch):
    monkeypatch.setattr(api.trt, "ITensor", Proxy)  # quickly deployable plugins look whether they are given tensors
    for program in PROGRAMS[1:]:
        if "implicit" in program and tensorrt.major == 11:
            with pytest.raises(errors.UnavailableError, match="no implicit quantization"):
                exec(program, folder)
            continue
        exec(program, folder)
    assert folder["outputs"]["y"].shape == (4, 4, 8, 8)
    assert folder["parsed"] is True
    assert folder["plan"]
    assert tensorrt.calls[-1] == "INetworkDefinition.add_plugin"
    assert len(PROGRAMS) == 6


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_build(folder, command):
    pytest.importorskip("typer")
    from pytrtplugins.cli import main

    with pytest.raises(SystemExit) as end:
        main(["build", *shlex.split(command)])
    assert not end.value.code
    assert ptp.load_engine(command.split()[-1]).name == "tensorrt"


def test_it_names_every_setting_and_real_errors():
    rows = re.findall(r"^\| `(\w+)` \|", TEXT[: TEXT.index("## Precisions")], re.MULTILINE)
    assert sorted(rows) == sorted(item.name for item in fields(Settings))
    kinds = re.findall(r"^\| (\w+Error) \|", TEXT, re.MULTILINE)
    assert len(kinds) == 10
    assert all(issubclass(getattr(errors, kind), ptp.PytrtpluginsError) for kind in kinds)
