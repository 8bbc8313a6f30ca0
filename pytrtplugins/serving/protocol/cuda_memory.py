"""GPU memory that clients share with the server through CUDA IPC handles."""

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
    """A registered region of GPU memory.

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


def read_handle(handle: object) -> str:
    """Check a CUDA IPC handle in base64."""
    try:
        data = base64.b64decode(handle.encode(), validate=True) if isinstance(handle, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != HANDLE_BYTES:
        raise RequestError(
            "failed to register shared memory region: invalid args: 'raw_handle' must have the "
            f"{HANDLE_BYTES} bytes of a CUDA IPC handle in base64; the request has {shorten(handle)}"
        )
    return base64.b64encode(data).decode()


class CudaMemory:
    """Copies from and to shared GPU memory; each region is opened at first use, and closed when it is unregistered."""

    def __init__(self) -> None:
        self._open: dict[CudaRegion, tuple[Any, int]] = {}  # context, address

    def check(self, region: CudaRegion) -> None:
        """See whether there is such memory.

        Raises:
            RequestError: the handle is of no memory, or of less; or the server has no such GPU.
        """
        with self._driver_and_address(region):
            pass

    def read(self, region: CudaRegion, offset: int, into: bytearray) -> None:
        """Copy a region into the buffer ``into``."""
        with self._driver_and_address(region) as (on, address):
            memory = (ctypes.c_char * len(into)).from_buffer(into)
            on.call("cuMemcpyDtoH", ctypes.addressof(memory), address + offset, len(into))

    def write(self, region: CudaRegion, offset: int, data: bytes) -> None:
        """Put bytes there."""
        with self._driver_and_address(region) as (on, address):
            memory = ctypes.c_char_p(data)
            on.call("cuMemcpyHtoD", address + offset, ctypes.cast(memory, ctypes.c_void_p).value, len(data))

    def close_others(self, registered: Collection[CudaRegion]) -> None:
        """Close regions that are no longer registered."""
        for region in [region for region in self._open if region not in registered]:
            context, address = self._open.pop(region)
            with _as_request_errors(region), _current(driver(), context):
                driver().call("cuIpcCloseMemHandle", address)

    @contextmanager
    def _driver_and_address(self, region: CudaRegion) -> Iterator[tuple[Driver, int]]:
        """The driver, with the GPU's context made current, and the device address of the region."""
        with _as_request_errors(region):
            on = driver()
            if region not in self._open:
                on.call("cuInit", 0)
                context = on.call("cuDevicePrimaryCtxRetain", on.call("cuDeviceGet", region.device_id))
                with _current(on, context):
                    self._open[region] = context, _open_region(on, region)
            context, address = self._open[region]
            with _current(on, context):
                yield on, address


def _open_region(on: Driver, region: CudaRegion) -> int:
    """The device address of a region, which must be as large as the client claims."""
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
def _as_request_errors(region: CudaRegion) -> Iterator[None]:
    """Raise CUDA's errors as errors for the client."""
    try:
        yield
    except RequestError:
        raise
    except PytrtpluginsError as error:
        text = str(error).partition("\n")[0]
        raise RequestError(
            f"failed to register shared memory region {region.name!r}: the server cannot use GPU {region.device_id}: {text}"
        ) from None
