"""Each command line that a page shows is one that the command itself understands: its own parser takes it, and nothing runs."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from tests.pages import FENCE, ROOT, SHELL, commands, read

TyperCommand = pytest.importorskip("typer.core").TyperCommand

from darknet2caffe.cli import _command as darknet2caffe  # noqa: E402
from pytrtplugins.cli import command as pytrt  # noqa: E402

PAGES = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "samples/models/README.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
OURS = ("pytrt", "darknet2caffe", "python", "make", "pip")
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
EXTRAS = set(
    re.findall(
        r"^([\w-]+) = \[", PROJECT.partition("[project.optional-dependencies]")[2].partition("\n\n")[0], re.MULTILINE
    )
)
TARGETS = set(re.findall(r"^([a-z-]+|\$\(READY\)):", MAKEFILE, re.MULTILINE)) | {".venv/.ready"}
VARIABLES = set(re.findall(r"\$[({](\w+)|^(\w+) \?=|\$\(or \$\((\w+)", MAKEFILE, re.MULTILINE))
KINDS = (*SHELL, "", "text", "console")
OTHER_OPTIONS = {
    "--backend-config",
    "--disable-gil",
    "--staticPlugins",
    "--boxes",
    "--imitation",
    "--mixup",
    "--sizes",
    "--smoothing",
    "--stronglyTyped",
}
"""Of Triton, trtexec and the build of Python; and of the training sample, whose options are the fields of its recipe."""
FOREIGN_MODULES = ("pytest", "pip", "venv")


class Understood(Exception):
    """The parser took the words."""


def lines_of(text: str) -> list[list[str]]:
    """The words of the commands that a page shows, in blocks of a shell and in indented lines."""
    found = [words for head, block in FENCE.findall(text) if head.partition(" ")[0] in KINDS for words in shown(block)]
    prose = FENCE.sub("", text)
    return found + [words for line in re.findall(r"^    (\S.*)$", prose, re.MULTILINE) for words in shown(line)]


def named(text: str) -> set[tuple[str, ...]]:
    """Commands, with their options, that are named in the middle of a sentence."""
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCE.sub("", text))]
    found = [tuple(words) for span in spans if span.count("'") % 2 == span.count('"') % 2 == 0 for words in shown(span)]
    return {words for words in found if words[0] in ("pytrt", "darknet2caffe")}


def shown(block: str) -> list[list[str]]:
    """The commands among lines that may be other things too."""
    for name, value in re.findall(r'^(\w+)="([^"]*)"', block, re.MULTILINE):
        block = block.replace(f"${name}", value)
    ours = [
        line
        for line in block.replace("\\\n", " ").splitlines()
        if line.removeprefix(".venv/bin/").split(" ")[0] in OURS
    ]
    found = [words for line in ours for words in commands(line)]
    return [[words[0].removeprefix(".venv/bin/"), *words[1:]] for words in found]


def misunderstood(words: list[str]) -> str:
    """What a command says of words that it does not understand; nothing where it does."""
    name, *rest = words
    if name in ("pytrt", "darknet2caffe"):
        return refused_by_click(pytrt() if name == "pytrt" else darknet2caffe(), rest)
    if name == "make":
        return ", ".join(word for word in rest if not known_to_make(word))
    if name == "pip":
        asked = {
            extra
            for word in rest
            for extras in re.findall(r"(?:pytrtplugins\S*|^\.)\[([\w,-]+)\]", word)
            for extra in extras.split(",")
        }
        return ", ".join(asked - EXTRAS)
    return refused_by_program(rest)


def known_to_make(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return any(name in names for names in VARIABLES) if equals else name in TARGETS


def refused_by_click(command: Any, words: list[str]) -> str:
    """What a command says of words before it does anything."""
    try:
        command.main(args=words, prog_name="", standalone_mode=False)
    except Understood:
        return ""
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's errors, of whichever click typer brings
            raise
        return str(error.format_message())
    return "" if {"--help", "--version"} & {*words} else "it does nothing"


def refused_by_program(words: list[str]) -> str:
    """What the parser of a program in Python says; a program of the page's own, or another project's, is not asked."""
    if words[0] == "-m" and words[1] not in FOREIGN_MODULES:
        file = ROOT / words[1].replace(".", "/")
        file, start = next(path for path in (file.with_suffix(".py"), file / "__main__.py") if path.is_file()), 2
    elif (ROOT / words[0]).is_file():
        file, start = ROOT / words[0], 1
    else:
        return ""
    if not words[start:]:
        return ""
    if not re.search(r"argparse|parse_options|sys\.argv", file.read_text("utf-8")):
        return "it takes no arguments"
    before, path = sys.argv, list(sys.path)
    sys.argv = [str(file), *words[start:]]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # another program imported this one
            if start == 2:
                runpy.run_module(words[1], run_name="__main__")
            else:
                sys.path.insert(0, str(file.parent))
                runpy.run_path(str(file), run_name="__main__")
    except Understood:
        return ""
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        pytest.skip(f"{file.name}: PyTorch is not installed. Do: pip install torch")
    except SystemExit as end:
        return f"ended with {end.code}"
    finally:
        sys.argv, sys.path[:] = before, path
    return "it asked no parser"


def unknown(words: Sequence[str]) -> list[str]:
    """Options of a command that it does not have, or the command itself."""
    place = pytrt() if words[0] == "pytrt" else darknet2caffe()
    for number, word in enumerate(words[1:], 2):
        inner = getattr(place, "commands", {})
        if inner and not word.startswith("-"):
            if word not in inner and words[0] != "darknet2caffe":
                return [word]
            place = inner.get(word) or inner["convert"]
        if not getattr(place, "commands", None) or number == len(words):
            break
    options = {name for each in every(place) for name in (*each.opts, *each.secondary_opts, "--help")}
    asked = [word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", word)]
    return [word for word in asked if word not in options]


def every(command: Any) -> list[Any]:
    """The options of a command, and of the commands in it."""
    return [*command.params, *(each for inner in getattr(command, "commands", {}).values() for each in every(inner))]


@pytest.fixture(autouse=True)
def parse_only(monkeypatch):
    """Programs end where they have understood their arguments."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(*words, **named):
        parse(*words, **named)
        raise Understood

    def end(*words):
        raise Understood

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
    monkeypatch.setattr(TyperCommand, "invoke", end)
    for parameter in every(pytrt()):
        if getattr(parameter, "callback", None) and (
            not parameter.is_eager or parameter.name in ("config", "json", "quiet")
        ):
            monkeypatch.setattr(parameter, "callback", None)  # which asks whether a file is there, and imports modules


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_understood(page):
    wrong = {shlex.join(words): said for words in lines_of(read(page)) if (said := misunderstood(words))}
    assert wrong == {}
    assert {words: found for words in named(read(page)) if (found := unknown(words))} == {}


