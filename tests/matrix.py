"""The tests on other machines than this one, as far as it can pretend: ``python -m tests.matrix isa|surroundings [ROW …]``.

``isa`` runs the tests of numbers under each instruction set that the processor has: oneDNN (OpenVINO, PyTorch), OpenBLAS,
NumPy, PyTorch and OpenCV are kept from newer ones; tests/engines/host/test_instructions.py looks whether they are. onnxruntime has
no such switch: it always takes the newest.

``surroundings`` runs those tests that could notice: one core, a language without UTF-8, a time zone, no home, a path like "ä b".
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMBERS = ("calibration", "engines", "layers", "models", "passes", "precision", "utils/test_cpu_features.py", "vision")
NOT_HERE = (
    *("engines/cuda", "engines/tensorrt"),  # engines that compute on a GPU; what stands for it here takes long
    *(
        "engines/base/test_closing.py",
        "engines/base/test_engine_file.py",
        "engines/base/test_copies.py",
        "engines/base/test_failures.py",
    ),
    *(
        "engines/openvino/test_plugin_errors.py",
        "engines/openvino/test_signal_stack.py",
        "engines/base/test_threads.py",
    ),
    *("models/test_curves.py", "models/test_download.py"),
    *("precision/test_commands.py", "precision/test_docs.py", "precision/test_page.py", "precision/test_report.py"),
)
FILES = (
    "calibration/test_table.py",
    "cuda/test_docs.py",
    "cuda/test_kernel.py",
    "darknet2caffe/test_cfg.py",
    "darknet2caffe/test_cli.py",
    "export/test_exported.py",
    "export/test_triton.py",
    "precision/test_commands.py",
    "precision/test_report.py",
    "cli/test_cli.py",
    "test_docs_darknet.py",
)
THREADS = (
    "cuda/test_kernel.py",
    "engines/test_contract.py",
    "engines/test_life_cycle.py",
    "engines/base/test_stream.py",
    "models/test_stream.py",
    "cli/test_cli.py",
)
DATES = ("benchmarks", "calibration", "precision/test_report.py", "samples/test_yolov2.py", "cli/test_cli.py")
CACHES = (
    "cuda/test_docs.py",
    "cuda/test_kernel.py",
    "engines/cuda/conv/test_timer.py",
    "models/test_download.py",
    "samples/test_yolov2.py",
    "cli/test_cli.py",
    "test_readme.py",
)
PATHS = (
    "export/test_custom_layer_docs.py",
    "native",
    "samples/test_yolov2.py",
    "test_import_order.py",
    "test_readme.py",
)


@dataclass(frozen=True)
class Row:
    """A machine.

    Attributes:
        name: Of the row.
        tests: Folders and files below tests/.
        without: Folders among them that are left out.
        environment: Variables that are set.
        needs: A feature of the processor, among those of ``cpu_features``; empty for none.
        one_core: Whether one alone may be used.
        moved: Whether the checkout is copied to a path with a space and a letter beyond ASCII.
    """

    name: str
    tests: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    needs: str = ""
    one_core: bool = False
    moved: bool = False


def isa_rows() -> list[Row]:
    """One for each generation of instructions of x86."""
    newer = ("X86_V4", "AVX512_ICL", "AVX512_SPR")  # NumPy's names, from AVX512 on
    opencv = "AVX512F,AVX512_COMMON,AVX512_SKX,AVX512_CLX,AVX512_CNL,AVX512_ICL"

    def row(name: str, needs: str, onednn: str, openblas: str, numpy: Sequence[str], **others: str) -> Row:
        limits = {"ONEDNN_MAX_CPU_ISA": onednn, "OPENBLAS_CORETYPE": openblas, **others}
        if excluded := _dispatched(numpy):
            limits["NPY_DISABLE_CPU_FEATURES"] = " ".join(excluded)
        return Row(name, NUMBERS, limits, NOT_HERE, needs)

    return [
        row("AVX2", "avx2", "AVX2", "Haswell", newer, ATEN_CPU_CAPABILITY="avx2", OPENCV_CPU_DISABLE=opencv),
        row("AVX512", "avx512", "AVX512_CORE", "SkylakeX", newer[1:]),
        row("VNNI", "vnni", "AVX512_CORE_VNNI", "SkylakeX", newer[2:]),
        row("AMX", "amx-int8", "AVX512_CORE_AMX", "SapphireRapids", ()),
    ]


def surroundings_rows() -> list[Row]:
    """One for each thing that differs between machines and is not the processor."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return [
        Row("one core", THREADS, one_core=True),
        Row("language without UTF-8", FILES, ascii_only),
        *(Row(f"language {name}", FILES, {"LC_ALL": name}) for name in _languages()),
        Row("time zone", DATES, {"TZ": "Asia/Kathmandu"}),
        Row("no home", CACHES, {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": ""}),
        Row("path", (*FILES, *PATHS), moved=True),
    ]


def _dispatched(names: Sequence[str]) -> list[str]:
    """Those that this NumPy can use on this processor: it complains about others."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in names if name in __cpu_dispatch__ and __cpu_features__[name]]


def _languages() -> list[str]:
    """Those with a comma in numbers, or another capital of i, that are installed."""
    if shutil.which("locale") is None:
        return []
    installed = subprocess.run(["locale", "-a"], capture_output=True, encoding="utf-8", check=False).stdout.split()
    return [name for name in installed if name.lower().startswith(("tr_tr", "de_de"))][:2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows; 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description="Run tests as on other machines.")
    parser.add_argument("kind", choices=["isa", "surroundings"])
    parser.add_argument("row", nargs="*", help="names of rows; all by default")
    parser.add_argument(
        "--below",
        action="store_true",
        help="leave out the processor's own instruction set, which any run of the tests has",
    )
    given = parser.parse_args(arguments)
    rows = isa_rows() if given.kind == "isa" else surroundings_rows()
    names = [row.name for row in rows]
    if unknown := sorted(set(given.row) - set(names)):
        parser.error(f"unknown: {', '.join(unknown)}. Known: {', '.join(names)}")
    told, own = [], _own(rows) if given.below else None
    for row in rows:
        if given.row and row.name not in given.row:
            continue
        if row is own:
            told.append(f"{row.name:24} left out: it is this processor's own")
            continue
        settings = " ".join(f"{key}={value!r}" for key, value in row.environment.items())
        print(f"\n=== {row.name} {settings}", flush=True)
        start = time.monotonic()
        result = _run(row)
        told.append(f"{row.name:24} {result}, {time.monotonic() - start:.0f} s")
    print("\n" + "\n".join(told))
    return int(any("FAILED" in line for line in told))


def _own(rows: Sequence[Row]) -> Row | None:
    """The newest generation that this processor has: its limits change nothing here."""
    from pytrtplugins.utils.cpu_features import cpu_features

    return next((row for row in reversed(rows) if row.needs and row.needs in cpu_features()), None)


def _run(row: Row) -> str:
    from pytrtplugins.utils.cpu_features import cpu_features

    if row.needs and row.needs not in cpu_features():
        return f"left out: this processor has no {row.needs}"
    with _checkout(row) as root:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
        command += ["-n", "auto", "--dist", "worksteal", *(f"tests/{name}" for name in row.tests)]
        command += [f"--ignore=tests/{name}" for name in row.without]
        environment = {**os.environ, "PYTHONPATH": str(root), **row.environment}
        before = _take_one_core if row.one_core else None
        done = subprocess.run(command, cwd=root, env=environment, preexec_fn=before, check=False)
    return "FAILED" if done.returncode else "passed"


def _take_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@contextlib.contextmanager
def _checkout(row: Row) -> Iterator[Path]:
    if not row.moved:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "ä b" / "pytrtplugins"
        left_out = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, root, ignore=left_out)
        yield root


if __name__ == "__main__":
    sys.exit(main())
