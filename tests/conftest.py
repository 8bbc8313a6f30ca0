"""How all tests run, and fixtures that several suites share.

Hypothesis draws the same examples in every run; with ``HYPOTHESIS_PROFILE=randomized`` it draws others, from a seed that the
report's head prints. docs/explanation/testing.md says more.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import logging
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.oracles.libdarknet import LibDarknet

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's threads do not take a core to wait
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:  # the processes share the cores; all this is set before NumPy and PyTorch are imported
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, str(max(1, _CORES // _WORKERS)))

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests.randomness import restart  # noqa: E402
from tests.watchdog import Watchdog  # noqa: E402
from tests.worker import send_what_is_shown  # noqa: E402

DATA = Path("/usr/share/darknet/data")
MAX_WORKERS = 8  # each takes about 1 GB
SLOW_SECONDS = 1800
GARBAGE = 10_000  # objects made until the garbage collector looks: after Python's 700 it took 7 % of the time
WATCHDOG = Watchdog()
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>

if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
    # malloc keeps the memory of arrays for those that follow: getting pages from the system took a third of the tests of networks
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest that glibc takes
    ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, 512 << 20)

if hasattr(os, "register_at_fork"):  # a fork must not take apart what has threads in its parent, such as grpc's servers
    os.register_at_fork(after_in_child=gc.freeze)
    # tests that may end their process run in forks of a server, which has imported what they need and has run nothing
    own = ["benchmarks.drawn_forms", "benchmarks.test_damaged_forms", "engines.host.test_elements"]
    own += ["engines.openvino.test_known_errors", "engines.test_node_tests"]
    libraries = ["onnx.reference", "onnxruntime", "openvino"]
    if all(importlib.util.find_spec(name.partition(".")[0]) for name in libraries):  # else the modules end the server
        multiprocessing.set_forkserver_preload([*libraries, *(f"tests.{name}" for name in own)])

settings.register_profile("deterministic", derandomize=True, database=None, deadline=None, max_examples=30)
# where CI is set, Hypothesis derandomizes by default
settings.register_profile(
    "randomized", derandomize=False, database=None, deadline=None, max_examples=200, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "deterministic")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.hasplugin("timeout"):  # the settings are known then, and do nothing
        for name in ("timeout", "timeout_method"):
            parser.addini(name, "of pytest-timeout, which is not installed")


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads the seed
def pytest_configure(config: pytest.Config) -> None:
    if _randomized(config) and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_report_header(config: pytest.Config) -> list[str]:
    lines = [_seed_of(config)] if _randomized(config) else []
    if not config.pluginmanager.hasplugin("timeout"):
        lines.append("pytest-timeout is not installed: a test that hangs is not ended")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _randomized(config):
        terminalreporter.write_line(_seed_of(config))


def _seed_of(config: pytest.Config) -> str:
    return f"the same examples again: HYPOTHESIS_PROFILE=randomized pytest --hypothesis-seed={config.getoption('hypothesis_seed')}"


def _randomized(config: pytest.Config) -> bool:
    profile = config.getoption("hypothesis_profile", None) or os.environ.get("HYPOTHESIS_PROFILE")
    return bool(profile) and not settings.get_profile(profile).derandomize


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For ``-n auto``: one more than the cores that this process may use, since some tests wait."""
    return min(_CORES + 1, MAX_WORKERS)


def pytest_sessionstart(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        send_what_is_shown(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes stays until the end: the garbage collector need not look through it again and again, nor at exit.

    pytest adds its handlers to every logger that does not propagate, six times for each test: PyTorch's 40 are made to propagate.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE)
        gc.enable()
        for name, logger in logging.root.manager.loggerDict.items():
            if isinstance(logger, logging.Logger) and name.partition(".")[0] == "torch":
                logger.propagate = True


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names bytes by their number where they are no short text: what gzip writes holds the time, and workers must agree on names."""
    if isinstance(val, bytes) and not (len(val) <= 40 and val.isascii() and val.decode().isprintable()):
        return f"{len(val)} bytes"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if settings.method != "thread":
        return None  # which pytest-timeout does
    WATCHDOG.watch(item, settings)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    restart()


@pytest.fixture(scope="session")
def libdarknet() -> LibDarknet:
    """The oracle for darknet networks; skips with the reason where it cannot be had."""
    from tests.oracles.libdarknet import DarknetUnavailableError, LibDarknet

    try:
        return LibDarknet()
    except DarknetUnavailableError as error:
        pytest.skip(f"libdarknet: {error}")


@pytest.fixture(scope="session")
def gpu() -> str:
    """The name of the engine for GPUs, where it can be used; skips with the reason elsewhere."""
    from pytrtplugins.engines.cuda import CudaEngine

    if reason := CudaEngine.availability().reason:
        pytest.skip(reason)
    return "cuda"


@pytest.fixture(autouse=True, scope="session")
def int8_wins() -> Iterator[None]:
    """Engines for CPUs, and engine ``cuda``, choose between INT8 and float by the clock: here nothing is timed, and INT8 is kept.

    Nor is the float form built then. tests/engines/host/test_int8_choice.py and tests/engines/cuda/test_int8_choice.py test the choice.
    """
    from pytrtplugins.engines.cuda import int8_choice
    from pytrtplugins.engines.host import host_engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_engine, "sample_inputs", lambda engine: None)
        patch.setattr(int8_choice, "compares_int8", lambda options: False)
        yield


@pytest.fixture
def compile_with(monkeypatch) -> Callable[[str], None]:
    """Takes ``"NVRTC"`` or ``"nvcc"`` for all CUDA kernels; skips where it is not installed.

    What the user's cache has of this source, these options and this compiler did compile: it is not compiled again.
    """
    from pytrtplugins.cuda import compiler

    def choose(name: str) -> None:
        if name == "NVRTC" and not compiler.find_nvrtc()[1]:
            pytest.skip("no NVRTC. Do: pip install 'pytrtplugins[nvrtc]'")
        if name == "nvcc":
            if not compiler.find_nvcc()[0]:
                pytest.skip("no nvcc. Do: install CUDA's toolkit")
            monkeypatch.setattr(compiler, "find_nvrtc", lambda: (None, ""))

    return choose


@pytest.fixture
def empty_cache(monkeypatch, tmp_path) -> None:
    """Every kernel is compiled anew."""
    from pytrtplugins.cuda import cache

    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)


@pytest.fixture
def short_measurements(monkeypatch) -> None:
    """A table times each engine for 10 ms, and does not measure memory, which takes a process for each row."""
    from pytrtplugins.mlops.tables import table
    from pytrtplugins.mlops.tables.memory import Memory

    bench = table.bench
    monkeypatch.setattr(table, "measure_memory", lambda *_: Memory(1.0, 0.0))
    monkeypatch.setattr(table, "bench", lambda *given, **more: bench(*given, **{**more, "seconds": 0.01, "rounds": 1}))


@pytest.fixture
def darknet_image() -> Callable[[str], Path]:
    """Finds an image of Debian's package darknet; skips where it is not installed."""

    def find(name: str) -> Path:
        if not (DATA / name).is_file():
            pytest.skip(f"{DATA / name} is missing (apt-get install darknet)")
        return DATA / name

    return find


@pytest.fixture
def pytrt(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder; gives exit code, standard output and standard error."""
    from pytrtplugins.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*words):
        code: str | int = 0
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture
def printed(pytrt):
    """Runs a command, which succeeds; gives its standard output."""

    def run(*words):
        code, out, err = pytrt(*words)
        assert code == 0, out + err
        return out

    return run


@pytest.fixture
def refused(pytrt):
    """Runs a command, which ends with 2 and prints nothing; gives its standard error."""

    def run(*words):
        code, out, err = pytrt(*words)
        assert (code, out) == (2, ""), err
        return err

    return run
