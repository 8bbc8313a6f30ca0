"""What the race shares: the GPU, the network, the baseline of each batch, the time limit, and what the record says of all rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytrtplugins.engines import availability

from .ceilings import machine
from .clock import Clock
from .darknet_peer import load_darknet
from .rows import Claims, read_rows, row_of
from .runners import BASELINE
from .running import Running
from .subject import Subject, make_subject

if TYPE_CHECKING:
    from tests.oracles.libdarknet import DarknetNetwork

_BEGUN = time.monotonic()
_FACTS, _LEFT_OUT = pytest.StashKey[dict[str, Any]](), pytest.StashKey[dict[str, str]]()
_CLAIMS = pytest.StashKey[Claims]()
NOT_REACHED = "the run ended before this row did"
Baselines = Callable[[str, Callable[[], Running]], Running]


@pytest.fixture(scope="session")
def cupy(pytestconfig: pytest.Config) -> Any:
    reason = next(each.reason for each in availability() if each.name == "cuda")
    if reason:
        pytest.skip(reason)
    return pytest.importorskip("cupy")


@pytest.fixture(scope="session")
def clock(cupy: Any, pytestconfig: pytest.Config) -> Clock:
    """The clock; the machine is measured with it first."""
    made = Clock(cupy)
    pytestconfig.stash[_FACTS] = machine(cupy, made)
    return made


@pytest.fixture(scope="session")
def subject(cupy: Any, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    try:
        return make_subject(tmp_path_factory.mktemp("yolov2"))
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def baselines() -> Iterator[Baselines]:
    """What rounds are paired with: made once by name, closed at the end."""
    made: dict[str, Running] = {}

    def find(name: str, make: Callable[[], Running]) -> Running:
        if name not in made:
            made[name] = make()
        return made[name]

    yield find
    for running in made.values():
        running.close()


@pytest.fixture
def baseline(subject: Subject, clock: Clock, baselines: Baselines) -> Callable[[int], Running]:
    """The race's baseline for a batch."""
    return lambda batch: baselines(f"race {batch}", lambda: BASELINE.make(subject, clock, batch))


@pytest.fixture(scope="session")
def darknet(subject: Subject, clock: Clock) -> Iterator[DarknetNetwork | None]:
    """darknet for one image; None where there is none."""
    try:
        network = load_darknet(subject, 1)
    except pytest.skip.Exception:
        yield None
        return
    yield network
    network.close()


@pytest.fixture(autouse=True)
def in_time() -> None:
    """Skip what would begin after the limit."""
    if _time_is_over():
        pytest.skip(f"the limit of {_limit():.0f} s was reached")


def _limit() -> float:
    return float(os.environ.get("BENCHMARK_SECONDS", "inf"))


def _time_is_over() -> bool:
    return time.monotonic() - _BEGUN > _limit()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = {}
    config.pluginmanager.register(_LeftOut(config.stash[_LEFT_OUT]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort by stage, so that a time limit leaves out little; or take the rows of the list at BENCHMARK_ROWS, in its order."""

    def stage(item: pytest.Item) -> int:
        mark = item.get_closest_marker("stage")
        return 0 if mark is None else int(mark.args[0])

    items.sort(key=stage)
    if path := os.environ.get("BENCHMARK_ROWS"):
        groups = read_rows(Path(path))
        found = {row_of(item.nodeid): item for item in items}
        order = [row for group in groups for row in group]
        if unknown := [row for row in order if row not in found]:
            raise pytest.UsageError(f"{path}: there are no such rows: {'; '.join(unknown)}")
        chosen = [found[row] for row in order]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
        if folder := os.environ.get("BENCHMARK_CLAIMS"):
            config.stash[_CLAIMS] = Claims(Path(folder), os.environ["BENCHMARK_OWNER"], groups)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Leave a row to the process that has its group."""
    claims, row = item.config.stash.get(_CLAIMS, None), row_of(item.nodeid)
    if claims is None or _time_is_over():
        return None
    if claims.take(row):
        if (terminal := item.config.pluginmanager.get_plugin("terminalreporter")) is not None:
            terminal.write_line(
                f"{time.monotonic() - _BEGUN:6.0f} s: {row}"
            )  # of a process that is ended, all that is seen
        return None
    item.config.stash[_LEFT_OUT].pop(row, None)
    item.session._setupstate.teardown_exact(nextitem)  # the row before has kept what this one would have needed
    return True


class _LeftOut:
    """Notes the rows without figures, with the reason."""

    def __init__(self, rows: dict[str, str]) -> None:
        self.rows = rows

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.rows.update({row_of(item.nodeid): NOT_REACHED for item in session.items})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = row_of(report.nodeid)
        if report.skipped and isinstance(report.longrepr, tuple):
            self.rows[row] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.rows[row] = (crash.message if crash else report.longreprtext).strip().splitlines()[0]
        elif report.when == "call":
            del self.rows[row]


def pytest_benchmark_update_json(config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]) -> None:
    output_json["gpu"] = config.stash.get(_FACTS, {})
    output_json["left_out"] = [f"{row}: {reason}" for row, reason in config.stash[_LEFT_OUT].items()]
