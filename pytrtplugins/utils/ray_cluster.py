"""Connect this process to a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from ..errors import UsageError

__all__ = ["connect"]

_CONNECT_S = 5


def connect(ray: Any, address: str, **options: Any) -> None:
    """Connect to a Ray cluster.

    Args:
        ray: The module.
        address: ``"local"``: a new cluster on this machine; ``"auto"``: the cluster that this machine belongs to; or ``HOST:PORT``.
        **options: Of ``ray.init``.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        host, _, port = address.rpartition(":")
        if host and port.isdecimal():  # Ray itself tries for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
        ray.init(address=address, logging_level=logging.WARNING, **options)
    except (OSError, OverflowError, ValueError) as error:
        raise UsageError(
            f"--ray {address}: {str(error).splitlines()[0]}\n"
            "Do: ray start --head, on the first machine; or --ray local, for a cluster on this one"
        ) from error
