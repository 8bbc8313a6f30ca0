"""Processes of this machine that are the ranks of one program, and what they find."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pytrtplugins.utils.atomic import write_atomic

from .measuring import ROOT

JOB = "job.json"
LOOK = 0.1  # seconds between two looks at the ranks
_ADDRESS = "127.0.0.1"
_ENDING = 5.0  # seconds that a rank has to end by itself
_SHOWN = 40  # lines of a rank's output


class Group:
    """Ranks that start together, and work on the tasks of a job one after the other.

    All of them end when one of them does, or when the group is closed. Rank 0 writes what it found of each task into a file of its own:
    what is there stays there, whatever ends the ranks.

    Args:
        program: Module that each rank runs, with the folder as its argument.
        job: What they are to do; they read it from the folder.
        world: How many there are; one alone is no group for PyTorch.
        folder: Where the job, the findings and the ranks' output lie.
        beside: How many groups compile at the same time.
    """

    def __init__(self, program: str, job: Mapping[str, Any], world: int, folder: Path, *, beside: int = 1) -> None:
        self._folder, line = folder, [sys.executable, "-m", program, str(folder)]
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / JOB, json.dumps(job).encode())
        self._logs = [folder / f"rank-{rank}.log" for rank in range(world)]
        self._ranks = list[subprocess.Popen[bytes]]()
        port = _free_port()
        for rank, log in enumerate(self._logs):
            surroundings = compilers(beside * world) | _surroundings(rank, world, port)
            with log.open("wb") as file:
                self._ranks.append(
                    subprocess.Popen(line, env=surroundings, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
                )

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def result(self, number: int, seconds: float) -> dict[str, Any]:
        """What the ranks found of a task.

        Raises:
            RuntimeError: A rank ended, or it takes too long; the message is one line. What the ranks printed last is printed.
        """
        end, file = time.monotonic() + seconds, finding(self._folder, number)
        while not file.exists():
            ended = [rank for rank, process in enumerate(self._ranks) if process.poll() is not None]
            if ended and not file.exists():
                self._show()
                raise RuntimeError(self._why(ended))
            if time.monotonic() > end:
                self._show(stacks=True)
                raise RuntimeError(f"not done within {seconds:g} s")
            time.sleep(LOOK)
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def wait(self, seconds: float) -> None:
        """Wait until all ranks have ended, or for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(process.poll() is None for process in self._ranks):
            time.sleep(LOOK)

    def close(self) -> None:
        """End all ranks."""
        end(self._ranks)

    def _show(self, *, stacks: bool = False) -> None:
        """Print the end of each rank's output; with stacks also where it is now, if its program says so at SIGUSR1."""
        if stacks:
            for process in self._ranks:
                process.send_signal(signal.SIGUSR1)
            time.sleep(1)
        for log in self._logs:
            lines = log.read_text(errors="replace").splitlines()[-_SHOWN:]
            print("\n".join([f"--- {log.name}:", *lines]), file=sys.stderr)

    def _why(self, ended: Sequence[int]) -> str:
        """The last error that one of the ended ranks printed; the others may have failed only because of that one."""
        for rank in sorted(ended, key=lambda rank: self._ranks[rank].returncode == 0):
            lines = self._logs[rank].read_text(errors="replace").splitlines()
            if errors := [line.strip() for line in lines if "Error" in line]:
                return errors[-1]
        return f"rank {ended[0]} ended with status {self._ranks[ended[0]].returncode}"


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, by force if they do not end soon."""
    for process in processes:
        process.terminate()
    late = time.monotonic() + _ENDING
    while time.monotonic() < late and any(process.poll() is None for process in processes):
        time.sleep(LOOK)
    for process in processes:
        process.kill()
        process.wait()


def compilers(processes: int) -> dict[str, str]:
    """The surroundings of one of so many processes that compile at the same time: each has its share of the cores."""
    threads = max(2, (os.cpu_count() or 1) // processes)
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(min(32, threads))} | dict(os.environ)


def forget_choices() -> None:
    """Let the compiler choose among the forms of its kernels again, which it did while other processes used the device, too.

    What it found by a long search stays.
    """
    from torch._inductor.codecache import cache_dir

    for file in Path(cache_dir()).rglob("*.best_config"):
        with suppress(OSError, ValueError):
            if not json.loads(file.read_text()).get("found_by_coordesc"):
                file.unlink()


def finding(folder: Path, number: int) -> Path:
    """The file of what was found of a task."""
    return folder / f"task-{number}.json"


def _surroundings(rank: int, world: int, port: int) -> dict[str, str]:
    """The variables that torchrun would set."""
    found = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    if world == 1:
        return found
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    meeting = {"MASTER_ADDR": _ADDRESS, "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": f"group-{port}"}
    return found | {name: str(value) for name, value in (numbers | meeting).items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port
