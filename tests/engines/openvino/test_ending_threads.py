"""Threads that have run a network and end while its engine is dropped: OpenVINO frees nothing that they still write to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, os, threading, time
import pytrtplugins as ptp
from tests.engines.networks import conv_net, image

def run(engine):
    with engine.create_context() as context:
        context.run({"data": image()})

def work():
    ctypes.CDLL(None).end_slowly()
    run(engine)
    ran.wait()

engine, ran = ptp.build(conv_net(), engine="cpu", threads=2), threading.Barrier(3)

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
ran.wait()
time.sleep(0.2)
del engine
time.sleep(1)
counts = set()
for _ in range(5):
    run(ptp.build(conv_net(), engine="cpu", threads=2))
    counts.add(len(os.listdir("/proc/self/task")))
print(len(counts), "number of threads")
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="no LD_PRELOAD or no g++")
def test_an_engine_may_be_dropped_while_threads_that_ran_it_end_and_the_next_has_its_threads(tmp_path):
    pytest.importorskip("openvino")
    library = tmp_path / "slow_ends.so"
    source = Path(__file__).with_name("slow_ends.cpp")
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.stdout, done.returncode) == ("1 number of threads\n", 0), done.stderr[-500:]
