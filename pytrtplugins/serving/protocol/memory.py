"""Memory that clients share with the server, for inputs and outputs: regions of objects in /dev/shm, and of GPUs.

A client names an object, and may cut, replace or remove it at any time. So nothing is mapped: each use opens the object, looks at it
again, and copies (``pread``, ``pwrite``).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import RequestError
from ...utils.text_formats import shorten
from ..model.spec import Limits
from ..shared.board import Board
from .cuda_memory import CudaMemory, CudaRegion, read_handle

__all__ = ["Memory", "Place", "Region", "read_place"]

_FOLDER = "/dev/shm"
_KEY = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}")  # of one name, which begins with no dot
_NAME_BYTES = 256
_LARGEST = 1 << 62
_MOST_GPUS = 1024


@dataclass(frozen=True)
class Place:
    """Where a tensor is.

    Attributes:
        region: The name that the client registered.
        offset: In the region, in bytes.
        size: In bytes; of an output the most that it may take.
    """

    region: str
    offset: int
    size: int


@dataclass(frozen=True)
class Region:
    """A part of an object in shared memory.

    Attributes:
        name: The client's.
        key: The object's name, perhaps behind a slash.
        offset: Where it begins in the object, in bytes.
        byte_size: Of it.
        inode: Of the object, which could be replaced by another.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    inode: int


def read_place(parameters: Mapping[str, Any], what: str) -> Place | None:
    """Where the parameters of an input or output say that it is; None: it is part of the request, or of the answer.

    Raises:
        RequestError: they say it wrongly.
    """
    if "shared_memory_region" not in parameters:
        return None
    name = parameters["shared_memory_region"]
    size, offset = parameters.get("shared_memory_byte_size"), parameters.get("shared_memory_offset", 0)
    if not isinstance(name, str) or not name:
        raise RequestError(f"{what}: shared_memory_region: expected a name, found {shorten(name)}")
    return Place(
        name, _number(offset, f"{what}: shared_memory_offset"), _number(size, f"{what}: shared_memory_byte_size")
    )


class Memory:
    """The regions that clients have registered.

    Args:
        limits: Of requests.
        board: Where all CPU processes find the regions; None: there is one process.
    """

    def __init__(self, limits: Limits, board: Board | None = None) -> None:
        self._limits = limits
        self._board = (board or Board()) if limits.shared_memory_regions else None
        self._cuda = CudaMemory()

    def register(self, name: object, key: object, offset: object, byte_size: object) -> None:
        """Register a region.

        Raises:
            RequestError: there is no such object, it is too small, or the name is taken.
        """
        self._open_to_clients()
        name, size = _name(name), _size(name, byte_size)
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise RequestError(
                f"shared memory region {shorten(name)}: key: expected the name of an object in shared memory, such as "
                f"'images', found {shorten(key)}"
            )
        first = _number(offset, f"shared memory region {shorten(name)}: offset")
        with _object(name, key) as descriptor:
            found = os.fstat(descriptor)
        if found.st_size < first + size:
            raise RequestError(
                f"shared memory region {shorten(name)}: object {shorten(key)} has {found.st_size:,} bytes: "
                f"{size:,} at {first:,} are not within it"
            )
        self._add("system", Region(name, key, first, size, found.st_ino))

    def register_cuda(self, name: object, handle: object, device_id: object, byte_size: object) -> None:
        """Register memory of a GPU; ``handle`` is CUDA's, in base64.

        Raises:
            RequestError: there is no such memory, or no such GPU; or the name is taken.
        """
        self._open_to_clients()
        name, size = _name(name), _size(name, byte_size)
        if type(device_id) is not int or not 0 <= device_id < _MOST_GPUS:
            raise RequestError(f"device_id: expected the number of a GPU, found {shorten(device_id)}")
        region = CudaRegion(name, read_handle(handle), device_id, size)
        self._cuda.check(region)
        try:
            self._add("cuda", region)
        finally:
            self._cuda.close_others(self.cuda_regions())

    def _add(self, kind: str, region: Region | CudaRegion) -> None:
        def add(document: dict[str, Any]) -> None:
            count = sum(len(regions) for regions in document.values())
            if any(region.name in regions for regions in document.values()):
                raise RequestError(f"shared memory region {shorten(region.name)} is registered already")
            if count >= self._limits.shared_memory_regions:
                raise RequestError(f"{count} regions of shared memory are registered, the most: unregister one")
            document.setdefault(kind, {})[region.name] = asdict(region)

        self._open_to_clients().change(add)

    def unregister(self, name: str = "", kind: str = "system") -> None:
        """Forget a region; without a name all of this kind. One that is not known is no error, as in Triton."""

        def remove(document: dict[str, Any]) -> None:
            regions = document.get(kind, {})
            document[kind] = {key: each for key, each in regions.items() if name and key != name}

        if self._board is not None:
            self._board.change(remove)
            self._cuda.close_others(self.cuda_regions())

    def regions(self, name: str = "") -> list[Region]:
        """A region of system memory, or all without a name.

        Raises:
            RequestError: there is none of that name.
        """
        return [Region(**each) for each in self._known("system", name)]

    def cuda_regions(self, name: str = "") -> list[CudaRegion]:
        """A region of GPU memory, or all without a name.

        Raises:
            RequestError: there is none of that name.
        """
        return [CudaRegion(**each) for each in self._known("cuda", name)]

    def _known(self, kind: str, name: str) -> list[dict[str, Any]]:
        known = {} if self._board is None else self._board.read().get(kind, {})
        if name and name not in known:
            raise RequestError(f"shared memory region {shorten(name)} is not registered", status=404)
        return [each for key, each in known.items() if not name or key == name]

    def read(self, place: Place) -> memoryview:
        """A copy of what is there.

        Raises:
            RequestError: it lies outside of its region, or the object was changed.
        """
        if place.size > self._limits.body_bytes:
            raise RequestError(f"a tensor in shared memory may have {self._limits.body_bytes:,} bytes", status=413)
        region = self._region(place)
        data = bytearray(place.size)
        if isinstance(region, CudaRegion):
            self._cuda.read(region, place.offset, data)
            return memoryview(data)
        with _opened(region) as descriptor:
            found = os.preadv(descriptor, [data], region.offset + place.offset)
        if found != place.size:
            raise _changed(region)
        return memoryview(data)

    def write(self, place: Place, data: bytes) -> None:
        """Put bytes there.

        Raises:
            RequestError: they lie outside of their region, or the object was changed.
        """
        region = self._region(place)
        if len(data) > place.size:
            raise RequestError(
                f"shared memory region {shorten(place.region)}: the output has {len(data):,} bytes, "
                f"shared_memory_byte_size says {place.size:,}"
            )
        if isinstance(region, CudaRegion):
            self._cuda.write(region, place.offset, data)
            return
        with _opened(region) as descriptor:
            try:
                written = os.pwrite(descriptor, data, region.offset + place.offset)
            except OSError as error:
                raise RequestError(f"shared memory region {shorten(place.region)}: {error.strerror}") from None
        if written != len(data):
            raise _changed(region)

    def check(self, place: Place) -> None:
        """See whether a tensor may be written there, before it is computed.

        Raises:
            RequestError: no.
        """
        region = self._region(place)
        if isinstance(region, CudaRegion):
            self._cuda.check(region)
            return
        with _opened(region):
            pass

    def _open_to_clients(self) -> Board:
        if self._board is None:
            raise RequestError("this server shares no memory with clients: it was started without --shared-memory")
        return self._board

    def _region(self, place: Place) -> Region | CudaRegion:
        board = self._open_to_clients()
        region: Region | CudaRegion
        if place.region in board.read().get("cuda", {}):
            self._cuda.close_others(self.cuda_regions())  # another process may have unregistered some
            region = self.cuda_regions(place.region)[0]
        else:
            region = self.regions(place.region)[0]
        if place.offset + place.size > region.byte_size:
            raise RequestError(
                f"shared memory region {shorten(place.region)} has {region.byte_size:,} bytes: {place.size:,} at "
                f"{place.offset:,} are not within it"
            )
        return region


@contextmanager
def _opened(region: Region) -> Iterator[int]:
    """The object of a region, if it still is as it was when it was registered.

    Raises:
        RequestError: it is gone, another, or smaller.
    """
    with _object(region.name, region.key) as descriptor:
        found = os.fstat(descriptor)
        if found.st_ino != region.inode or found.st_size < region.offset + region.byte_size:
            raise _changed(region)
        yield descriptor


@contextmanager
def _object(name: str, key: str) -> Iterator[int]:
    """An object in shared memory.

    Raises:
        RequestError: there is none, or it is not for this server.
    """
    try:
        descriptor = os.open(
            f"{_FOLDER}/{key.removeprefix('/')}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        )
    except OSError as error:
        raise RequestError(f"shared memory region {shorten(name)}: object {shorten(key)}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RequestError(f"shared memory region {shorten(name)}: object {shorten(key)} is no memory")
        yield descriptor
    finally:
        os.close(descriptor)


def _changed(region: Region) -> RequestError:
    return RequestError(
        f"shared memory region {shorten(region.name)}: object {shorten(region.key)} was replaced or made smaller "
        "since it was registered: register it again"
    )


def _name(given: object) -> str:
    if not isinstance(given, str) or not given or len(given.encode("utf-8", "replace")) > _NAME_BYTES:
        raise RequestError(f"shared memory: expected a name of at most {_NAME_BYTES} bytes, found {shorten(given)}")
    return given


def _size(name: object, given: object) -> int:
    size = _number(given, f"shared memory region {shorten(name)}: byte_size")
    if not size:
        raise RequestError(f"shared memory region {shorten(name)}: byte_size: expected at least 1")
    return size


def _number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise RequestError(f"{what}: expected a number of bytes, found {shorten(value)}")
    return value
