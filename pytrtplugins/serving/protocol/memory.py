"""Shared memory regions that clients register for inputs and outputs: in /dev/shm, and on GPUs.

A client names an object, and may cut, replace or remove it at any time. So nothing is mapped: each use opens the object, looks at it
again, and copies (``pread``, ``pwrite``).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ...errors import RequestError
from ...utils.text_formats import shorten
from ..model.spec import Limits
from ..shared.settings import SharedSettings
from .cuda_memory import CudaMemory, CudaRegion, read_handle

__all__ = ["Memory", "Region", "SharedMemoryRef", "TakenNameError", "read_place"]

_FOLDER = "/dev/shm"
_KEY = re.compile(r"/*[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}")  # of one name, which begins with no dot
_RESERVED = "triton_python_backend_shm_region_"  # of a Triton server on the same machine
_DISABLED = "Client shared memory is disabled. Start the server with '--shared-memory' to enable."
_NAME_BYTES = 256
_UINT64_MAX = (1 << 64) - 1
_LEAVES = "leaves"  # in the entry of a region that is to be forgotten once no request uses it
_Kind = TypeVar("_Kind", "Region", CudaRegion)
_MOST_GPUS = 1024


class TakenNameError(RequestError):
    """A region of this name is already registered."""


@dataclass(frozen=True)
class SharedMemoryRef:
    """Region, offset and size of a tensor.

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
    """A registered part of an object in shared memory.

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


def read_place(parameters: Mapping[str, Any], what: str) -> SharedMemoryRef | None:
    """The shared memory that an input's or output's parameters name; None if the data is in the request or answer.

    Raises:
        RequestError: they say it wrongly.
    """
    if "shared_memory_region" not in parameters:
        return None
    name = parameters["shared_memory_region"]
    size, offset = parameters.get("shared_memory_byte_size"), parameters.get("shared_memory_offset", 0)
    if not isinstance(name, str) or not name:
        raise RequestError(
            f"Unable to parse 'shared_memory_region' of {what}: it must be a name; the request has {shorten(name)}"
        )
    first = _number(offset, f"'shared_memory_offset' of {what}")
    count = _number(size, f"'shared_memory_byte_size' of {what}")
    return SharedMemoryRef(name, first, count)


class Memory:
    """The registered regions.

    Args:
        limits: Of requests.
        board: Where all CPU processes find the regions; None: there is one process.
    """

    def __init__(self, limits: Limits, board: SharedSettings | None = None) -> None:
        self._limits = limits
        self._board = (board or SharedSettings()) if limits.shared_memory_regions else None
        self._cuda = CudaMemory()

    def register(self, name: object, key: object, offset: object, byte_size: object) -> None:
        """Register a region.

        Raises:
            RequestError: there is no such object, it is too small, or the name is taken.
        """
        self._open_to_clients()
        name = _name(name)
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise RequestError(
                f"cannot register shared memory region {name!r} - invalid shm key {shorten(key)}: it must be the name of an object in "
                "shared memory, such as 'images'"
            )
        if key.lstrip("/").startswith(_RESERVED):
            raise RequestError(
                f"cannot register shared memory region {name!r} with key {key!r} as the key contains the reserved prefix {_RESERVED!r}"
            )
        first, size = (
            _number(offset, f"'offset' of region {name!r}"),
            _number(byte_size, f"'byte_size' of region {name!r}"),
        )
        self._check_free(name)
        with _object(key) as descriptor:
            status = os.fstat(descriptor)
        if not size or status.st_size < first + size:
            raise RequestError(
                f"failed to register shared memory region {name!r}: invalid args: object {key!r} has {status.st_size:,} bytes, and "
                f"{size:,} at {first:,} are not within it"
            )
        self._add("system", Region(name, key, first, size, status.st_ino))

    def register_cuda(self, name: object, handle: object, device_id: object, byte_size: object) -> None:
        """Register GPU memory; ``handle`` is a CUDA IPC handle in base64.

        Raises:
            RequestError: there is no such memory, or no such GPU; or the name is taken.
        """
        self._open_to_clients()
        name, size = _name(name), _number(byte_size, f"'byte_size' of region {shorten(name)}")
        if not size:
            raise RequestError(f"failed to register shared memory region {name!r}: invalid args: it has no bytes")
        if type(device_id) is not int or not 0 <= device_id < _MOST_GPUS:
            raise RequestError(
                f"Unable to parse 'device_id' of region {name!r}: it must be the number of a GPU; the request has {shorten(device_id)}"
            )
        region = CudaRegion(name, read_handle(handle), device_id, size)
        self._cuda.check(region)
        try:
            self._add("cuda", region)
        finally:
            self._cuda.close_others(self._cuda_regions())

    def _add(self, kind: str, region: Region | CudaRegion) -> None:
        def add(document: dict[str, Any]) -> None:
            count = sum(len(regions) for regions in document.values())
            _refuse_known(region.name, document)
            if count >= self._limits.shared_memory_regions:
                raise RequestError(
                    f"{count} regions of shared memory are registered, the most of this server: unregister one"
                )
            document.setdefault(kind, {})[region.name] = {**asdict(region), _LEAVES: False}

        self._open_to_clients().change(add)

    def _check_free(self, name: str) -> None:
        """Require that no region has a name."""
        _refuse_known(name, self._open_to_clients().read())

    def unregister(self, name: str = "", kind: str = "system") -> None:
        """Forget a region; without a name all of this kind. One that is not known is no error, as in Triton.

        One that a request is using is forgotten once no request uses it, also as in Triton.

        Raises:
            RequestError: the server shares no memory (501).
        """

        def mark(document: dict[str, Any]) -> None:
            for key, region in document.get(kind, {}).items():
                region[_LEAVES] = region[_LEAVES] or not name or key == name

        self._open_to_clients().change(mark)
        self._forget()

    @contextmanager
    def using(self, names: Collection[str]) -> Iterator[None]:
        """Prevent regions from being unregistered while a request uses them."""
        if not names or self._board is None:
            yield
            return
        for name in names:
            self._board.hold(name)
        try:
            yield
        finally:
            for name in names:
                self._board.release(name)
            self._forget()

    def _forget(self) -> None:
        """Forget the regions that are to be forgotten, and that no request of any process uses."""
        board = self._open_to_clients()

        def forget(document: dict[str, Any]) -> None:
            for kind, regions in document.items():
                document[kind] = {
                    key: region for key, region in regions.items() if not region[_LEAVES] or board.is_held(key)
                }

        if any(region[_LEAVES] for regions in board.read().values() for region in regions.values()):
            board.change(forget)
            self._cuda.close_others(self._cuda_regions())

    def regions(self, name: str = "") -> list[Region]:
        """A region of system memory, or all without a name."""
        return [_region_of_entry(Region, entry) for entry in self._known("system", name)]

    def cuda_regions(self, name: str = "") -> list[CudaRegion]:
        """A region of GPU memory, or all without a name."""
        self._known("cuda", name)
        return self._cuda_regions(name)

    def _cuda_regions(self, name: str = "") -> list[CudaRegion]:
        entries = {} if self._board is None else self._board.read().get("cuda", {})
        return [_region_of_entry(CudaRegion, entry) for key, entry in entries.items() if not name or key == name]

    def _known(self, kind: str, name: str) -> list[dict[str, Any]]:
        if self._board is not None:
            self._forget()  # a process that used some may have died
        entries = {} if self._board is None else self._board.read().get(kind, {})
        if name and name not in entries:
            raise RequestError(f"Unable to find {kind} shared memory region: {shorten(name)}", status=404)
        return [entry for key, entry in entries.items() if not name or key == name]

    def read(self, place: SharedMemoryRef) -> memoryview:
        """A copy of a tensor's bytes.

        Raises:
            RequestError: it lies outside of its region, or the object was changed.
        """
        if place.size > self._limits.body_bytes:
            raise RequestError(
                f"a tensor in shared memory has a byte_size ({place.size} bytes) that exceeds the maximum allowed value of "
                f"{self._limits.body_bytes} bytes. Use --body-limit to increase the limit.",
                status=413,
            )
        region = self._region(place)
        data = bytearray(place.size)
        if isinstance(region, CudaRegion):
            self._cuda.read(region, place.offset, data)
            return memoryview(data)
        with _open_object(region) as descriptor:
            byte_count = os.preadv(descriptor, [data], region.offset + place.offset)
        if byte_count != place.size:
            raise _changed_error(region)
        return memoryview(data)

    def write(self, place: SharedMemoryRef, data: bytes, name: str) -> None:
        """Put the bytes of the output ``name`` there.

        Raises:
            RequestError: they lie outside of their region, or the object was changed.
        """
        region = self._region(place)
        if len(data) > place.size:
            raise RequestError(
                f"shared memory size specified with the request for output {name!r} ({place.size} bytes) should be at least {len(data)} "
                "bytes to hold the results"
            )
        if isinstance(region, CudaRegion):
            self._cuda.write(region, place.offset, data)
            return
        with _open_object(region) as descriptor:
            try:
                written = os.pwrite(descriptor, data, region.offset + place.offset)
            except OSError as error:
                raise RequestError(f"shared memory region {shorten(place.region)}: {error.strerror}") from None
        if written != len(data):
            raise _changed_error(region)

    def check(self, place: SharedMemoryRef) -> None:
        """See whether a tensor may be written there, before it is computed."""
        region = self._region(place)
        if isinstance(region, CudaRegion):
            self._cuda.check(region)
            return
        with _open_object(region):
            pass

    def _open_to_clients(self) -> SharedSettings:
        if self._board is None:
            raise RequestError(_DISABLED, status=501)
        return self._board

    def _region(self, place: SharedMemoryRef) -> Region | CudaRegion:
        document = self._open_to_clients().read()
        region: Region | CudaRegion
        if place.region in document.get("cuda", {}):
            self._cuda.close_others(self._cuda_regions())  # another process may have unregistered some
            (region,) = self._cuda_regions(place.region)
        elif place.region in document.get("system", {}):
            region = _region_of_entry(Region, document["system"][place.region])
        else:
            raise RequestError(f"Unable to find shared memory region: {shorten(place.region)}", status=404)
        about = f"region: {place.region!r} has {region.byte_size:,} bytes, the request has {place.size:,} at {place.offset:,}"
        if place.offset >= region.byte_size:
            raise RequestError(f"Invalid offset for shared memory {about}")
        if place.offset + place.size > _UINT64_MAX:
            raise RequestError(
                f"Integer overflow detected: byte_size ({place.size}) + offset ({place.offset}) exceeds maximum value ({_UINT64_MAX}) "
                f"for region {place.region!r}"
            )
        if place.offset + place.size > region.byte_size:
            raise RequestError(f"Invalid offset + byte size for shared memory {about}")
        return region


def _region_of_entry(kind: type[_Kind], entry: Mapping[str, Any]) -> _Kind:
    """The region of an entry in the shared settings, without the entry's other keys."""
    return kind(**{name: value for name, value in entry.items() if name != _LEAVES})


