"""Messages between the supervisor and its processes: JSON, with sockets as ancillary data."""

from __future__ import annotations

import json
import socket
from typing import Any

__all__ = ["Control"]

_MOST_BYTES = 64 << 10


class Control:
    """One end of the connection between the supervisor and a process; messages keep their boundaries.

    Args:
        sock: Of `pair`, or made from its descriptor in another process.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @staticmethod
    def pair() -> tuple[Control, Control]:
        """Two ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Control(one), Control(other)

    @staticmethod
    def of(descriptor: int) -> Control:
        """The end that this process inherited at its start."""
        return Control(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.sock.fileno()

    def send(self, message: dict[str, Any], handed: socket.socket | None = None) -> bool:
        """Send a message, and a socket with it; False where the other end is gone."""
        try:
            socket.send_fds(
                self.sock, [json.dumps(message).encode()[:_MOST_BYTES]], [] if handed is None else [handed.fileno()]
            )
        except OSError:
            return False
        return True

    def receive(self) -> tuple[dict[str, Any], socket.socket | None] | None:
        """The next message, and the socket that came with it; None where the other end is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.sock, _MOST_BYTES, 1)
        except OSError:
            return None
        if not data:
            return None
        handed = socket.socket(fileno=descriptors[0]) if descriptors else None
        return json.loads(data), handed

    def close(self) -> None:
        """Close this end."""
        self.sock.close()
