"""A command takes the fields of a dataclass as options, and gets the dataclass."""

import typing
from dataclasses import dataclass
from typing import Annotated

import pytest

from pytrtplugins.cli.shared.groups import grouped
from pytrtplugins.cli.shared.option import option

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")


@dataclass(frozen=True)
class Place:
    """Where."""

    host: Annotated[str, option("ADDRESS", "Address to listen on.")]
    port: Annotated[int, typer.Option("--port", "-p")] = 80


@dataclass(frozen=True)
class Far(Place):
    """Farther, with another default."""

    port: Annotated[int, typer.Option("--port", "-p")] = 8080
    via: Annotated[str | None, typer.Option()] = None


@pytest.fixture
def run():
    app, calls = typer.Typer(), []

    @app.command()
    @grouped
    def command(word: Annotated[str, typer.Argument()], place: Far, times: Annotated[int, typer.Option()] = 1) -> None:
        """Say it there."""
        calls.append((word, place, times))

    def invoke(*words):
        result = testing.CliRunner().invoke(app, words)
        return result.exit_code, result.output, calls

    return invoke, command


def test_the_command_gets_the_group_with_values_and_defaults(run):
    invoke, _ = run
    assert invoke("hello", "--host", "a", "-p", "7", "--times", "2")[0] == 0
    assert invoke("hello", "--host", "a")[2] == [("hello", Far("a", 7), 2), ("hello", Far("a"), 1)]


def test_a_field_without_a_default_is_required_and_help_shows_all(run):
    invoke, _ = run
    code, output, calls = invoke("hello")
    assert (code, calls) == (2, [])
    assert "--host" in output
    output = invoke("--help")[1]
    assert [word in output for word in ("Say it there.", "ADDRESS", "8080", "--via", "--times")] == [True] * 5


def test_types_and_names_are_those_of_the_fields(run):
    hints = typing.get_type_hints(run[1])
    assert hints == {"word": str, "host": str, "port": int, "via": str | None, "times": int, "return": type(None)}
    assert run[1].__name__ == "command"
