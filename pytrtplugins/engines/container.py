"""Engine files: a zip archive with metadata and the model; never unpickled, never larger than it looks."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import sha256_hex, write_atomic
from ..errors import EngineFileError

__all__ = ["FORMAT", "read_engine_file", "write_engine_file"]

FORMAT = 1
_METADATA, _MODEL = "metadata.json", "model.onnx"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_engine_file(path: str | Path, metadata: Mapping[str, Any], model: bytes) -> None:
    """Write an engine file, whole or not at all. The same engine gives the same bytes.

    Args:
        path: Where to write.
        metadata: JSON values; the format version and the model's digest are added.
        model: The serialized ONNX model.
    """
    whole = {"format": FORMAT, **metadata, "model_sha256": sha256_hex(model)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in ((_METADATA, json.dumps(whole, indent=2, sort_keys=True).encode()), (_MODEL, model)):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    write_atomic(path, buffer.getvalue())


def read_engine_file(path: str | Path) -> tuple[dict[str, Any], bytes]:
    """Read and check an engine file.

    Returns:
        The metadata, and the serialized ONNX model.

    Raises:
        EngineFileError: it is damaged, no engine file, or of another format version. ``.path`` says which.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    length = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if [entry.filename for entry in entries] != [_METADATA, _MODEL]:
                raise _error(
                    path, f"expected the entries {_METADATA} and {_MODEL}, found {[e.filename for e in entries][:5]}"
                )
            if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size > length for entry in entries):
                raise _error(path, "an entry is compressed or claims to be larger than the file")
            metadata, model = (archive.read(entry) for entry in entries)
        facts = json.loads(metadata)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        if isinstance(error, EngineFileError):
            raise
        raise _error(path, str(error) or type(error).__name__) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else facts
        raise _error(path, f"format version {found!r}, expected {FORMAT}")
    if facts.get("model_sha256") != sha256_hex(model):
        raise _error(path, "the model's digest is not the one in the metadata: the file is damaged")
    return facts, model


def _error(path: Path, problem: str) -> EngineFileError:
    return EngineFileError(
        f"{path}: not a usable engine file: {problem}.\nDo: pytrt build MODEL.onnx -o {path}   (engine files are made anew, never mended)",
        path=path,
    )
