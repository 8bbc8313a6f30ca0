"""Check files of ``torch.save`` before ``torch.load`` reads them: no code is executed, and memory is bounded by the file."""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any

import torch

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.files import open_regular

__all__ = ["check_saved", "load_saved"]

_MAX_PICKLE = 16 << 20  # bytes that describe the tensors of a file
_KINDS = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_GLOBALS = {"torch._utils _rebuild_tensor_v2", "collections OrderedDict", *(f"torch {kind}Storage" for kind in _KINDS)}
"""What a file of plain tensors names. torch.load takes more, such as ``bytearray``, which a file could ask for in any size."""


def load_saved(path: Path) -> Any:
    """Read a file of ``torch.save`` with plain tensors, numbers, texts, lists and dicts; tensors go to the CPU.

    Raises:
        FormatError: it is cut or damaged, or has anything else.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        check_saved(file, path)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # each reader of its parts has its own
            raise _damaged_error(path, f"{error}".split("\n")[0]) from error


def check_saved(file: IO[bytes], path: str | Path) -> None:
    """Check a file of ``torch.save``, and rewind it.

    Args:
        file: Its bytes, all of them.
        path: Where they came from, for messages.

    Raises:
        FormatError: its parts are compressed or overlap, so that they are larger than the file; or it makes other objects than
            tensors; or it is no such file.
    """
    length = file.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
            if any(entry.compress_type or entry.file_size != entry.compress_size for entry in entries):
                raise _damaged_error(path, "its parts are compressed")
            if sum(entry.file_size for entry in entries) > length:
                raise _damaged_error(path, "its parts are larger than the file")
            if len(pickles) != 1 or pickles[0].file_size > _MAX_PICKLE:
                raise _damaged_error(path, "it has no description of its tensors, or a too long one")
            _check_pickle(archive.read(pickles[0]), path)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError) as error:
        if isinstance(error, FormatError):
            raise
        raise _damaged_error(path, f"{error}") from error
    file.seek(0)


def _check_pickle(data: bytes, path: str | Path) -> None:
    """Require that a pickle names only what tensors consist of; it is parsed, and not executed."""
    for operation, argument, _ in pickletools.genops(data):
        if operation.name == "GLOBAL":
            if argument not in _GLOBALS:
                raise _damaged_error(path, f"it names {argument!r}, which is no tensor")
        elif operation.name in ("STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "PERSID"):
            raise _damaged_error(path, f"it has the operation {operation.name} of pickle, which no tensor needs")


def _damaged_error(path: str | Path, reason: str) -> FormatError:
    return FormatError(f"{path}: not a file of tensors, or damaged: {reason.strip().rstrip('.')}.", path=Path(path))
