"""Commands whose work is done by stubs."""

from __future__ import annotations

import importlib

import pytest

from pytrtplugins.errors import UsageError


@pytest.fixture
def asked(monkeypatch):
    """Stubs: ``asked(where, name, answer)`` puts one there; it gives the calls, as positional arguments and options.

    Without an answer the command ends at it.
    """

    def put(where, name, *answer):
        calls = []

        def stub(*given, **options):
            calls.append((given, options))
            if not answer:
                raise UsageError("enough")
            return answer[0]

        monkeypatch.setattr(where, name, stub)
        return calls

    for name in ("calibrate", "check", "evaluate", "export", "precision", "run"):
        setattr(put, name, importlib.import_module(f"pytrtplugins.cli.{name}"))
    return put
