"""Engine files: a zip archive with metadata and the model; never unpickled, never larger than it looks."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from ...errors import EngineFileError, ModelError
from ...utils.atomic import write_atomic
from ...utils.files import open_regular, sha256_hex
from ...utils.optional import onnx, require
from ...utils.text_formats import parse_json, shorten
from ...validation import validated

__all__ = ["FORMAT", "EngineFile", "is_engine_file", "read_engine_file", "write_engine_file"]

FORMAT = 1
_METADATA, _MODEL, _PAYLOAD = "metadata.json", "model.onnx", "engine.plan"
_MAX_CHARACTERS = 200  # of what zipfile says, which may have a name of the file's
_MAX_METADATA = 16 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of the name and of what is behind it


def write_engine_file(path: str | Path, metadata: Mapping[str, Any], model: bytes, payload: bytes = b"") -> None:
    """Write an engine file, whole or not at all. The same engine gives the same bytes.

    Args:
        path: Path of the file to write.
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


@dataclass(frozen=True)
class EngineFile:
    """An engine file with checked metadata; model and payload are read and checked when they are used.

    Attributes:
        path: Path of the file.
        metadata: JSON values.
    """

    path: Path
    metadata: dict[str, Any]
    _names: tuple[str, ...]
    _identity: tuple[int, ...]

    def model(self) -> onnx.ModelProto:
        """The ONNX model.

        Raises:
            EngineFileError: it is damaged, or another file has taken its place since it was opened.
        """
        proto = require("onnx", extra="onnx", feature="loading an engine").ModelProto
        data = self._read(_MODEL)
        try:
            model = cast("onnx.ModelProto", proto.FromString(data))
        except Exception as error:  # protobuf's own
            raise _error(self.path, f"{_MODEL} is not an ONNX model ({error})") from error
        try:
            return validated(model)
        except ModelError as error:
            raise _error(self.path, f"{_MODEL}: {str(error).partition(chr(10))[0]}") from error

    def payload(self) -> bytes:
        """The library's compiled form of the model; empty if there is none.

        Raises:
            EngineFileError: it is damaged, or another file has taken its place since it was opened.
        """
        return self._read(_PAYLOAD) if _PAYLOAD in self._names else b""

    def check(self) -> None:
        """Compare model and payload with their digests.

        Raises:
            EngineFileError: it is damaged, or another file has taken its place since it was opened.
        """
        for name in self._names[1:]:
            self._read(name)

    def _read(self, name: str) -> bytes:
        with _open_archive(self.path) as (archive, file):
            if _identity(file) != self._identity:
                raise EngineFileError(
                    f"{self.path}: another file has taken its place since it was opened.\nDo: load it again",
                    path=self.path,
                )
            data = _read_stored(self.path, file, archive.getinfo(name))
        if self.metadata.get(f"{Path(name).stem}_sha256") != sha256_hex(data):
            raise _error(self.path, f"the digest of {name} is not the one in the metadata: the file is damaged")
        return data


def is_engine_file(path: Path) -> bool:
    """Whether the file is a saved engine, by its contents."""
    return path.is_file() and zipfile.is_zipfile(path)


def read_engine_file(path: str | Path) -> EngineFile:
    """Open an engine file.

    Raises:
        EngineFileError: it is not an engine file, or of another format version. ``.path`` says which.
    """
    path = Path(path)
    with _open_archive(path) as (archive, file):
        identity = _identity(file)
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if names not in ([_METADATA, _MODEL], [_METADATA, _MODEL, _PAYLOAD]):
            raise _error(path, f"expected the entries {_METADATA} and {_MODEL}, found {shorten(names, 200)}")
        if entries[0].file_size > _MAX_METADATA:
            raise _error(path, f"{_METADATA} has {entries[0].file_size:,} bytes, expected at most {_MAX_METADATA:,}")
        facts = parse_json(archive.read(entries[0]), _METADATA)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        version = facts.get("format") if isinstance(facts, dict) else facts
        raise _error(path, f"format version {shorten(version)}, expected {FORMAT}")
    return EngineFile(path, facts, tuple(names), identity)


def _identity(file: BinaryIO) -> tuple[int, ...]:
    """Size, time and inode of a file, which change when it is replaced or rewritten."""
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, BinaryIO]]:
    """Open the file as an archive; errors of damaged files become `EngineFileError`."""
    with open_regular(path, error=EngineFileError) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                length = path.stat().st_size
                if any(
                    entry.compress_type != zipfile.ZIP_STORED or max(entry.file_size, entry.compress_size) > length
                    for entry in archive.infolist()
                ):
                    raise _error(path, "an entry is compressed or claims to be larger than the file")
                yield archive, file
        except EngineFileError:
            raise
        except (zipfile.BadZipFile, ValueError, KeyError, RuntimeError, EOFError, OSError, OverflowError) as error:
            raise _error(path, str(error)[:_MAX_CHARACTERS] or type(error).__name__) from error


def _read_stored(path: Path, file: BinaryIO, entry: zipfile.ZipInfo) -> bytes:
    """The bytes of an uncompressed entry; zip's checksum is skipped, since it takes as long as the digest and proves less."""
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER.size).ljust(_LOCAL_HEADER.size, b"\0")
    signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    name = file.read(name_bytes)
    file.seek(extra_bytes, os.SEEK_CUR)
    data = file.read(entry.file_size)
    if signature != b"PK\3\4" or name != entry.filename.encode() or len(data) != entry.file_size:
        raise _error(path, f"{entry.filename} is not where the archive says")
    return data


def _error(path: Path, problem: str) -> EngineFileError:
    return EngineFileError(
        f"{path}: not a usable engine file: {problem}.\nDo: pytrt build MODEL.onnx -o {path}   (a damaged engine file cannot be repaired)",
        path=path,
    )
