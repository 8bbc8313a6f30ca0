"""Seconds of a build in a fresh process: with nothing cached, all kernels chosen by timing; and again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from .clock import Clock
from .running import BUILDS
from .subject import Subject

PROGRAM = """
import sys, time
import pytrtplugins as ptp
begin = time.perf_counter()
ptp.build(sys.argv[1], engine="cuda", precision=sys.argv[2], progress=False)
print(time.perf_counter() - begin)
"""


@pytest.mark.stage(BUILDS)
@pytest.mark.parametrize("precision", ["fp16"])
def test_build(precision: str, subject: Subject, clock: Clock, tmp_path: Path, benchmark) -> None:
    path = tmp_path / "yolov2-voc.onnx"
    onnx.save(subject.model, path)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def build() -> float:
        command = [sys.executable, "-c", PROGRAM, str(path), precision]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        return float(done.stdout.split()[-1])

    search, again = build(), benchmark.pedantic(build, rounds=1)
    benchmark.extra_info.update(kind="build", precision=precision.upper(), search_s=search, cached_s=again)
