"""Checks before a server listens: the files that its settings name, and who can reach it."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Collection

from .access import Access
from .access_log import AccessLog
from .cors import check_origins
from .keys import read_keys
from .tls import Tls
from .trace import Tracer

__all__ = ["check_access", "is_loopback", "warn_of_access"]

_log = logging.getLogger(__name__)


def check_access(access: Access, models: Collection[str]) -> None:
    """Look at the files that the settings name; a key for other models than ``models`` is a warning.

    Raises:
        UsageError: a file is missing, or is not what it should be; or an origin is none.
        FormatError: the file of keys is wrong; ``.path`` and ``.line`` say where.
    """
    check_origins(access.cors)
    tls = Tls.of(access)
    if tls is not None:
        tls.warn()
    if tracer := Tracer.of(access):
        tracer.close()
    if access.access_log:
        AccessLog(access.access_log).close()
    if access.keys:
        keys = read_keys(access.keys)
        if not keys:
            _log.warning(
                "%s has no keys: every request is refused. Do: pytrt serve-key NAME --keys %s", *2 * [access.keys]
            )
        for key in keys:
            for name in sorted({*key.models} - {*models}):
                _log.warning("%s: key %r allows model %r, which is not served", access.keys, key.name, name)


def warn_of_access(access: Access, sock: socket.socket) -> None:
    """Warn of what is open to everybody, if clients of other machines can connect to the address that a socket is bound to."""
    if not is_loopback(sock):
        if not access.tls_cert:
            _log.warning("what clients send, keys too, can be read on its way: --tls-cert and --tls-key encrypt it")
        if not access.keys:
            _log.warning("everybody who can reach this server may use it: --keys names a file of keys")


def is_loopback(sock: socket.socket) -> bool:
    """Whether programs of this machine alone can connect."""
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback
