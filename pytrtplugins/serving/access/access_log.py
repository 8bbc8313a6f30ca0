"""Access log: one line per request, as JSON or as text."""

from __future__ import annotations

import functools
import json
import logging
import logging.handlers
import time
from contextlib import suppress
from typing import Any, Literal, TextIO

from ...errors import UsageError
from .exchange import Exchange

__all__ = ["AccessLog"]

_log = logging.getLogger(__name__)
_LONGEST_PATH = 1024
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode  # ASCII: no character of a client's begins a line


class AccessLog:
    """A log of requests. Several processes may write to one file: each line is appended by one write.

    Args:
        path: Of the file, which is opened anew once it was renamed, as programs that rotate logs do; ``-``: standard error.
        form: Of a line.
    """

    def __init__(self, path: str, form: Literal["json", "plain"] = "json") -> None:
        self._record = logging.makeLogRecord({})  # one for all lines: to make one takes as long as to write it
        self._write = _ENCODE if form == "json" else _text_line
        try:
            self._handler: logging.Handler = _ErrorStream() if path == "-" else _File(path, encoding="ascii")
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written: {(error.strerror or str(error)).lower()}", path=path
            ) from None

    def record(self, exchange: Exchange) -> None:
        """Write the line of a request that has ended."""
        self._record.msg = self._write(_fields(exchange))
        self._handler.handle(self._record)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # what could not be written
            self._handler.close()


def _fields(exchange: Exchange) -> dict[str, Any]:
    seconds, rest = divmod(exchange.time_ns, 10**9)
    fields: dict[str, Any] = {
        "time": f"{_second(seconds)}.{rest // 1000:06}Z",
        "id": exchange.id,
        "client": exchange.client,
        "protocol": exchange.protocol,
        "method": exchange.method,
        "path": exchange.path[:_LONGEST_PATH],
        "status": exchange.status,
        "received": exchange.received,
        "sent": exchange.sent,
        "total_ms": _milliseconds(time.monotonic() - exchange.began),
    }
    if exchange.key is not None:
        fields["key"] = exchange.key.name
    if exchange.model:
        fields["model"] = exchange.model
    if exchange.source is not None:
        fields["version"], fields["digest"] = exchange.source.version, exchange.source.digest
    if exchange.requests:
        fields["requests"] = exchange.requests
    spent: dict[str, float] = {}
    for stage, _, took in exchange.stages:
        spent[stage] = spent.get(stage, 0.0) + took
    for stage, took in spent.items():
        fields[f"{stage}_ms"] = _milliseconds(took)
    if exchange.trace:
        fields["trace"] = exchange.trace
    return fields


@functools.lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _text_line(fields: dict[str, Any]) -> str:
    """A line as text: time, client, key, request line, status; then names with values, the client's request id last."""
    request_line = _ENCODE(f"{fields['method']} {fields['path']}")
    pairs = [f"{name.removesuffix('_ms')}={value}{'ms' * name.endswith('_ms')}" for name, value in fields.items()]
    rest = [pair for pair in pairs if pair.partition("=")[0] in _NAMED]
    return " ".join(
        [
            fields["time"],
            fields["client"] or "-",
            fields.get("key", "-"),
            request_line,
            str(fields["status"]),
            *rest,
            f"id={fields['id']}",
        ]
    )


_NAMED = (
    "model",
    "version",
    "digest",
    "received",
    "sent",
    "preprocess",
    "queue",
    "compute",
    "postprocess",
    "total",
    "requests",
    "trace",
)


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 3)


class _Once(logging.Handler):
    """Mixin of a log handler: reports once that lines cannot be written, for example on a full disk; requests go on."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        if not self._failed:
            self._failed = True
            _log.exception("the access log cannot be written; requests are answered all the same")


class _File(_Once, logging.handlers.WatchedFileHandler):
    """Handler that writes to a file; if it was renamed and cannot be reopened, each line tries again."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # of opening, which the library does not catch
            self.handleError(record)


class _ErrorStream(_Once, logging.StreamHandler[TextIO]):
    """Handler that writes to standard error."""
