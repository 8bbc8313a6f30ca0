"""Fixtures that several suites share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.oracles.libdarknet import DarknetUnavailableError, LibDarknet

DATA = Path("/usr/share/darknet/data")


@pytest.fixture(scope="session")
def libdarknet() -> LibDarknet:
    """The oracle for darknet networks; skips with the reason where it cannot be had."""
    try:
        return LibDarknet()
    except DarknetUnavailableError as error:
        pytest.skip(f"libdarknet: {error}")


@pytest.fixture(autouse=True)
def int8_wins(monkeypatch) -> None:
    """Engines for CPUs choose between INT8 and float32 by the clock: here INT8 is always the faster one, unless a test says otherwise."""
    from pytrtplugins.engines import host

    monkeypatch.setattr(host, "run_seconds", lambda runs: {name: 1.0 + (name != "int8") for name in runs})


@pytest.fixture
def darknet_photo() -> Callable[[str], Path]:
    """Finds a photo of Debian's package darknet; skips where it is not installed."""

    def find(name: str) -> Path:
        if not (DATA / name).is_file():
            pytest.skip(f"{DATA / name} is missing (apt-get install darknet)")
        return DATA / name

    return find


@pytest.fixture
def pytrt(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder; gives exit code, standard output and standard error."""
    from pytrtplugins.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run
