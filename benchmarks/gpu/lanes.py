"""Rows on several GPUs at the same time: a process for each, with cores and caches of its own; they take groups from one list."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.engines.cuda.conv.cache import decode, encode
from pytrtplugins.utils.atomic import write_atomic

from ..pages.results import write_json
from .records import join
from .rows import Claims, read_rows, write_rows

__all__ = ["run"]

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "benchmarks", "--gpu", "--no-page")
_STARTS = 10  # of one lane
_LEAST_S = 15.0  # a row that begins later would not be finished
_LOOK_S, _JOIN_S, _END_S = 0.5, 10.0, 8.0


def run(
    rows: Path, gpus: Sequence[str], seconds: float, record: Path, work: Path, command: Sequence[str] = COMMAND
) -> None:
    """Run a list of rows; the record has what is done, whatever ends the run. A later run with the same folder goes on.

    Args:
        rows: The list; its groups are shared out, in its order.
        gpus: Numbers of the GPUs, as CUDA_VISIBLE_DEVICES takes them.
        seconds: When all processes are ended.
        record: All rows of this folder's runs in one file, written anew every few seconds.
        work: Keeps the processes' records, logs and caches.
        command: Runs rows; gets the options ``--rows``, ``--json`` and ``--seconds``.
    """
    end, work = time.monotonic() + seconds, work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    done = {row["row"] for one in _records(work) for row in one["rows"] if "failure" not in row}
    groups = [[row for row in group if row not in done] for group in read_rows(rows)]
    groups = [group for group in groups if group]
    write_rows(work / "rows.txt", groups)
    claims = Path(tempfile.mkdtemp(prefix="claims-", dir=work))
    before = (int(path.stem.split("-")[1]) for path in work.glob("record-*.json"))
    numbers = itertools.count(max(before, default=-1) + 1)
    _share_tactics([_cache(work, gpu) for gpu in gpus])
    lanes = [
        Lane(gpu, cores, work, Claims(claims, f"gpu{gpu}", groups), claims, end, command, numbers)
        for gpu, cores in zip(gpus, _shares(len(gpus)), strict=True)
    ]
    print(f"{sum(map(len, groups))} rows in {len(groups)} groups, {len(done)} were done before", flush=True)
    joined = time.monotonic()
    try:
        while time.monotonic() < end:
            going = [lane.goes_on() for lane in lanes]
            if not any(going):
                break
            time.sleep(_LOOK_S)
            if time.monotonic() - joined > _JOIN_S:
                _write_joined(work, record)
                joined = time.monotonic()
    finally:
        for lane in lanes:
            lane.ask_to_end()
        latest = time.monotonic() + _END_S
        for lane in lanes:
            lane.end(latest)
        _write_joined(work, record)


class Lane:
    """One GPU, and the process that runs rows there; where that ends early, another one goes on behind the row it was at.

    Args:
        gpu: Its number.
        cores: Those of its processes.
        work: The folder of the run.
        claims: What it may run.
        folder: Of the claims.
        end: When it ends, on the monotonic clock.
        command: Runs rows.
        numbers: Of the records, of all lanes.
    """

    def __init__(
        self,
        gpu: str,
        cores: set[int],
        work: Path,
        claims: Claims,
        folder: Path,
        end: float,
        command: Sequence[str],
        numbers: Iterator[int],
    ) -> None:
        self._gpu, self._cores, self._work, self._claims, self._folder = gpu, cores, work, claims, folder
        self._end, self._command, self._numbers, self._starts = end, command, numbers, 0
        self._process: subprocess.Popen[bytes] | None = None

    def goes_on(self) -> bool:
        """Look whether the process runs, and start one where there is something to do."""
        if self._process is not None:
            if self._process.poll() is None:
                return True
            print(f"gpu {self._gpu}: a process ended with code {self._process.returncode}", flush=True)
            self._process = None
        left = self._end - time.monotonic() - _LEAST_S
        if self._starts == _STARTS or left <= 0 or not self._claims.left():
            return False
        self._starts += 1
        self._process = self._start(left)
        return True

    def ask_to_end(self) -> None:
        """Send what ends a run in order."""
        self._signal(signal.SIGTERM)

    def end(self, latest: float) -> None:
        """Wait for that, until a time on the monotonic clock."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, latest - time.monotonic()))
            self._signal(signal.SIGKILL)  # with compilers that it started
            self._process.wait()

    def _start(self, seconds: float) -> subprocess.Popen[bytes]:
        log, caches = self._work / f"gpu{self._gpu}.log", _cache(self._work, self._gpu)
        kernels = caches / "kernels"
        if not os.path.lexists(kernels):  # compiled ones do no harm to each other
            (self._work / "kernels").mkdir(exist_ok=True)
            kernels.symlink_to(self._work / "kernels")
        record = self._work / f"record-{next(self._numbers):03}-gpu{self._gpu}.json"
        environment = {
            "TORCHINDUCTOR_CACHE_DIR": str(self._work / "inductor"),
            **os.environ,
            "CUDA_VISIBLE_DEVICES": self._gpu,
            "XDG_CACHE_HOME": str(caches.parent),
            "PYTHONUNBUFFERED": "1",
            "BENCHMARK_CLAIMS": str(self._folder),
            "BENCHMARK_OWNER": f"gpu{self._gpu}",
        }
        options = ["--rows", str(self._work / "rows.txt"), "--json", str(record), "--seconds", f"{seconds:.0f}"]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores)  # the process inherits it
        try:
            with log.open("ab") as out:
                return subprocess.Popen(
                    [*self._command, *options], cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True
                )  # fmt: skip
        finally:
            os.sched_setaffinity(0, before)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _cache(work: Path, gpu: str) -> Path:
    """This package's cache of a lane: two processes that write one table of tactics can lose each other's entries."""
    folder = work / f"cache-gpu{gpu}" / "pytrtplugins"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _shares(count: int) -> list[set[int]]:
    """The cores that this process may use, in even parts, so that no lane's compilers hold up another's launches."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // count)
    return [set(cores[number * each % len(cores) :][:each]) for number in range(count)]


def _share_tactics(caches: Sequence[Path]) -> None:
    """Give every lane the kernels that any lane has chosen before."""
    for name in sorted({path.name for cache in caches for path in cache.glob("tactics/*.json")}):
        files = [cache / "tactics" / name for cache in caches]
        texts = [file.read_text() for file in files if file.exists()]
        choices = {key: choice for text in texts for key, choice in decode(text).items()}
        for file in files:
            file.parent.mkdir(exist_ok=True)
            write_atomic(file, encode(choices, json.loads(texts[0])["device"]).encode())


def _records(work: Path) -> list[dict[str, Any]]:
    """The records that have rows, in the order in which their processes began."""
    found = [json.loads(path.read_text()) for path in sorted(work.glob("record-*.json"))]
    return [record for record in found if record.get("rows")]


def _write_joined(work: Path, record: Path) -> None:
    if found := _records(work):
        write_json(record, join(found))
