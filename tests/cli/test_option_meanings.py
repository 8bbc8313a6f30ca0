"""An option means one thing in all commands: one name has one type and one meaning, and one meaning has one name.

What differs stands here with its reason. Programs of the samples and benchmarks are held against the commands by type.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import pytest

from pytrtplugins.utils.numbers import FloatRange, IntList, IntRange

pytest.importorskip("onnx")
pytest.importorskip("typer")

from darknet2caffe.cli import _command as darknet2caffe
from pytrtplugins import cli
from pytrtplugins.cli.shared import old_names
from tests.cli.shared.test_common import leaves
from tests.cli.test_number_options import parser_of, programs

OTHER_TYPE = {
    "algorithm": "table takes several, with commas",
    "batch": "table takes several, with commas; darknet2caffe convert also the word dynamic",
    "calibration-size": "table takes several, with commas",
    "graph": "darknet2caffe inspect also takes the word open",
    "precision": "precision search writes a precision file, and takes names alone",
}
"""Options that are not of one type in all commands."""
OTHER_MEANING = {"only": "run takes a step of a pipeline, repair its repairs"}
"""Options whose help begins with another word in each command."""
OTHER_NAME = {"image": "--data are images to measure with, --calibration those to calibrate with"}
"""Words with which the help of options of several names begins."""
PLURALS = {
    "cpu": "processes of a server on this machine; --cpus are the cores of a replica, in the words of Ray and Kubernetes",
    "gpu": "processes of a server on this machine; --gpus are the GPUs of a replica",
    "input": "an array for an input; --inputs are names of tensors, as in Polygraphy",
    "name": "of what is made; --names is darknet's file of class names",
    "output": "the file to write; --outputs are names of tensors, as in Polygraphy",
}
"""Names that differ from another one by an s."""
PROGRAMS = {
    "ahead": "of benchmarks: batches of a loader, or rows to compile",
    "fail-above": "of the benchmark of one figure: its microseconds",
    "gpu": "benchmarks: on this machine's GPU; soak: as serve",
    "gpus": "training: processes of a run; benchmarks: numbers of GPUs",
    "input": "of benchmarks of training, whose records have the command: the network's input in pixels",
    "json": "a file: programs print tables, and keep records",
    "show": "of benchmarks: outcomes to print",
    "trace": "training: a flag, since all results go into one folder",
    "until": "of benchmarks: seconds; of a pipeline: a step",
}
"""Options that a program of the samples or benchmarks does not read as the same type as another one, or as a command."""


class Option(NamedTuple):
    """An option of a command: its name without dashes, its type, and its help."""

    command: str
    name: str
    kind: str
    help: str


def command_options() -> list[Option]:
    found = []
    for program, command in (("pytrt", cli.command()), ("darknet2caffe", darknet2caffe())):
        for words, leaf in leaves(command).items():
            hints = get_type_hints(leaf.callback)
            for each in leaf.params:
                if each.param_type_name == "option":
                    hint = hints[each.name] if each.expose_value else bool if each.is_flag else Path
                    name = next(text for text in each.opts if text.startswith("--"))
                    found.append(Option(f"{program} {words}", name.lstrip("-"), kind_of(hint), each.help))
    return found


def kind_of(hint: Any) -> str:
    """A type without None and list."""
    (hint,) = [part for part in get_args(hint) if part is not type(None)] if get_origin(hint) is Union or isinstance(
        hint, type(int | None)
    ) else [hint]  # fmt: skip
    if get_origin(hint) is list:
        return kind_of(get_args(hint)[0])
    return "choice" if get_origin(hint) is Literal else str(hint.__name__)


def program_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[Option]:
    for path in programs():
        try:
            parser = parser_of(path, monkeypatch)
        except ModuleNotFoundError:
            continue
        for each in parser._actions:
            names = [text for text in each.option_strings if text.startswith("--")]
            if names and argparse.SUPPRESS not in (each.help, each.default):
                kind = each.type.each if isinstance(each.type, IntList) else each.type
                text = "bool" if each.nargs == 0 else "number" if isinstance(kind, (IntRange, FloatRange)) else "text"
                yield Option(path, names[-1].lstrip("-"), text, each.help)


def different(options: list[Option], part: Any) -> dict[str, set[str]]:
    """Names of options of which a part differs between commands."""
    found = defaultdict(set)
    for each in options:
        found[each.name].add(part(each))
    return {name: parts for name, parts in found.items() if len(parts) > 1}


def first_word(option: Option) -> str:
    """What an option is of, or does: the first word of its help, in the singular."""
    return re.split(r"[\s:;,.]", option.help)[0].lower().removesuffix("s")


OPTIONS = command_options()


def test_an_option_has_one_type_in_all_commands():
    found = different(OPTIONS, lambda each: each.kind)
    assert {name: kinds for name, kinds in found.items() if name not in OTHER_TYPE} == {}
    assert set(OTHER_TYPE) <= set(found), "these have one type now"


def test_an_option_has_one_meaning_in_all_commands():
    found = different(OPTIONS, first_word)
    assert {name: words for name, words in found.items() if name not in OTHER_MEANING} == {}
    assert set(OTHER_MEANING) - {"only"} <= set(found)


def test_a_meaning_has_one_name_in_all_commands():
    names = defaultdict(set)
    for each in OPTIONS:
        names[re.split(r"[.;:,]", each.help)[0].lower()].add(each.name)
    assert {
        text: found for text, found in names.items() if len(found) > 1 and text.removesuffix("s") not in OTHER_NAME
    } == {}


def test_no_two_options_differ_by_an_s():
    names = {each.name for each in OPTIONS}
    assert {name for name in names if f"{name}s" in names} == set(PLURALS)


def test_programs_read_an_option_as_the_commands_do(monkeypatch):
    kinds = {"int": "number", "float": "number", "bool": "bool"}
    known = [each._replace(kind=kinds.get(each.kind, "text")) for each in OPTIONS if each.name not in OTHER_TYPE]
    found = different([*known, *program_options(monkeypatch)], lambda each: each.kind)
    assert {name: kinds for name, kinds in found.items() if name not in PROGRAMS} == {}


def test_old_names_lead_to_options_and_are_shown_nowhere():
    shown = {(each.command, each.name) for each in OPTIONS}
    for old, new, commands in old_names._RENAMED:
        for command in commands.split(", "):
            assert (f"pytrt {command}", new) in shown
            assert (f"pytrt {command}", old) not in shown


def test_an_old_name_works_and_is_told(pytrt, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    code, out, err = pytrt("shards", "check", "none", "--workers", "0")
    assert (code, out) == (2, "")
    assert "--threads: expected a whole number from 1" in err
    words = ("precision", "search", "none.onnx", "--data", "d", "-o", "p.yaml", "--mode=stretch", "--limit", "3")
    caplog.clear()
    pytrt(*words)
    assert caplog.messages == [
        f"pytrt precision search: --{old} is called --{new} now; the old name works up to version 0.2"
        for old, new in (("mode", "fit"), ("limit", "samples"))
    ]
    caplog.clear()
    pytrt(*words, "-q")
    assert caplog.messages == []
    assert "--mode" not in pytrt("precision", "search", "--help")[1]


def test_an_old_name_in_a_file_works_and_is_told(pytrt, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    Path("pytrt.toml").write_text("[precision.search]\nmode = 'stretched'\n")
    code, _, err = pytrt("precision", "search", "none.onnx", "--data", "d", "-o", "p.yaml")
    assert code == 2
    assert "--mode is called --fit now" in caplog.text
    assert "line 2: pytrt precision search, mode: expected 'letterbox'" in err
