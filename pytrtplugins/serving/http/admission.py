"""Limit connections: their number, how long each may be idle, and which one is closed for a new one."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from itertools import islice
from typing import Any

from ..model.spec import Limits

__all__ = ["Admission", "network_of"]

_AT_ONCE = 64  # connections that are closed in one turn of the loop: many may have come at the same time
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 33\r\nretry-after: 1\r\n"
    b'connection: close\r\n\r\n{"error": "too many connections"}'
)


class Admission:
    """The connections of a process.

    Where there are too many, a new one takes the place of the one that has been silent longest since it was made; where all others have
    asked something, the new one is told so. So clients that only connect cannot keep others out. One timer closes those that are silent
    for too long.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_network: Counter[str] = Counter()
        self._silent: dict[Any, tuple[float, str]] = {}  # when they were made, by whom; the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, transport: Any, others: int) -> str:
        """Count a connection, as silent, and give whose it is; `leave` must follow. The process has ``others`` besides."""
        peer = transport.get_extra_info("peername")
        network = network_of(peer[0]) if isinstance(peer, tuple) else ""
        self._by_network[network] += 1
        crowd = self._by_network[network] > self._limits.connections_per_address
        if (crowd or others >= self._limits.connections) and not self._make_room(network if crowd else None):
            transport.write(_FULL)
            transport.close()
        loop = asyncio.get_running_loop()
        self._silent[transport] = loop.time(), network
        if self._timer is None:
            self._timer = loop.call_later(self._limits.head_seconds, self._close_slow)
        return network

    def head_received(self, transport: Any) -> None:
        """Note that the head of a request has arrived: the connection is not idle any more."""
        self._silent.pop(transport, None)

    def is_silent(self, transport: Any) -> bool:
        """Whether no head of a request has come yet."""
        return transport in self._silent

    def leave(self, transport: Any, network: str) -> None:
        """Count a connection no more."""
        self._silent.pop(transport, None)
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]

    def _make_room(self, network: str | None = None) -> bool:
        """Close the connection that has been idle longest, of ``network`` if it is given; returns whether there was one."""
        oldest = next((connection for connection, (_, whose) in self._silent.items() if network in (None, whose)), None)
        if oldest is not None:
            del self._silent[oldest]
            oldest.abort()
        return oldest is not None

    def _close_slow(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() - self._limits.head_seconds
        slow = [connection for connection, (since, _) in islice(self._silent.items(), _AT_ONCE) if since <= until]
        for connection in slow:
            del self._silent[connection]
            connection.abort()
        since = next((since for since, _ in self._silent.values()), None)
        self._timer = None if since is None else loop.call_at(since + self._limits.head_seconds, self._close_slow)


def network_of(address: str) -> str:
    """The network that counts as one client: an IPv4 address, or the /64 prefix of an IPv6 address."""
    if ":" not in address:
        return address
    ipv6 = ipaddress.IPv6Address(address.partition("%")[0])
    if ipv6.ipv4_mapped is not None:
        return str(ipv6.ipv4_mapped)
    return ipv6.exploded[:19]
