"""Triton's trace and log settings: they report what this server does, and clients cannot change them."""

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


def trace_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Triton's trace settings after a client's changes, of which None means the default; this server does not write Triton's traces."""
    level = ["OFF"], "OFF", None
    _check("trace", changes, {**{name: (value, None) for name, value in _TRACE.items()}, "trace_level": level})
    return dict(_TRACE)


def log_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Triton's log settings after a client's changes."""
    logger = logging.getLogger("pytrtplugins")
    current = {
        "log_file": "",
        "log_info": logger.isEnabledFor(logging.INFO),
        "log_warning": logger.isEnabledFor(logging.WARNING),
        "log_error": logger.isEnabledFor(logging.ERROR),
        "log_verbose_level": int(logger.isEnabledFor(logging.DEBUG)),
        "log_format": "default",
    }
    _check("log", changes, {name: (value,) for name, value in current.items()})
    return current


def _check(kind: str, changes: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]) -> None:
    for name, value in changes.items():
        if name not in allowed:
            raise RequestError(f"{kind} settings: expected {', '.join(allowed)}, found {shorten(name)}")
        if value not in allowed[name]:
            raise RequestError(
                f"{kind} settings: {name} is {shorten(allowed[name][0])}, and clients do not change it: it is set where the "
                "server is started"
            )
