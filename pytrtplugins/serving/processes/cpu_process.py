"""A CPU process: HTTP, decoding, and sending tensors to engine processes, or computing them itself."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from ...errors import PytrtpluginsError
from ...utils.heap import collect_and_freeze
from ..access.access import Access
from ..backends.backend import VersionedBackend
from ..backends.remote import RemoteBackend
from ..model.spec import Limits
from ..shared.control import Control
from ..shared.rate_limiter import RateLimiter
from ..shared.settings import SharedSettings
from .server import run_server

__all__ = ["run_cpu_process"]


def run_cpu_process(
    backend: VersionedBackend,
    limits: Limits,
    sock: socket.socket,
    control: Control,
    grpc_address: str | None = None,
    access: Access | None = None,
    board: SharedSettings | None = None,
    meter: RateLimiter | None = None,
) -> int:
    """Serve until the supervisor tells it to stop, or has ended; returns the exit code."""

    async def started(server: Any) -> None:
        asyncio.get_running_loop().add_reader(control.fileno(), _handle_control_messages, server, backend, control)
        if isinstance(backend, RemoteBackend):
            await backend.heard_of_all()
        collect_and_freeze()
        control.send({"ready": True})

    try:
        run_server(backend, limits, [sock], started, grpc_address, access, board, meter)
    except PytrtpluginsError as error:
        control.send({"failed": str(error)})
        return 1
    return 0


def _handle_control_messages(server: Any, backend: VersionedBackend, control: Control) -> None:
    """Handle the supervisor's messages."""
    received = control.receive()
    if received is None:
        os._exit(0)  # the supervisor is gone, and nobody would end this process
    message, handed = received
    if handed is not None and isinstance(backend, RemoteBackend):
        handed.setblocking(False)
        task = asyncio.get_running_loop().create_task(backend.join(handed, message["peer"]))
        _JOINING.add(task)
        task.add_done_callback(_JOINING.discard)
    if "drain" in message:
        server.should_exit = True


_JOINING: set[asyncio.Task[None]] = set()  # a loop keeps no reference to its tasks
