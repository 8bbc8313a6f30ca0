"""Plugins that end, hang or fill the process of the check, wherever they do it: each is one failed check that says how."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.broken_kernels import NEEDED
from tests.small_process import in_small_process

pytestmark = NEEDED[:1]


class Twice(ptp.Plugin):
    """Right."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x


def raises(error):
    raise error


def wait_forever():
    while True:
        time.sleep(60)


def compute_forever():
    while True:
        pass


HANG_S = 0.5
DEATHS = {
    "exit code 0": (lambda: os._exit(0), "crash: the process ends itself, with exit code 0"),
    "exit code 3": (lambda: os._exit(3), "crash: the process ends itself, with exit code 3"),
    "SIGSEGV": (lambda: ctypes.string_at(0), "crash: the process ends with SIGSEGV"),
    "SIGKILL": (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash: the process ends with SIGKILL"),
    "SystemExit": (lambda: raises(SystemExit(0)), "crash: SystemExit(0) is raised ("),
    "KeyboardInterrupt": (lambda: raises(KeyboardInterrupt()), "crash: KeyboardInterrupt() is raised ("),
    "hang": (wait_forever, f"hang: still running after {HANG_S} s"),
    "busy hang": (compute_forever, f"hang: still running after {HANG_S} s"),
    "memory": (lambda: np.ones(1 << 31), "memory: compute takes all that it may take, 4 GiB"),
}
"""What a method does, and what the report says of it."""
IN = ("output_dims", "compute", "supports_format", "output_dtypes")


def dying(where, death):
    method = vars(Twice).get(where) or getattr(ptp.Plugin, where)

    def dies(self, *arguments):
        death()
        return method(self, *arguments)

    return ptp.plugin(namespace=f"deaths.{len(made)}")(type("Dying", (Twice,), {"__module__": __name__, where: dies}))


made: list[type] = []


def cases():
    """Each death in each method, by turns with shapes that are found and that are given; a death for want of memory with both."""
    for row, death in enumerate(DEATHS):
        for column, where in enumerate(IN):
            shapes = "found" if (row + column) % 2 else "given"
            if death == "memory":  # in another method MemoryError refuses the dims or the type, as any other error does
                yield from ((death, where, shapes) for shapes in ("found", "given") if where == "compute")
            elif death != "busy hang" or where == "compute":  # one busy loop is enough; the others wait
                yield death, where, shapes


@pytest.mark.parametrize(("death", "where", "shapes"), list(cases()))
@in_small_process
def test_a_death_is_a_failed_check_with_its_reason(death, where, shapes):
    given = [(2, 3)] if shapes == "given" else None
    dies, wanted = DEATHS[death]
    made.append(cls := dying(where, dies))
    limit = HANG_S if "hang" in death else 5.0
    report = ptp.check_plugin(cls, engines=[], shapes=given, time_limit=limit)
    assert len(report.failed) == 1, str(report)
    if death == "memory" and given:
        wanted = "MemoryError: Unable to allocate 16.0 GiB"
    assert wanted in report.failed[0].detail


def test_what_a_plugin_prints_is_none_of_the_reports_lines():
    text = """
import os, pytrtplugins as ptp
@ptp.plugin
class Loud(ptp.Plugin):
    def output_dims(self, x):
        return x
    def compute(self, x):
        print("from print"); os.write(1, b"from the descriptor")
        return x + x
assert ptp.check_plugin(Loud, engines=[]).ok
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "from the descriptor" in done.stderr


def test_what_a_plugin_writes_to_the_descriptor_is_not_in_the_json(tmp_path):
    """Engines run it in the process of the command."""
    (tmp_path / "loud.py").write_text(
        "import os, pytrtplugins as ptp\n@ptp.plugin\nclass Loud(ptp.Plugin):\n"
        "    def output_dims(self, x):\n        return x\n"
        "    def compute(self, x):\n        os.write(1, b'loud'); print('louder')\n        return x + x\n"
    )
    line = [sys.executable, "-m", "pytrtplugins", "check-plugin", "loud.py:Loud", "--json", "--junit", "loud.xml"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout)["result"]["plugin"] == "Loud()"
    assert "loud" in done.stderr
    assert (tmp_path / "loud.xml").read_text().startswith("<?xml")
