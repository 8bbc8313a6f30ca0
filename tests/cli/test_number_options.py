"""Every option of every command that takes a number refuses nonsense, with its name, what was given, and what it takes."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from pytrtplugins.utils.numbers import FloatRange, IntList, IntRange

pytest.importorskip("onnx")
typer = pytest.importorskip("typer")

from darknet2caffe import cli as darknet2caffe_cli  # noqa: E402
from pytrtplugins import cli  # noqa: E402
from pytrtplugins.cli.app import app  # noqa: E402
from pytrtplugins.cli.shared.number import limits_of  # noqa: E402
from pytrtplugins.models import options as sample_options  # noqa: E402
from tests.cli.number_limits import COMMANDS, PROGRAMS  # noqa: E402

ROOT = Path(__file__).parents[2]
dict(cli.command().commands)  # all files that add commands are imported from here on
MAINS = {"pytrt": cli.main, "darknet2caffe": darknet2caffe_cli.main}
APPS = {"pytrt": app, "darknet2caffe": darknet2caffe_cli.app}
NO_NUMBERS = {
    "benchmarks/conversion.py",
    "benchmarks/gpu/host_split.py",
    "benchmarks/pages/__main__.py",
    "benchmarks/serving/peers/__main__.py",
    "benchmarks/serving/triton_tests.py",
    "benchmarks/tensorrt_builds/placement.py",
}
TEXTS = {
    "darknet2caffe convert --batch": ("0", "-1", "nan", "inf", "1.5", "65537", str(10**12)),
    "darknet2caffe convert --input-size": ("0x416", "416x-1", "nanxnan", "416", "416x416x3", "16385x416", f"{10**12}x416"),
    "darknet2caffe inspect --input-size": ("0x416", "416x-1", "nanxnan", "416", "16385x416", f"{10**12}x416"),
    "pytrt compare --tolerance": ("atol=nan", "atol=inf", "rtol=-1", "atol=0,rtol=0", "cosine=1", "map50=0", "atol=1e12", "nan"),
    "pytrt precision search --tolerance": ("atol=nan", "cosine=nan", "cosine=2", "map50=nan", "map50=1", "map50=-1", "rtol=1e400"),
}  # fmt: skip
"""Options whose text holds numbers, and what they refuse."""
REST = {
    "pytrt compare --tolerance": ["a.onnx", "b.onnx"],
    "pytrt precision search --tolerance": ["a.onnx", "--data", "photos", "-o", "a.yaml"],
    "darknet2caffe convert --batch": ["a.cfg", "a.weights", "-o", "a.onnx"],
    "darknet2caffe convert --input-size": ["a.cfg", "a.weights", "-o", "a.onnx"],
    "darknet2caffe inspect --input-size": [str(ROOT / "samples" / "models" / "yolov2-animals.cfg")],
}


def walked(found: Any, words: str) -> Any:
    """Each command of a typer app: its words and its function."""
    for command in found.registered_commands:
        yield f"{words} {command.name or command.callback.__name__}", command.callback
    for group in found.registered_groups:
        yield from walked(group.typer_instance, f"{words} {group.name}")


def parts_of(hint: Any) -> Any:
    """A type, and the types within it."""
    yield hint
    for part in get_args(hint):
        yield from parts_of(part)


def command_options() -> dict[str, Any]:
    """Each option of the commands whose type is a number: its words and what typer was given for it."""
    found = {}
    for program, one in APPS.items():
        for words, function in walked(one, program):
            for name, hint in get_type_hints(function, include_extras=True).items():
                if get_origin(hint) is Union and get_origin(get_args(hint)[0]) is Annotated:
                    hint = get_args(hint)[0]
                base, *extras = get_args(hint) or (hint,)
                if extras and {int, float} & set(parts_of(base)):
                    (option,) = (extra for extra in extras if hasattr(extra, "param_decls"))
                    names = (option.default, *(option.param_decls or ()))  # typer takes the first name for a default
                    long = [text for text in names if str(text).startswith("--")]
                    found[f"{words} {long[0] if long else '--' + name.replace('_', '-')}"] = option
    return found


def programs() -> list[str]:
    """Files of the samples and the benchmarks that have a command line, and the one that a sample takes from the package."""
    files = [path for folder in ("samples", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [str(path.relative_to(ROOT)) for path in files if "ArgumentParser(" in path.read_text("utf-8")]
    return [str(Path(sample_options.__file__).relative_to(ROOT)), *found]


class Caught(Exception):
    """Carries the parser of a program."""


def parser_of(path: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    def caught(parser, *_):
        raise Caught(parser)

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", caught)
        patch.syspath_prepend(str(ROOT / "samples"))
        if path.startswith("pytrtplugins/"):
            main = lambda: sample_options.parse_options("", "model")  # noqa: E731
        elif path.startswith("samples/"):
            pytest.importorskip("torch")
            main = importlib.import_module(Path(path).stem).main
        else:
            main = importlib.import_module(path.removesuffix(".py").replace("/", ".")).main
        with pytest.raises(Caught) as found:
            main()
    return found.value.args[0]


def is_number(option: argparse.Action) -> bool:
    """Whether an option takes numbers: by its type, or by what it has for a default."""
    default = option.default
    return isinstance(option.type, (IntRange, FloatRange, IntList)) or option.type in (int, float) or (
        isinstance(default, (int, float, tuple)) and not isinstance(default, bool) and option.nargs != 0
    )  # fmt: skip


def nonsense(minimum: float, maximum: float) -> list[str]:
    """What an option from ``minimum`` to ``maximum`` must refuse."""
    below = [str(minimum - 1), "-1000000000000"]
    above = [
        str(maximum + 1) if isinstance(maximum, int) else str(maximum * 2),
        str(10**12 if maximum < 10**12 else 10**20),
        "9" * 5000,
    ]
    words = ["nan", "NaN", "inf", "-inf", "infinity", "1e400", "", " ", "x", "1,x", "0x10", "1;2"]
    digits = ["٣" * 50, "\N{SUPERSCRIPT TWO}"]
    return [*below, *above, *words, *digits, *(["1.5", "1e1", "3.0"] if isinstance(minimum, int) else [])]


def check_message(printed: str, name: str, text: str, minimum: float, maximum: float) -> None:
    """One line that names the option, what was given, and the limits."""
    (line,) = (line for line in printed.splitlines() if "expected" in line)
    shown = [f"{limit:,}" if isinstance(limit, int) else f"{limit:,.10g}" for limit in (minimum, maximum)]
    assert f"{name}: expected " in line
    assert f"from {shown[0]} to {shown[1]}" in line
    assert f"found {text!r}" in line if 0 < len(text) < 40 else "found '" in line
    assert len(line) < 250


def test_every_numeric_option_of_the_commands_has_its_limits():
    options = command_options()
    assert sorted(options) == sorted(COMMANDS)
    for name, option in options.items():
        limits = limits_of(option)
        assert limits is not None, f"{name} takes any number: make it with pytrtplugins.cli.shared.number.number"
        assert (limits.minimum, limits.maximum) == COMMANDS[name], name
        assert isinstance(limits, IntRange) == isinstance(COMMANDS[name][0], int), name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_refuses_numbers_that_make_no_sense(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    *words, option = name.split()[1:]
    for text in nonsense(*COMMANDS[name]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, f"{option}={text}"])
        printed = capsys.readouterr()
        assert ended.value.code == 2
        assert printed.out == ""
        assert "Traceback" not in printed.err
        check_message(printed.err, option, text, *COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_both_limits(name):
    limits = limits_of(command_options()[name])
    for number in COMMANDS[name]:
        assert limits.read(str(number)) == number
        assert type(limits.read(str(number))) is type(number)


def test_every_program_with_options_is_in_the_table():
    assert {path.partition(" ")[0] for path in PROGRAMS} | NO_NUMBERS == set(programs())


@pytest.mark.parametrize("path", programs())
def test_a_program_refuses_numbers_that_make_no_sense(path, capsys, monkeypatch):
    try:
        parser = parser_of(path, monkeypatch)
    except ModuleNotFoundError as error:
        pytest.skip(f"{path} needs the package {error.name!r}")
    numbers = {max(option.option_strings, key=len): option for option in parser._actions if is_number(option)}
    table = {name.partition(" ")[2]: limits for name, limits in PROGRAMS.items() if name.startswith(f"{path} ")}
    assert sorted(numbers) == sorted(table)
    for name, (minimum, maximum) in table.items():
        option = numbers[name]
        each = option.type.each if isinstance(option.type, IntList) else option.type
        assert isinstance(each, (IntRange, FloatRange)), (
            f"{path} {name} takes any number: give it a type of pytrtplugins.utils.numbers"
        )
        assert (each.minimum, each.maximum) == (minimum, maximum), name
        for text in nonsense(minimum, maximum):
            with pytest.raises(SystemExit) as ended:
                parser.parse_args([f"{name}={text}"])
            assert ended.value.code == 2
            check_message(capsys.readouterr().err, name, text, minimum, maximum)


@pytest.mark.parametrize("name", TEXTS)
def test_numbers_within_a_text_are_held_against_limits(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    program, *words, option = name.split()
    for text in TEXTS[name]:
        with pytest.raises(SystemExit) as ended:
            MAINS[program]([*words, *REST[name], f"{option}={text}"])
        printed = capsys.readouterr().err
        assert ended.value.code == 2, text
        assert "Traceback" not in printed
        assert f"{option.lstrip('-')} " in printed
        assert text in printed
        assert re.search(r"from -?[\d.,]+ to ", printed), printed
    assert list(tmp_path.iterdir()) == []


def test_a_command_line_has_no_other_parser():
    """Typer's own limits name neither what was given nor both ends; so they are not used."""
    for module in {inspect.getmodule(function) for words, function in walked(app, "pytrt")} | {darknet2caffe_cli}:
        source = inspect.getsource(sys.modules[module.__name__])
        assert re.findall(r"typer\.Option\([^()]*\b(?:min|max)=", source) == [], module.__name__
