"""A program for groups of ranks: each task of its job says what a rank does.

``python -m tests.benchmarks.training.program FOLDER``
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from benchmarks.training.group import JOB, finding
from pytrtplugins.utils.atomic import write_atomic


def main(folder: Path) -> int:
    rank = int(os.environ.get("RANK", "0"))
    for number, task in enumerate(json.loads((folder / JOB).read_text())["tasks"]):
        while number and not finding(folder, number - 1).exists():  # ranks begin a task together
            time.sleep(0.01)
        if task == f"dies in {rank}":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == f"fails in {rank}":
            raise ValueError("no such thing")
        if task in ("waits", f"dies in {1 - rank}", f"fails in {1 - rank}"):
            threading.Event().wait()
        if rank == 0:
            found = {"task": task, "world": os.environ.get("WORLD_SIZE", ""), "pid": os.getpid()}
            write_atomic(finding(folder, number), json.dumps(found).encode())  # it is read as soon as it is there
    return 0


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    sys.exit(main(Path(sys.argv[1])))
