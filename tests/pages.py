"""Pages of the documentation: what is in them, and a folder in which they are followed as a reader would.

A block of code whose head has a title, such as ``python title="mylayers.py"``, is a file. Other blocks of Python are programs, which go on
from one another; blocks of ``sh`` and ``bash`` are commands; a block of ``text`` behind either is what it prints, where ``...`` stands for
anything. All of it runs in the process of the test.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import runpy
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pytrtplugins.plugin import registry

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MADE = {
    "changelog.md",
    *(f"reference/{name}.md" for name in ("api", "cli", "json")),
    *(f"notebooks/{path.stem}.md" for path in NOTEBOOKS),
}
"""Pages that `make docs` makes."""
SHELL = ("sh", "bash")
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block of code."""

    kind: str
    title: str
    text: str


def read(*pages: str) -> str:
    """The text of pages, one behind the other, by their paths in the project."""
    return "\n".join((ROOT / page).read_text("utf-8") for page in pages)


def blocks(*pages: str) -> list[Block]:
    """The blocks of pages, in their order."""
    found = []
    for head, text in FENCE.findall(read(*pages)):
        title = re.search(r'title="([^"]+)"', head)
        found.append(Block(head.partition(" ")[0], title[1] if title else "", text))
    return found


def texts(page: str | tuple[str, ...], *kinds: str) -> list[str]:
    """The blocks of these kinds on a page, or on several."""
    pages = (page,) if isinstance(page, str) else page
    return [block.text for block in blocks(*pages) if block.kind in kinds]


def commands(text: str) -> list[list[str]]:
    """The words of each command in lines of a shell; comments are left out, and lines that go on are joined."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            found.append(words[: words.index("&&")])
            words = words[words.index("&&") + 1 :]
        found += [words] * bool(words)
    return found


def shows(text: str, printed: str) -> bool:
    """Whether a page's text is what was printed, but for what ``...`` stands for, and for spaces."""
    parts = (re.escape(" ".join(part.split())) for part in text.split("..."))
    return re.fullmatch(r"\s*" + r".*".join(parts) + r"\s*", " ".join(printed.split()), re.DOTALL) is not None


class Reader:
    """Somebody who follows a page in a folder of theirs; programs go on from one another, commands begin anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._modules: dict[str, Any] = {}
        self._classes: dict[Any, Any] = {}

    def follow(self, page: str, *, without: Collection[str] = (), codes: Mapping[str, int] | None = None) -> None:
        """Do all that a page says, but for commands that begin with one of the words of ``without``.

        ``codes`` has the lines that end with another code than 0.
        """
        printed = ""
        for kind, title, text in blocks(page):
            if title:
                (self.folder / title).write_text(text, "utf-8")
            elif kind == "python":
                printed = self.python(text)
            elif kind in SHELL:
                printed = "".join(
                    self.shell(line, (codes or {}).get(line, 0))
                    for line in text.replace("\\\n", " ").splitlines()
                    if not line.startswith(tuple(without))
                )
            elif kind == "text":
                assert shows(text, printed), f"{page} shows:\n{text}\nprinted was:\n{printed}"

    def python(self, text: str) -> str:
        """What a program prints that goes on from those before it."""
        with self._here(self._modules, self._classes) as printed:
            exec(compile(text, "a program of the page", "exec"), self.names)
        return printed.getvalue()

    def shell(self, line: str, code: int = 0) -> str:
        """What the commands of a line print, each as in a process of its own; the last ends with ``code``."""
        found = commands(line)
        return "".join(self._command(words, code if words is found[-1] else 0) for words in found)

    def _command(self, words: list[str], code: int) -> str:
        with self._here({}, {}) as printed:
            ended: Any = 0
            try:
                _call(words)
            except SystemExit as end:
                ended = end.code or 0
        assert ended == code, f"{shlex.join(words)} ended with {ended}:\n{printed.getvalue()}"
        return printed.getvalue()

    @contextlib.contextmanager
    def _here(self, modules: dict[str, Any], classes: dict[Any, Any]) -> Iterator[io.StringIO]:
        """In the folder, with these modules of its and these plugins, and those that come; afterwards all is as it was."""
        own = {file.stem for file in self.folder.glob("*.py")}
        others = {name: sys.modules.pop(name) for name in own & set(sys.modules)}  # that another test has imported
        before, known = set(sys.modules), dict(registry._classes)
        path, place, written = list(sys.path), os.getcwd(), sys.dont_write_bytecode
        printed = io.StringIO()
        try:
            for key in [key for key, cls in known.items() if not _of_the_package(cls)]:
                del registry._classes[key]
            registry._classes.update(classes)
            sys.modules.update(modules)
            sys.path.insert(0, str(self.folder))
            sys.dont_write_bytecode = True  # a file of the page may change within a second
            importlib.invalidate_caches()
            os.chdir(self.folder)
            with contextlib.redirect_stdout(printed):
                yield printed
        finally:
            os.chdir(place)
            sys.dont_write_bytecode, sys.path[:] = written, path
            for name in set(sys.modules) - before:
                if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(self.folder)):
                    modules[name] = sys.modules.pop(name)
            sys.modules.update(others)
            for key, cls in list(registry._classes.items()):
                if not _of_the_package(cls):
                    classes[key] = registry._classes.pop(key)
            registry._classes.update(known)


def _of_the_package(cls: type) -> bool:
    return cls.__module__.startswith("pytrtplugins.")


def _call(words: list[str]) -> None:
    """Call what a command starts: pytrt, darknet2caffe, or a file or module of Python."""
    if words[0] == "pytrt":
        from pytrtplugins.cli import main

        main(words[1:])
    elif words[0] == "darknet2caffe":
        from darknet2caffe.cli import main

        main(words[1:])
    else:
        assert words[0] == "python", f"no test knows how to run {shlex.join(words)}"
        arguments, sys.argv = sys.argv, words[2 if words[1] == "-m" else 1 :]
        try:
            if words[1] == "-m":
                runpy.run_module(words[2], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(words[1], run_name="__main__")
        finally:
            sys.argv = arguments
