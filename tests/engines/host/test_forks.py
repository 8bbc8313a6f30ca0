"""The libraries below the engines for CPUs, in a child that was forked: their threads and locks stay with the parent."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONGEST = 100

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Every thread that begins to wait for a condition keeps its lock for half a second, as it does for microseconds anyway.
SLOW_TO_WAIT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    int (*next)(pthread_cond_t *, pthread_mutex_t *) = dlsym(RTLD_NEXT, "pthread_cond_wait");
    usleep(500000);
    return next(condition, mutex);
}
"""

BEGIN = """
import os
import numpy as np
import pytest
import pytrtplugins as ptp
from tests.engines.base.forking import in_a_child
from tests.engines.networks import Calling, conv_net, image
from pytrtplugins.errors import EngineError, UnavailableError

DATA = {"data": image()}

def built(engine):
    return ptp.build(conv_net(Calling()), engine=engine, threads=2)
"""


def ends_well(script, **variables):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    command = [sys.executable, "-c", BEGIN + script + "\nos._exit(0)"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 0, done.stderr


ONNXRUNTIME = """
context = built("onnxruntime").create_context()
plain = context.run_async(DATA).result()["y"]

def runs():
    for _ in range(2):
        np.testing.assert_array_equal(context.run(DATA)["y"], plain)

in_a_child(runs)
np.testing.assert_array_equal(context.run(DATA)["y"], plain)
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
def test_a_child_needs_no_lock_that_onnxruntimes_threads_hold_in_the_parent(tmp_path):
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_TO_WAIT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    ends_well(ONNXRUNTIME, LD_PRELOAD=str(library))


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_onnxruntime_has_threads_in_a_child_too():
    ends_well("""
context = built("onnxruntime").create_context()

def runs():
    context.run(DATA)
    assert len(os.listdir("/proc/self/task")) == 1 + 2, "the caller's, and one of each of two sessions of two threads"

in_a_child(runs)
""")


def test_a_child_of_a_process_that_used_openvino_cannot_use_it_and_says_so():
    ends_well("""
parent = built("cpu")

def refused():
    with pytest.raises(UnavailableError, match="(?s)forked from one that used OpenVINO.*Do: start the process"):
        built("cpu")
    with pytest.raises(EngineError, match="OpenVINO cannot be used across a fork"):
        parent.create_context()
    with built("onnxruntime").create_context() as context:
        context.run(DATA)

in_a_child(refused)
with built("cpu").create_context() as context:
    context.run(DATA)
""")


def test_a_child_of_a_process_that_did_not_use_openvino_can_use_it():
    ends_well("""
def runs():
    with built("cpu").create_context() as context:
        context.run_async(DATA).result()

in_a_child(runs)
in_a_child(lambda: in_a_child(runs))
""")
