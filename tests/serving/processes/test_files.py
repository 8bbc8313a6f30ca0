"""How many connections the files that a process may open are enough for."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.processes.files import within_files

resource = pytest.importorskip("resource")


@pytest.fixture
def allowed(monkeypatch):
    """A user who may have so many files open, now and at most; gives what the process's limit was set to."""
    set_to = []

    def allow(soft, hard):
        monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda which, limits: set_to.append(limits))
        return set_to

    return allow


@pytest.mark.parametrize("hard", [10_000, resource.RLIM_INFINITY])
def test_the_own_limit_is_raised_where_it_may_be(allowed, hard):
    set_to = allowed(1024, hard)
    assert within_files(Limits(connections=4096)) == Limits(connections=4096)
    assert set_to == [(4296, hard)]


def test_two_protocols_share_the_files(allowed):
    set_to = allowed(1024, 10_000)
    assert within_files(Limits(connections=4096), 2) == Limits(connections=4096)
    assert set_to == [(8392, 10_000)]
    allowed(1200, 1200)
    assert within_files(Limits(connections=4096), 2) == Limits(connections=500)


def test_what_is_enough_stays(allowed):
    set_to = allowed(20_000, 20_000)
    assert within_files(Limits()) == Limits()
    assert set_to == []


def test_there_are_fewer_connections_where_it_may_not_be_raised_and_a_line_says_so(allowed, caplog):
    allowed(1024, 1024)
    with caplog.at_level(logging.WARNING):
        found = within_files(Limits(connections=4096))
    assert found == dataclasses.replace(Limits(), connections=824)
    assert "824 connections for each process, not 4096: `ulimit -n` allows 1024 files" in caplog.text


def test_too_few_files_are_one_line_and_the_next_command(allowed):
    allowed(64, 64)
    with pytest.raises(UsageError, match="may open 64 files, too few for a server") as caught:
        within_files(Limits(connections=4096))
    assert "Do: ulimit -n 4296" in str(caught.value)
