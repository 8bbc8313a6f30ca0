"""Signals in processes that have used engine 'cpu': OpenVINO frees the memory that their handlers ran on."""

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import faulthandler, signal, sys
import numpy as np
import pytrtplugins as ptp
from tests.engines.networks import Affine, conv_net
from tests.engines.openvino.test_signal_stack import dropped_in_another_thread

if "faulthandler" in sys.argv:
    faulthandler.enable()
model = conv_net({plugin})
held = [ptp.build(model, engine="cpu")]

dropped_in_another_thread(held)
signal.signal(signal.SIGINT, lambda number, frame: print("handled", flush=True))
signal.raise_signal(signal.SIGINT)
if "faulthandler" in sys.argv:
    signal.raise_signal(signal.SIGABRT)
"""


def dropped_in_another_thread(held):
    def drop():
        held.clear()
        gc.collect()

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("handler", "plugin"),
    [
        ("python", ""),
        ("faulthandler", "Affine(3.0)"),
        pytest.param("python", "Affine(3.0)", marks=pytest.mark.slow),
        pytest.param("faulthandler", "", marks=pytest.mark.slow),
    ],
)
def test_a_signal_is_handled_after_an_engine_is_dropped_in_another_thread(plugin, handler):
    pytest.importorskip("openvino")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(plugin=plugin), handler],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout == "handled\n", done.stderr
    if handler == "faulthandler":
        assert "Fatal Python error: Aborted" in done.stderr
        assert 'File "<string>"' in done.stderr
    else:
        assert done.returncode == 0, done.stderr


CHECK = """
import faulthandler
import openvino
import pytrtplugins as ptp
from tests.broken_kernels import Hangs, Twice
from tests.engines.networks import conv_net
from tests.engines.openvino.test_signal_stack import dropped_in_another_thread

faulthandler.enable()
core = openvino.Core()
network = core.read_model(conv_net().SerializeToString(), b"")
held = [core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})]
del core

dropped_in_another_thread(held)
print(ptp.check_plugin(Hangs, engines=[], time_limit=Hangs.limit_s).failed[0].detail)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="checks run in a process of their own on Linux only")
def test_a_check_finds_a_hang_where_openvino_has_freed_its_stack():
    pytest.importorskip("openvino")
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert "hang: still running after 0.2 s" in done.stdout, done.stdout + done.stderr
