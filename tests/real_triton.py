"""A real Triton server: the one in NVIDIA's wheel of PyTriton, which needs no GPU.

The wheel has Triton's core and its Python backend. It needs NumPy 1, and so an environment of its own: `make test-triton`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

FOLDER = os.environ.get("TRITON_VENV")
needed = pytest.mark.skipif(
    not FOLDER, reason="TRITON_VENV names no environment with nvidia-pytriton. Do: make test-triton"
)


def site_packages() -> Path:
    """Where the environment's packages are."""
    (found,) = Path(str(FOLDER)).resolve().glob("lib/python*/site-packages")
    return found


def package() -> Path:
    """The server in the wheel."""
    return site_packages() / "pytriton" / "tritonserver"


def copy_backends(folder: Path) -> Path:
    """The wheel's Python backend, for the environment's interpreter."""
    shutil.copytree(package() / "backends" / "python", folder / "backends" / "python")
    version = site_packages().parent.name.removeprefix("python")
    source = package() / "python_backend_stubs" / version / "triton_python_backend_stub"
    stub = shutil.copy(source, folder / "backends" / "python")
    Path(stub).chmod(0o755)
    return folder / "backends"


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running_triton(options: Sequence[str], backends: Path, log: Path) -> Iterator[int]:
    """Serve; gives the port of HTTP once all models are loaded."""
    port = free_port()
    command = [
        str(package() / "bin" / "tritonserver"),
        *options,
        f"--http-port={port}",
        "--http-address=127.0.0.1",
        "--allow-metrics=false",
        f"--backend-directory={backends}",
    ]
    libraries = {"LD_LIBRARY_PATH": str(site_packages() / "nvidia_pytriton.libs")}
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | libraries) as process,
    ):
        try:
            _wait(port, process, log)
            yield port
        finally:
            process.terminate()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    pytest.fail(f"the server does not start:\n{log.read_text()[-4000:]}")
