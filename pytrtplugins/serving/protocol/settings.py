"""Trace and log settings as Triton's clients ask for them: they tell what this server does, and are not changed by clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ...errors import RequestError
from ...utils.text_formats import shorten

__all__ = ["log_settings", "trace_settings"]

_TRACE: dict[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


def trace_settings(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Triton's own traces, which this server does not write.

    Args:
        wanted: Settings that a client gives; None of one means its default.

    Raises:
        RequestError: they are others.
    """
    level = ["OFF"], "OFF", None
    _check("trace", wanted, {**{name: (value, None) for name, value in _TRACE.items()}, "trace_level": level})
    return dict(_TRACE)


def log_settings(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What the server logs.

    Args:
        wanted: Settings that a client gives.

    Raises:
        RequestError: they are others.
    """
    logger = logging.getLogger("pytrtplugins")
    found = {
        "log_file": "",
        "log_info": logger.isEnabledFor(logging.INFO),
        "log_warning": logger.isEnabledFor(logging.WARNING),
        "log_error": logger.isEnabledFor(logging.ERROR),
        "log_verbose_level": int(logger.isEnabledFor(logging.DEBUG)),
        "log_format": "default",
    }
    _check("log", wanted, {name: (value,) for name, value in found.items()})
    return found


def _check(kind: str, wanted: Mapping[str, Any], known: Mapping[str, tuple[Any, ...]]) -> None:
    for name, value in wanted.items():
        if name not in known:
            raise RequestError(f"{kind} settings: expected {', '.join(known)}, found {shorten(name)}")
        if value not in known[name]:
            raise RequestError(
                f"{kind} settings: {name} is {shorten(known[name][0])}, and clients do not change it: it is set where the "
                "server is started"
            )
