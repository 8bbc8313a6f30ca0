"""How many connections the files that a process may open are enough for."""

import dataclasses
import logging

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.processes.files import limit_connections_to_files

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


@pytest.mark.parametrize(
    ("files", "protocols", "asked", "connections", "raised"),
    [
        ((1024, 10_000), 1, 4096, 4096, [(4296, 10_000)]),
        ((1024, resource.RLIM_INFINITY), 1, 4096, 4096, [(4296, resource.RLIM_INFINITY)]),
        ((1024, 10_000), 2, 4096, 4096, [(8392, 10_000)]),
        ((1200, 1200), 2, 4096, 500, []),
        ((216, 216), 1, 4096, 16, []),
        ((20_000, 20_000), 1, Limits().connections, Limits().connections, []),
    ],
)
def test_the_own_limit_is_raised_where_it_may_be(allowed, files, protocols, asked, connections, raised):
    set_to = allowed(*files)
    assert limit_connections_to_files(Limits(connections=asked), protocols) == Limits(connections=connections)
    assert set_to == raised


def test_there_are_fewer_connections_where_it_may_not_be_raised_and_a_line_says_so(allowed, caplog):
    allowed(1024, 1024)
    with caplog.at_level(logging.WARNING):
        found = limit_connections_to_files(Limits(connections=4096))
    assert found == dataclasses.replace(Limits(), connections=824)
    assert "824 connections for each process, not 4096: `ulimit -n` allows 1024 files" in caplog.text


def test_too_few_files_are_one_line_and_the_next_command(allowed):
    allowed(64, 64)
    with pytest.raises(UsageError, match="may open 64 files, too few for a server") as caught:
        limit_connections_to_files(Limits(connections=4096))
    assert "Do: ulimit -n 4296" in str(caught.value)
