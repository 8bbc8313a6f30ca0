"""Where what takes long to make is kept; a machine without a place for it works all the same."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pytrtplugins.cuda import cache


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Folders are looked for once in a process."""
    cache.cache_folder.cache_clear()
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    yield
    cache.cache_folder.cache_clear()


def _made():
    return cache.cached_file(["some", "text"], ".txt", lambda path: path.write_text("made", encoding="utf-8"))


def test_the_users_cache_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _made().parent == tmp_path / ".cache" / "pytrtplugins" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    cache.cache_folder.cache_clear()
    assert _made().parent == tmp_path / "x" / "pytrtplugins" / "kernels"


def test_a_home_that_cannot_be_written_costs_the_cache_alone(monkeypatch, caplog):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    with caplog.at_level(logging.WARNING):
        assert _made().read_text(encoding="utf-8") == "made"
    assert "cannot be written" in caplog.text


def test_a_user_without_a_home_needs_none(monkeypatch):
    def nobody(cls):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(nobody))
    assert _made().read_text(encoding="utf-8") == "made"
