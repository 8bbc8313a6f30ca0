"""Tensor files of a checkpoint, and their index: file and offset of each part of a tensor."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint import filesystem, metadata

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.files import open_regular
from pytrtplugins.utils.override import override
from pytrtplugins.utils.text_formats import read_json

from .saved_tensors import check_saved

__all__ = ["INDEX", "Reader", "Writer"]

INDEX = "index.json"
_MAX_INDEX = 64 << 20
_MOST = 1 << 48  # of a dim, and of a position in a file
_TYPES = {str(kind): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}


class Writer(checkpoint.FileSystemWriter):
    """Writes the index as JSON instead of torch.distributed.checkpoint's pickle."""

    @override
    def finish(self, metadata: metadata.Metadata, results: list[Any]) -> None:
        places = {result.index: result.storage_data for part in results for result in part}
        tensors = {}
        for name, tensor in metadata.state_dict_metadata.items():
            if not isinstance(tensor, checkpoint.TensorStorageMetadata):
                raise TypeError(f"{name} is no tensor")
            chunks = []
            for chunk in tensor.chunks:
                place = places[checkpoint.metadata.MetadataIndex(name, chunk.offsets)]
                chunks.append([[*chunk.offsets], [*chunk.sizes], place.relative_path, place.offset, place.length])
            tensors[name] = [str(tensor.properties.dtype), [*tensor.size], chunks]
        with (Path(self.path) / INDEX).open("w", encoding="utf-8") as file:
            json.dump(tensors, file)
            file.flush()
            os.fsync(file.fileno())


class Reader(checkpoint.FileSystemReader):
    """Reads the files of `Writer`; memory is bounded by the files' sizes, and links below the folder are refused."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fs = _Files(path)

    @override
    def read_metadata(self, *args: Any, **options: Any) -> metadata.Metadata:
        path = Path(self.path) / INDEX
        entries = read_json(path, max_bytes=_MAX_INDEX, within=Path(self.path))
        tensors, places = {}, {}
        try:
            for name, (kind, size, chunks) in entries.items():
                parts = []
                for offsets, sizes, file, offset, length in chunks:
                    if file != Path(file).name:
                        raise FormatError(f"{path}: it names a file outside: {file!r}", path=path)
                    part = metadata.ChunkStorageMetadata(_dims(offsets), _dims(sizes))
                    parts.append(part)
                    (offset, length) = _dims([offset, length])
                    places[metadata.MetadataIndex(name, part.offsets)] = filesystem._StorageInfo(file, offset, length)
                properties, full_size = metadata.TensorProperties(dtype=_TYPES[kind]), _dims(size)
                if sum(math.prod(part.sizes) for part in parts) != math.prod(full_size):
                    raise FormatError(f"{path}: the parts of {name} are not the whole tensor", path=path)
                tensors[name] = metadata.TensorStorageMetadata(properties, full_size, parts)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{path}: not the index of a checkpoint ({error})", path=path) from error
        return metadata.Metadata(tensors, storage_data=places, storage_meta=metadata.StorageMeta(load_id=self.load_id))

    @override
    def read_data(self, plan: checkpoint.LoadPlan, planner: checkpoint.LoadPlanner) -> torch.futures.Future[None]:
        for item in plan.items:
            place = self.storage_data[item.storage_index]
            path = Path(self.path) / place.relative_path
            with open_regular(path, within=Path(self.path)) as file:
                if place.offset + place.length > file.seek(0, SEEK_END):
                    raise FormatError(f"{path}: it has no {place.length:,} bytes at {place.offset:,}", path=path)
                file.seek(place.offset)
                check_saved(BytesIO(file.read(place.length)), path)
        return super().read_data(plan, planner)

    @classmethod
    @override
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return (Path(checkpoint_id) / INDEX).is_file()


class _Files(filesystem.FileSystem):
    """Opens the files of a checkpoint from an untrusted source."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    @contextlib.contextmanager
    @override
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with open_regular(Path(path), within=self._folder) as file:
            yield file


def _dims(values: Any) -> torch.Size:
    """Whole numbers of an index."""
    if not all(type(value) is int and 0 <= value <= _MOST for value in values):
        raise ValueError(f"expected whole numbers, found {values!r}"[:200])
    return torch.Size(values)
