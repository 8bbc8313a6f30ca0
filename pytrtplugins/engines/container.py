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
_METADATA, _MODEL, _PAYLOAD = "metadata.json", "model.onnx", "engine.plan"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_engine_file(path: str | Path, metadata: Mapping[str, Any], model: bytes, payload: bytes = b"") -> None:
    """Write an engine file, whole or not at all. The same engine gives the same bytes.

    Args:
        path: Where to write.
        metadata: JSON values; the format version and the model's digest are added.
        model: The serialized ONNX model.
        payload: What the engine's library has made of it, for engines that save that; empty: no such entry.
    """
    entries = {_MODEL: model, **({_PAYLOAD: payload} if payload else {})}
    digests = {f"{Path(name).stem}_sha256": sha256_hex(data) for name, data in entries.items()}
    text = json.dumps({"format": FORMAT, **metadata, **digests}, indent=2, sort_keys=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {_METADATA: text.encode(), **entries}.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    write_atomic(path, buffer.getvalue())


def read_engine_file(path: str | Path) -> tuple[dict[str, Any], bytes, bytes]:
    """Read and check an engine file.

    Returns:
        The metadata, the serialized ONNX model, and the library's payload, empty where there is none.

    Raises:
        EngineFileError: it is damaged, no engine file, or of another format version. ``.path`` says which.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    length = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            if names not in ([_METADATA, _MODEL], [_METADATA, _MODEL, _PAYLOAD]):
                raise _error(path, f"expected the entries {_METADATA} and {_MODEL}, found {names[:5]}")
            if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size > length for entry in entries):
                raise _error(path, "an entry is compressed or claims to be larger than the file")
            metadata, *data = (archive.read(entry) for entry in entries)
        facts = json.loads(metadata)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        if isinstance(error, EngineFileError):
            raise
        raise _error(path, str(error) or type(error).__name__) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else facts
        raise _error(path, f"format version {found!r}, expected {FORMAT}")
    for name, content in zip(names[1:], data, strict=True):
        if facts.get(f"{Path(name).stem}_sha256") != sha256_hex(content):
            raise _error(path, f"the digest of {name} is not the one in the metadata: the file is damaged")
    return facts, data[0], data[1] if len(data) > 1 else b""


def _error(path: Path, problem: str) -> EngineFileError:
    return EngineFileError(
        f"{path}: not a usable engine file: {problem}.\nDo: pytrt build MODEL.onnx -o {path}   (engine files are made anew, never mended)",
        path=path,
    )
