"""What commands find, as JSON, and the keys that docs tell of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from pytrtplugins import models
from pytrtplugins.cli.shared import results
from pytrtplugins.cli.shared.keys import Key, keys, result_types
from pytrtplugins.cli.shared.results import to_json
from tests.cli.shared.test_common import COMMANDS
from tests.engines.networks import conv_net

LAYER = """
import pytrtplugins as ptp

@ptp.plugin(namespace="resultscli")
class Same(ptp.Plugin):
    def output_dims(self, x):
        return x

    def compute(self, x):
        print("computing")
        return x * 1
"""


@dataclass(frozen=True)
class Inner:
    """A part.

    Fields:
        path: Where it is, and
            what.
    """

    path: Path


@dataclass(frozen=True)
class Outer:
    """A whole.

    Attributes:
        parts: Its parts.
        named: Its parts by name.
        size: How large; None: unknown.

    Example:
        >>> Outer((), {}, None)
    """

    parts: tuple[Inner, ...]
    named: dict[str, Inner]
    size: int | None


def test_a_value_becomes_what_json_has():
    found = Outer((Inner(Path("a/b")),), {"x": Inner(Path("c"))}, None)
    assert to_json(found) == {"parts": [{"path": "a/b"}], "named": {"x": {"path": "c"}}, "size": None}
    assert to_json([np.float32(1.5), np.arange(2), float("inf"), float("nan"), True, {1: (2,)}]) == [
        1.5, [0, 1], None, None, True, {"1": [2]},
    ]  # fmt: skip
    assert to_json(np.dtype("float32")) == "float32"


def test_keys_are_those_of_the_classes_inside_too():
    assert list(keys(Outer)) == [
        Key("parts", "list of object", "Its parts."),
        Key("parts[].path", "text", "Where it is, and what."),
        Key("named", "object of any keys, each with object", "Its parts by name."),
        Key("named{}.path", "text", "Where it is, and what."),
        Key("size", "whole number or null", "How large; None: unknown."),
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_result_whose_keys_all_have_a_meaning(name):
    types = result_types(COMMANDS[name])
    assert types
    for cls in types:
        assert [key.path for key in keys(cls) if not key.meaning] == []


def paths_of(value, path=""):
    """The paths of a JSON value's keys."""
    if isinstance(value, list):
        return {found for item in value for found in paths_of(item, f"{path}[]")}
    if not isinstance(value, dict):
        return set()
    under = f"{path}." if path else ""
    return {f"{under}{key}" for key in value} | {
        found for key, item in value.items() for found in paths_of(item, under + key)
    }


@pytest.fixture
def net(tmp_path):
    onnx.save(conv_net(), tmp_path / "net.onnx")
    (tmp_path / "same.py").write_text(LAYER)
    return tmp_path / "net.onnx"


CALLS = {
    "devices": (),
    "inspect": ("net.onnx",),
    "inspect --nodes": ("net.onnx",),
    "build": ("net.onnx", "--engine", "reference", "-o", "net.engine"),
    "extract": ("net.onnx", "--outputs", "y", "-o", "part.onnx"),
    "run": ("net.onnx", "--engine", "reference"),
    "check-plugin": ("same.py:Same",),
    "compare": ("net.onnx", "net.onnx", "--engine-b", "reference"),
}


@pytest.mark.parametrize("name", CALLS)
def test_standard_output_is_one_object_with_the_keys_that_are_told(printed, net, name):
    out = printed(*name.split(), *CALLS[name], "--json")
    found = json.loads(out)
    command = name.split()[0]
    assert list(found) == ["command", "version", "ok", "options", "result"]
    assert (found["command"], found["ok"]) == (f"pytrt {command}", True)
    told = [{key.path for key in keys(cls) if "{}" not in key.path} for cls in result_types(COMMANDS[command])]
    free = [key.path for cls in result_types(COMMANDS[command]) for key in keys(cls) if "any keys" in key.type]
    given = {path for path in paths_of(found["result"]) if not any(path.startswith(f"{each}.") for each in free)}
    assert any(given <= each and {path for path in each if "[]" not in path} <= given for each in told)


def test_options_have_their_names_and_defaults(pytrt, net):
    options = json.loads(pytrt("inspect", "net.onnx", "--json")[1])["options"]
    assert options == {
        "model": "net.onnx",
        "weights": None,
        "nodes": False,
        "engine": None,
        "fused": False,
        "graph": None,
        "precision": "fp32",
        "cache": None,
        "shape": None,
        "plugins": None,
    }


def test_figures_that_are_not_finite_are_null_and_a_miss_ends_with_1(pytrt, net, monkeypatch):
    from pytrtplugins.cli.shared import loading

    monkeypatch.setattr(
        loading, "open_engine", lambda *_, **__: SimpleNamespace(name="cpu", precision="fp32", choices={})
    )
    monkeypatch.setattr(models, "YoloData", lambda _, **__: None)
    monkeypatch.setattr(loading, "open_detector", lambda *_, **__: None)
    row = models.ClassResult("cat", float("nan"), float("nan"), 0, 3, ())
    monkeypatch.setattr(models, "evaluate", lambda *_, **__: models.Evaluation(0.5, 0.25, (row,), 2, 1.5))
    code, out, _ = pytrt("evaluate", "net.onnx", "--data", ".", "--json")
    result = json.loads(out)["result"]
    assert (code, result["engine"], result["figures"]["map50"]) == (0, "cpu", 0.5)
    assert result["figures"]["classes"][0]["ap50"] is None
    code, out, _ = pytrt("precision", "compare", "--json")
    assert (code, out) == (2, "")


def test_an_error_leaves_standard_output_empty(pytrt):
    code, out, err = pytrt("inspect", "missing.onnx", "--json")
    assert (code, out) == (2, "")
    assert "no such file" in err


@pytest.mark.parametrize(("problem", "printed"), [("", ""), ("dims: wrong", "dims: wrong\n")])
def test_a_quiet_result_that_does_not_hold_prints_its_problem_alone(problem, printed, capsys):
    with results.output():
        results.current_output().be_quiet()
        with pytest.raises(results.typer.Exit):
            results.show(results.Result(None, print, ok=False, problem=problem))
    assert capsys.readouterr() == ("", printed)