def test_every_example_in_a_help_text_is_understood():
    helps = [text for command in (pytrt(), darknet2caffe()) for text in helps_of(command)]
    examples = [
        line
        for text in helps
        for line in re.findall(r"^\s*(?:Examples?: )?((?:pytrt|darknet2caffe) .+)$", text, re.MULTILINE)
    ]
    assert len(examples) > 30
    wrong = {line: said for line in examples for words in commands(line) if (said := misunderstood(words))}
    assert wrong == {}


def helps_of(command):
    """The help texts of a command, and of the commands in it."""
    return [
        command.help or "",
        *(text for inner in getattr(command, "commands", {}).values() for text in helps_of(inner)),
    ]


def test_every_option_that_a_sentence_names_is_one_of_a_command():
    programs = [
        path for folder in ("benchmarks", "pytrtplugins", "samples", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    sources = [text for text in (path.read_text("utf-8") for path in programs) if "argparse" in text]
    known = {name for text in sources for name in re.findall(r'"(--[\w-]+)"', text)} | OTHER_OPTIONS
    known |= {
        name
        for command in (pytrt(), darknet2caffe())
        for each in every(command)
        for name in (*each.opts, *each.secondary_opts)
    }
    asked = {(page, name) for page in PAGES for name in re.findall(r"`(--[a-z][\w-]+)", FENCE.sub("", read(page)))}
    assert {(page, name) for page, name in asked if name not in known} == set()


@pytest.mark.parametrize(
    "line",
    ["pytrt bulid a.onnx", "pytrt build a.onnx --presicion int8", "pytrt build", "pytrt check-plugin a:B c",
     "darknet2caffe inspect --grahp a.cfg", "make tset", "make test OPTION=-x", 'pip install "pytrtplugins[cup]"',
     "python -m benchmarks --gup", "python samples/yolov2.py --int9 a.jpg"],
)  # fmt: skip
def test_a_command_that_is_wrong_is_found(line):
    (words,) = commands(line)
    assert misunderstood(words)


@pytest.mark.parametrize(
    "line", ["pytrt bulid", "pytrt build --presicion int8", "pytrt precision serach", "darknet2caffe inspect --grahp"]
)
def test_a_wrong_name_in_a_sentence_is_found(line):
    assert unknown(line.split())
