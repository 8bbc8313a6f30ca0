"""What `pytrt doctor` finds."""

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import pytrtplugins
from pytrtplugins import doctor, engines
from pytrtplugins.doctor import PURPOSES, EngineReport, examine, extras, try_engine, try_engine_alone
from pytrtplugins.engines.base.types import Availability
from pytrtplugins.engines.reference.engine import ReferenceContext
from tests.clock import Clock

ENGINE = EngineReport("reference", "", "NumPy")


def test_an_engine_that_was_not_run_has_no_failure_and_no_times():
    assert EngineReport("reference", "", "NumPy", failure="", build_s=0, run_us=0, builds=False) == ENGINE


def requires(monkeypatch, *lines):
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: list(lines))


def test_each_extra_of_the_package_has_a_purpose():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert set(re.findall(r"^([\w-]+) = ", section, re.MULTILINE)) - {"all", "dev", "docs", "mutation"} == set(PURPOSES)


def test_extras_tell_versions_of_what_is_here_and_the_command_for_what_is_not(monkeypatch):
    requires(
        monkeypatch,
        "numpy>=1.26",
        'numpy>=1.26; extra == "cpu"',
        'no-such-package>=3; python_version >= "3.10" and extra == "cpu"',
        'only-for-older>=1; python_version < "3.10" and extra == "cpu"',
        "pytrtplugins[cpu]; extra == 'all'",
        "pytrtplugins[cpu]; extra == 'vision'",
        "numpy; extra == 'vision'",
        *(f"numpy; extra == '{name}'" for name in ("all", "dev", "docs", "mutation")),
    )
    cpu, vision = extras()
    assert (cpu.name, cpu.installed, cpu.missing) == ("cpu", (("numpy", np.__version__),), ("no-such-package",))
    assert cpu.command == 'pip install "pytrtplugins[cpu]"'
    assert (vision.name, vision.missing, vision.command) == ("vision", (), "")


