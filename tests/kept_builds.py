"""What compilers make for tests, kept where compiled kernels are: made anew where a file, an option or a compiler differs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from pytrtplugins.cuda.backends import host
from pytrtplugins.cuda.cache import cached_file
from pytrtplugins.cuda.compiler import find_nvcc


def build_once(target: Path, files: Iterable[Path], options: Iterable[str], build: Callable[[Path], object]) -> None:
    """Write a library, or copy the one that was made of the same files before.

    Args:
        target: The library.
        files: All that it is made of, headers too, but those of the system.
        options: All else that it depends on.
        build: Writes it at the path that it gets.
    """
    contents = [f"{path.name} {sha256(path.read_bytes()).hexdigest()}" for path in files]
    shutil.copy(cached_file([*contents, *options, host.compiler()[1], find_nvcc()[1]], ".so", build), target)
