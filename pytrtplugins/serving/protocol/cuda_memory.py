"""Memory of GPUs that clients share with the server, by CUDA's handles for other processes (CUDA IPC)."""

from __future__ import annotations

import base64
import binascii
import ctypes
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...cuda.driver import Driver, driver
from ...errors import PytrtpluginsError, RequestError
from ...utils.text_formats import shorten

__all__ = ["HANDLE_BYTES", "CudaMemory", "CudaRegion", "read_handle"]

HANDLE_BYTES = 64
"""Of a handle (CU_IPC_HANDLE_SIZE)."""


@dataclass(frozen=True)
class CudaRegion:
    """Memory of a GPU.

    Attributes:
        name: The client's.
        handle: CUDA's, in base64.
        device_id: Number of the GPU.
        byte_size: Of the memory.
    """

    name: str
    handle: str
    device_id: int
    byte_size: int


def read_handle(given: object) -> str:
    """A handle in base64, as a request says it.

    Raises:
        RequestError: it is none.
    """
    try:
        found = base64.b64decode(given.encode(), validate=True) if isinstance(given, str) else b""
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != HANDLE_BYTES:
        raise RequestError(
            "failed to register shared memory region: invalid args: 'raw_handle' must have the "
            f"{HANDLE_BYTES} bytes of a CUDA IPC handle in base64; the request has {shorten(given)}"
        )
    return base64.b64encode(found).decode()


class CudaMemory:
    """Copies into and out of such memory; each is opened when it is first used, and stays open until it is unregistered."""

    def __init__(self) -> None:
        self._open: dict[CudaRegion, tuple[Any, int]] = {}  # context, address

    def check(self, region: CudaRegion) -> None:
        """See whether there is such memory.

        Raises:
            RequestError: the handle is of no memory, or of less; or the server has no such GPU.
        """
        with self._used(region):
            pass

    def read(self, region: CudaRegion, offset: int, into: bytearray) -> None:
        """Fill ``into``.

        Raises:
            RequestError: as `check`.
        """
        with self._used(region) as (on, address):
            memory = (ctypes.c_char * len(into)).from_buffer(into)
            on.call("cuMemcpyDtoH", ctypes.addressof(memory), address + offset, len(into))

    def write(self, region: CudaRegion, offset: int, data: bytes) -> None:
        """Put bytes there.

        Raises:
            RequestError: as `check`.
        """
        with self._used(region) as (on, address):
            memory = ctypes.c_char_p(data)
            on.call("cuMemcpyHtoD", address + offset, ctypes.cast(memory, ctypes.c_void_p).value, len(data))

    def close_others(self, known: Collection[CudaRegion]) -> None:
        """Close what is not registered any more."""
        for region in [region for region in self._open if region not in known]:
            context, address = self._open.pop(region)
            with _errors(region), _current(driver(), context):
                driver().call("cuIpcCloseMemHandle", address)

    @contextmanager
    def _used(self, region: CudaRegion) -> Iterator[tuple[Driver, int]]:
        """The driver, with the GPU's context as the current one, and the address of the memory."""
        with _errors(region):
            on = driver()
            if region not in self._open:
                on.call("cuInit", 0)
                context = on.call("cuDevicePrimaryCtxRetain", on.call("cuDeviceGet", region.device_id))
                with _current(on, context):
                    self._open[region] = context, _opened(on, region)
            context, address = self._open[region]
            with _current(on, context):
                yield on, address


def _opened(on: Driver, region: CudaRegion) -> int:
    """The address of memory, once it is as large as the client says.

    Raises:
        RequestError: it is smaller.
        KernelError: the handle is of no memory.
    """
    handle = on.api.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), base64.b64decode(region.handle), HANDLE_BYTES)
    lazily = on.api.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
    address = int(on.call("cuIpcOpenMemHandle", handle, lazily))
    code, base, size = on.api.cuMemGetAddressRange(address)
    on.check("cuMemGetAddressRange", code)
    if address + region.byte_size > int(base) + size:
        on.call("cuIpcCloseMemHandle", address)
        raise RequestError(
            f"failed to register shared memory region {region.name!r}: invalid args: the memory of the GPU has {size:,} bytes, and the "
            f"request has {region.byte_size:,}"
        )
    return address


@contextmanager
def _current(on: Driver, context: Any) -> Iterator[None]:
    on.call("cuCtxPushCurrent", context)
    try:
        yield
    finally:
        on.call("cuCtxPopCurrent")


@contextmanager
def _errors(region: CudaRegion) -> Iterator[None]:
    """Say what CUDA says to the client.

    Raises:
        RequestError: CUDA fails, or is not there.
    """
    try:
        yield
    except RequestError:
        raise
    except PytrtpluginsError as error:
        text = str(error).partition("\n")[0]
        raise RequestError(
            f"failed to register shared memory region {region.name!r}: the server cannot use GPU {region.device_id}: {text}"
        ) from None