def test_a_package_that_pip_does_not_know_has_no_extras(monkeypatch):
    def unknown(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", unknown)
    assert extras() == ()


def test_an_engine_that_is_right_says_how_long_it_took():
    failure, build_s, run_us = try_engine("reference")
    assert failure == ""
    assert build_s > 0
    assert run_us > 0


@pytest.mark.parametrize(
    ("factor", "failure"), [(1.0, ""), (1.0009, ""), (1.01, "a convolution is 1.0e-02 of its norm off")]
)
def test_times_of_an_engine_are_seconds_of_the_build_and_the_median_of_runs_in_microseconds(
    monkeypatch, factor, failure
):
    """A build of 1/4 s, a first run that counts nowhere, and runs of 1/64, 2/64, ... 20/64 s."""
    clock, runs = Clock(), iter([64, *range(1, 21)])
    monkeypatch.setattr(doctor, "time", clock)

    class Engine:
        def availability(self):
            return SimpleNamespace(available=True)

        @contextmanager
        def create_context(self):
            yield self

        def run(self, arrays):
            clock.now += next(runs) / 64
            weights = onnx.numpy_helper.to_array(self.model.graph.initializer[0])
            y = np.einsum("kc,nchw->nkhw", weights[:, :, 0, 0], arrays["x"])
            return {"y": factor * np.maximum(y, 0)}

    def build(model, *, engine, progress):
        clock.now += 1 / 4
        made = Engine()
        made.model = model
        return made

    monkeypatch.setattr(pytrtplugins, "build", build)
    assert doctor.try_engine("any") == (failure, 0.25, pytest.approx(1e6 * 10.5 / 64))


def test_an_engine_that_is_wrong_or_refuses_fails(monkeypatch):
    assert "nonsense" in try_engine("nonsense")[0]
    run = ReferenceContext.run
    monkeypatch.setattr(
        ReferenceContext, "run", lambda self, inputs: {name: 1.01 * value for name, value in run(self, inputs).items()}
    )
    assert try_engine("reference")[0] == "a convolution is 1.0e-02 of its norm off"


def ends(monkeypatch, code, out="", error=""):
    def run(command, check, **_):
        done = subprocess.CompletedProcess(command, code, out, error)
        if check:
            done.check_returncode()
        return done

    monkeypatch.setattr(subprocess, "run", run)


def test_what_a_process_of_an_engine_says_last_counts(monkeypatch):
    ends(monkeypatch, 0, f"a library's greeting\n{json.dumps(['', 0.5, 20.0])}\n")
    found = try_engine_alone(ENGINE)
    assert (found.failure, found.build_s, found.run_us) == ("", 0.5, 20.0)


def test_an_engine_whose_process_crashes_or_hangs_fails(monkeypatch):
    ends(monkeypatch, -11, error="some words\nSegmentation fault\n")
    assert try_engine_alone(ENGINE).failure == "its process ended with -11: Segmentation fault"
    ends(monkeypatch, 3, error="first\nsecond\nthird\n \n")
    assert try_engine_alone(ENGINE) == replace(ENGINE, failure="its process ended with 3: third")
    ends(monkeypatch, 3)
    assert try_engine_alone(ENGINE).failure == "its process ended with 3"

    def hangs(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert try_engine_alone(ENGINE).failure == "it did not end within 120 s"


@pytest.mark.parametrize("run", [True, False])
def test_only_engines_that_are_available_or_build_here_are_run(monkeypatch, run):
    tried = []
    found = [
        Availability("cuda", "no driver", ""),
        Availability("tensorrt", "no GPU", "11.0", builds=True),
        Availability("reference", "", "NumPy", builds=True),
        Availability("null", "", ""),
    ]
    monkeypatch.setattr(engines, "availability", lambda: found)
    monkeypatch.setattr(doctor, "try_engine_alone", lambda engine: tried.append(engine.name) or engine)
    report = examine(run)
    assert tried == (["tensorrt", "reference"] if run else [])
    assert [(engine.name, engine.reason, engine.details, engine.builds) for engine in report.engines] == [
        ("cuda", "no driver", "", False),
        ("tensorrt", "no GPU", "11.0", True),
        ("reference", "", "NumPy", False),
        ("null", "", "", False),
    ]
    assert len(report.extras) == len(extras())
    assert report.healthy
    assert {"pytrtplugins", "Python", "processor", "GPU", "native part"} <= report.machine.keys()


@pytest.mark.parametrize("sign", ["<", "<=", "==", ">=", ">"])
@pytest.mark.parametrize("minor", [-1, 0, 1])
def test_packages_for_other_pythons_are_no_part_of_an_extra(monkeypatch, sign, minor):
    major, own = sys.version_info[:2]
    requires(monkeypatch, f"numpy; python_version {sign} '{major}.{own + minor}' and extra == 'cpu'")
    assert bool(extras()) == eval(f"{own} {sign} {own + minor}")


def test_an_engine_that_only_builds_here_builds(monkeypatch):
    engine = SimpleNamespace(availability=lambda: SimpleNamespace(available=False))
    clock = Clock()
    monkeypatch.setattr(doctor, "time", clock)

    def build(model, **_):
        clock.now += 2
        return engine

    monkeypatch.setattr(pytrtplugins, "build", build)
    assert doctor.try_engine("any") == ("", 2, 0)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], "none: NVIDIA's driver is not installed"),
        (["nvidia-smi"], "H200, 580.1, 143771 MiB; H100, 580.1, 81559 MiB"),
    ],
)
def test_the_machine_is_told_with_its_compilers_and_gpus(monkeypatch, found, text):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in found else None)
    ends(monkeypatch, 9, "H200, 580.1, 143771 MiB\nH100, 580.1, 81559 MiB\n")
    assert doctor.machine()["GPU"] == text
    assert doctor.machine()["C++ compiler"] == "none: apt-get install g++"
    for names, first in ((["g++", "clang++"], "g++"), (["clang++", "c++"], "c++"), (["clang++"], "clang++")):
        monkeypatch.setattr(shutil, "which", lambda name, names=names: name if name in names else None)
        assert doctor.machine()["C++ compiler"] == first


@pytest.mark.parametrize(
    ("nvrtc", "nvcc", "text"),
    [
        (None, None, 'none: pip install "pytrtplugins[nvrtc]"'),
        ("13.0", None, "NVRTC 13.0"),
        (None, "nvcc 12.9", "nvcc 12.9"),
        ("13.0", "nvcc 12.9", "NVRTC 13.0, nvcc 12.9"),
    ],
)
def test_both_compilers_of_kernels_are_told(monkeypatch, nvrtc, nvcc, text):
    monkeypatch.setattr(doctor, "find_nvrtc", lambda: ("path", nvrtc))
    monkeypatch.setattr(doctor, "find_nvcc", lambda: ("path", nvcc))
    assert doctor.machine()["CUDA compiler"] == text


def test_a_failing_nvidia_smi_says_why(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    ends(monkeypatch, 9, error=" no devices\n")
    assert doctor._gpus() == "nvidia-smi: no devices"

    def refuse(*_, **__):
        raise OSError("not permitted")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert doctor._gpus() == "nvidia-smi: not permitted"