@contextmanager
def _open_object(region: Region) -> Iterator[int]:
    """Open the object of a region, which must be unchanged since it was registered."""
    with _object(region.key) as descriptor:
        status = os.fstat(descriptor)
        if status.st_ino != region.inode or status.st_size < region.offset + region.byte_size:
            raise _changed_error(region)
        yield descriptor


@contextmanager
def _object(key: str) -> Iterator[int]:
    """Open an object in shared memory."""
    try:
        descriptor = os.open(f"{_FOLDER}/{key.lstrip('/')}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise RequestError(f"Unable to open shared memory region: {shorten(key)}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RequestError(f"Invalid shared memory region: {shorten(key)}: it is no object of shared memory")
        yield descriptor
    finally:
        os.close(descriptor)


def _changed_error(region: Region) -> RequestError:
    return RequestError(
        f"shared memory region {shorten(region.name)}: object {shorten(region.key)} was replaced or made smaller "
        "since it was registered: register it again"
    )


def _name(name: object) -> str:
    if not isinstance(name, str) or not name or len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        raise RequestError(
            f"failed to register shared memory region {shorten(name)}: invalid args: its name must be text of 1 to {_NAME_BYTES} bytes"
        )
    return name


def _refuse_known(name: str, document: Mapping[str, Any]) -> None:
    if any(name in regions for regions in document.values()):
        raise TakenNameError(f"shared memory region {name!r} already in manager: unregister it first")


def _number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _UINT64_MAX:
        raise RequestError(f"Unable to parse {what}: it must be a number of bytes; the request has {shorten(value)}")
    return value
