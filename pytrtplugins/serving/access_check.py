"""What is looked at before a server listens: the files that its settings name, and who can reach it."""

from __future__ import annotations

import ipaddress
import logging
import socket

from .access import Access
from .access_log import AccessLog
from .cors import check_origins
from .keys import read_keys
from .tls import Tls
from .trace import Tracer

__all__ = ["check_access", "is_loopback"]

_log = logging.getLogger(__name__)


def check_access(access: Access, sock: socket.socket) -> None:
    """Look at the files that the settings name, and warn of what is open to everybody.

    Args:
        access: The settings.
        sock: Bound to the address that the server will listen on.

    Raises:
        UsageError: a file is missing, or is not what it should be; or an origin is none.
    """
    tls, outside = Tls.of(access), not is_loopback(sock)
    if tls is not None:
        tls.warn()
    elif outside:
        _log.warning("what clients send, keys too, can be read on its way: --tls-cert and --tls-key encrypt it")
    check_origins(access.cors)
    if tracer := Tracer.of(access):
        tracer.close()
    if access.access_log:
        AccessLog(access.access_log).close()
    if access.keys:
        if not read_keys(access.keys):
            _log.warning(
                "%s has no keys: every request is refused. Do: pytrt serve-key NAME --keys %s", *2 * [access.keys]
            )
    elif outside:
        _log.warning("everybody who can reach this server may use it: --keys names a file of keys")


def is_loopback(sock: socket.socket) -> bool:
    """Whether programs of this machine alone can connect."""
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback
