"""The list of commands is complete, and a command imports what it needs, not what others need."""

import importlib
import re
import subprocess
import sys
from typing import get_type_hints

import pytest

pytest.importorskip("typer")

from typer.models import OptionInfo

from pytrtplugins.cli import command
from pytrtplugins.cli.app import COMMANDS, GROUPS, app

from .test_number_options import walked

LOADED = """
import sys
from pytrtplugins.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
HEAVY = {
    "engines",
    "mlops.drift",
    "mlops.pipeline",
    "mlops.registry",
    "mlops.shards",
    "models",
    "passes",
    "serving",
    "vision",
}


def rooms_loaded_by(*words):
    """The rooms of the package that a process has imported when the command has ended."""
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    names = [name.split(".")[1:3] for name in done.stderr.split() if name.startswith("pytrtplugins.")]
    return {".".join(name) if name[0] == "mlops" else name[0] for name in names}


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["--version"], set()),
        (["--help"], set()),
        (["shards", "--help"], {"mlops.shards", "vision"}),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_command_imports_what_it_needs(words, needed):
    assert rooms_loaded_by(*words) & HEAVY == needed


def test_the_list_names_every_command_of_its_files():
    made = command().commands
    assert {name: each.name for name, each in made.items()} == {name: name for name in COMMANDS}
    added = [each.name or each.callback.__name__ for each in app.registered_commands]
    assert sorted([*added, *(each.name for each in app.registered_groups)]) == sorted(COMMANDS)


def test_help_lists_the_commands_in_their_groups(pytrt):
    _, out, _ = pytrt("--help")
    listed = re.findall(
        r"^╭─ (.+?) ─+╮$|^│ ([a-z-]+)  +[A-Z]", out.partition("╭─ Networks")[1] + out.partition("╭─ Networks")[2], re.M
    )
    assert [group or name for group, name in listed] == [
        each for group, rows in GROUPS.items() for each in (group, *rows)
    ]
    assert len(GROUPS) == 5


def test_summaries_fit_on_a_line_of_a_terminal():
    summaries = [row.summary for row in COMMANDS.values()]
    assert [summary for summary in summaries if len(summary) > 60 or summary.endswith(".")] == []


def test_a_name_that_is_misspelt_is_answered_with_the_right_one(refused):
    assert "Did you mean 'build'?" in refused("bulid")


def test_typer_asks_for_no_option_by_its_metavar():
    """Typer 0.27 makes ``--SIZE`` of an option ``size`` whose metavar is SIZE, unless its name is given."""
    for row in COMMANDS.values():
        for module in row.modules:
            importlib.import_module(f"pytrtplugins.{module}")
    repeated = {}
    for words, function in walked(app, "pytrt"):
        for name, hint in get_type_hints(function, include_extras=True).items():
            for option in getattr(hint, "__metadata__", ()):
                if isinstance(option, OptionInfo) and option.metavar == name.upper():
                    repeated[f"{words} --{name}"] = [option.default, *(option.param_decls or ())]
    assert repeated["pytrt shards make --size"] == ["--shard-size"]
    assert [words for words, names in repeated.items() if not str(names[0]).startswith("--")] == []
