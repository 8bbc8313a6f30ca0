"""Defaults of options in pytrt.toml."""

import json
import os

import onnx
import pytest

from pytrtplugins.cli.shared import config
from tests.test_bench import times


@pytest.fixture
def net(tmp_path):
    onnx.save(times(2.0, (1, 4)), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def inspected(printed, *words):
    out = printed("inspect", *words, "--json")
    return json.loads(out)["options"]


def test_the_file_gives_defaults_and_the_command_line_wins(printed, net, tmp_path):
    (tmp_path / "pytrt.toml").write_text("[inspect]\nnodes = true\n[build]\nengine = 'reference'\n")
    assert inspected(printed, "net.onnx")["nodes"] is True
    assert inspected(printed, "net.onnx")["engine"] is None  # of another command
    (tmp_path / "pytrt.toml").write_text("[inspect]\nengine = 'onnxruntime'\n")
    assert inspected(printed, "net.onnx")["engine"] == "onnxruntime"
    assert inspected(printed, "net.onnx", "--engine", "reference")["engine"] == "reference"


def test_every_kind_of_value_arrives_as_it_would_from_the_command_line(pytrt, net, tmp_path):
    text = "[bench]\nengine = 'reference'\nrounds = 1\nseconds = 0.01\nplugin = []\nsetting = ['sums=float32']\n"
    (tmp_path / "pytrt.toml").write_text(text)
    code, out, err = pytrt("bench", "net.onnx", "--json")
    options = json.loads(out)["options"]
    assert code == 0, err
    assert (options["rounds"], options["seconds"], options["setting"]) == (1, 0.01, ["sums=float32"])
    assert json.loads(out)["result"]["rows"][0]["name"] == "reference fp32"


def test_paths_are_relative_to_the_file_which_the_nearest_folder_has(pytrt, printed, net, tmp_path, monkeypatch):
    (tmp_path / "below" / "here").mkdir(parents=True)
    (tmp_path / "pytrt.toml").write_text("[build]\nengine = 'null'\noutput = 'a.engine'\n")
    monkeypatch.chdir(tmp_path / "below" / "here")
    assert pytrt("build", net, "--engine", "reference")[0] == 0  # the file answers for -o
    assert (tmp_path / "a.engine").is_file()
    (tmp_path / "below" / "pyproject.toml").write_text("[project]\nname = 'x'\n\n[tool.pytrt.inspect]\nnodes = true\n")
    (default,) = json.loads(pytrt("config", "--json")[1])["result"]["defaults"]
    assert default == {"command": "inspect", "option": "nodes", "value": True, "line": 5}
    out = printed("config", "--config", tmp_path / "pytrt.toml")
    assert "--output" in out
    assert '"a.engine"' in out


def test_without_a_file_config_says_so(pytrt):
    code, out, _ = pytrt("config")
    assert (code, out) == (0, "No pytrt.toml here or in a folder above: every option has its own default.\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[bench]\n\nronds = 1", "line 3: pytrt bench has no option --ronds.\nDo: write rounds"),
        ("[benhc]\nrounds = 1", "line 1: pytrt has no command 'benhc'.\nDo: write bench"),
        ("[precision.serch]", "line 1: pytrt precision has no command 'serch'.\nDo: write search"),
        ("[bench]\nrounds = '1'", "line 2: pytrt bench, rounds: expected a whole number, found '1'"),
        ("[bench]\nrounds = true", "line 2: pytrt bench, rounds: expected a whole number, found True"),
        ("[bench]\nrounds = 0", "line 2: pytrt bench, rounds: expected a whole number from 1 to"),
        ("[bench]\nsetting = 'a=1'", "line 2: pytrt bench, setting: expected a list, found 'a=1'"),
        ("[bench]\nsetting = [1]", "line 2: pytrt bench, setting: expected a list of text, found [1]"),
        ("[inspect]\nnodes = 1", "line 2: pytrt inspect, nodes: expected true or false, found 1"),
        (
            "[calibrate]\nalgorithm = 'x'",
            "line 2: pytrt calibrate, algorithm: expected 'entropy' or 'minmax' or 'percentile'",
        ),
        ("[inspect]\nmodel = 'x'", "line 2: pytrt inspect has no option --model"),
        ("[inspect]\njson = true", "line 2: pytrt inspect has no option --json"),
        ("bench = 1", "line 1: pytrt bench: expected a table, [bench], found 1"),
        ("bench = {rounds = 0}", "pytrt bench, rounds: expected a whole number from 1"),
        ("[bench]\nrounds = = 1", "at line 2"),
        ("a = " + "[" * 5000, "pytrt.toml"),
        ("\0", "pytrt.toml"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_nearest_name(pytrt, tmp_path, text, said):
    (tmp_path / "pytrt.toml").write_text(text)
    code, out, err = pytrt("devices")
    assert (code, out) == (2, "")
    assert err.startswith("FormatError: ")
    assert said in err
    assert len(err) < 2000


def test_a_file_that_is_no_text_or_too_large_is_refused(refused, tmp_path):
    for data, said in ((b"\xff", "not UTF-8 at byte 0"), (b"#" * (1 << 21), "expected at most 1,048,576 bytes")):
        (tmp_path / "pytrt.toml").write_bytes(data)
        assert said in refused("devices")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
def test_a_file_of_somebody_else_is_left_out(tmp_path, monkeypatch, caplog):
    (tmp_path / "here").mkdir()
    (file := tmp_path / "pytrt.toml").write_text("")
    assert config.find_config(tmp_path / "here") == file
    owners = {file: os.geteuid() + 1, tmp_path / "here": os.geteuid()}
    monkeypatch.setattr(config, "_owner", owners.__getitem__)
    assert config.find_config(tmp_path / "here") is None
    assert "pytrt.toml belongs to somebody else, and is left out. To use it: --config" in caplog.text
    owners[tmp_path / "here"] = os.geteuid() + 1
    assert config.find_config(tmp_path / "here") == file
