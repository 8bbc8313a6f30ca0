"""The command ``pytrt serve-top``."""

from __future__ import annotations

import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from ...errors import UnavailableError, UsageError
from ...serving.server_load import ModelLoad, Reading, ServerLoad, load_between
from ...utils.numbers import FloatRange
from ...utils.optional import require
from ..app import app
from ..shared.number import number
from ..shared.option import choice, typer
from ..shared.results import Result, current_output
from ..shared.tables import console
from .key_presses import KeyPresses

if TYPE_CHECKING:
    from rich.console import Group


__all__ = ["command"]

KEY = "PYTRT_API_KEY"
_TIMEOUT_S = 10
_MOST_BYTES = 16 << 20
_COLUMNS = (
    *("model", "requests/s", "errors/s", "batch", "queue", "in flight", "p50 ms", "p99 ms", "waiting", "computing"),
    *("preprocess ms", "postprocess ms"),
)


@app.command("serve-top")  # type: ignore[untyped-decorator]
def command(
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="Address of a server that pytrt serve runs.", show_default=False)
    ] = "http://localhost:8000",
    interval: Annotated[
        float, number(FloatRange(0.1, 3600), "Time between two readings of the metrics.", metavar="SECONDS")
    ] = 2.0,
    once: Annotated[bool, choice("Print one table, and end.", "--once")] = False,
) -> Result[ServerLoad] | None:
    """Show the load of a server, as a table that is renewed until q or Ctrl-C ends it; default: http://localhost:8000.

    Rates, batches and times are those between two readings of the server's /metrics. Through a pipe, one table follows the other; --json
    gives one. A server with keys wants one that may read metrics, in the environment variable PYTRT_API_KEY.

    Examples: pytrt serve-top

    pytrt serve-top https://photos.example:8443 --interval 10

    pytrt serve-top --once --json
    """
    address = _address(url)
    before = _read(address)
    if once or current_output().command is not None:
        time.sleep(interval)
        return Result(load_between(before, _read(address), address), _print)
    if sys.stdout.isatty():
        _show_live(address, before, interval)
        return None
    while True:
        time.sleep(interval)
        after = _read(address)
        _print(load_between(before, after, address))
        sys.stdout.flush()
        before = after


def _address(url: str) -> str:
    """The address of a server, from ``localhost:8000`` too."""
    full_url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full_url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid or not full_url.isascii() or not full_url.isprintable() or " " in full_url:
        raise UsageError(f"expected an address, found {url[:100]!r}.\nDo: pytrt serve-top http://localhost:8000")
    return full_url.rstrip("/")


def _read(address: str) -> Reading:
    """Read a server's metrics."""
    request = urllib.request.Request(f"{address}/metrics", headers=_headers())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # what is measured is the server
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            text = answer.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            hint = f"{KEY}=KEY pytrt serve-top {address}" if error.code in (401, 403) else f"curl {address}/metrics"
            raise UnavailableError(f"{address}/metrics: {error.code} {error.reason}.\nDo: {hint}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise UnavailableError(
            f"{address}: no server answers: {reason}.\nDo: pytrt serve MODEL, or pytrt serve-top http://HOST:PORT"
        ) from None
    if len(text) > _MOST_BYTES:
        raise UsageError(f"{address}/metrics: more than {_MOST_BYTES >> 20} MiB")
    try:
        return Reading(text.decode("utf-8", "replace"), time.monotonic())
    except UsageError as error:
        raise UsageError(f"{address}/metrics: {error}.\nDo: pytrt serve-top http://HOST:PORT") from None


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY, "")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"{KEY}: expected the key as pytrt serve-key printed it")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _show_live(address: str, before: Reading, interval: float) -> None:
    """Renew a table until q or Ctrl-C; a server that is gone for a while is waited for."""
    try:
        _refresh_until_quit(address, before, interval)
    except OSError:
        if sys.stdout.isatty():
            raise
    if not sys.stdout.isatty():  # closed, or its connection was cut
        raise BrokenPipeError


def _refresh_until_quit(address: str, before: Reading, interval: float) -> None:
    live = require("rich.live", extra="cli")
    shown = f"{address}: the first table comes in {interval:g} s; q ends"
    with live.Live(shown, console=console(), screen=True, auto_refresh=False) as display, KeyPresses() as keys:
        display.refresh()
        try:
            while "q" not in keys.wait(interval).lower() and sys.stdout.isatty():
                try:
                    after = _read(address)
                except (UnavailableError, UsageError) as error:
                    display.update(require("rich.text", extra="cli").Text(str(error)), refresh=True)
                    continue
                display.update(_table(load_between(before, after, address)), refresh=True)
                before = after
        except (KeyboardInterrupt, EOFError):
            return


def _print(load: ServerLoad) -> None:
    console().print(_table(load))


def _table(load: ServerLoad) -> Group:
    text = require("rich.text", extra="cli").Text
    table = require("rich.table", extra="cli").Table(box=require("rich.box", extra="cli").SIMPLE)
    for index, column in enumerate(_COLUMNS):
        table.add_column(column, justify="right" if index else "left", overflow="fold")
    names = [model_load.name for model_load in load.models]
    for model_load in load.models:
        name = model_load.name if names.count(model_load.name) == 1 else f"{model_load.name} {model_load.version}"
        table.add_row(*map(text, _model_cells(name, model_load)), style="" if model_load.ready else "yellow")
    group: Group = require("rich.console", extra="cli").Group(text(_head(load), style="bold"), table)
    return group


def _head(load: ServerLoad) -> str:
    """The server in one line."""
    parts = [load.url, f"{load.seconds:.1f} s"]
    parts.append("processes: " + ", ".join(f"{count} {role}" for role, count in load.processes.items() if count))
    again = ", ".join(f"{count} {role}" for role, count in load.restarts.items() if count)
    if again:
        parts.append(f"started again: {again}")
    for gpu in load.gpus:
        memory = f"{gpu.used_bytes / 2**30:.1f} of {gpu.total_bytes / 2**30:.1f} GiB"
        parts.append(f"GPU {gpu.index} {gpu.name}: {gpu.utilization:.0%}, {memory}")
    return "; ".join(parts)


def _model_cells(name: str, model: ModelLoad) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.0%}"

    def figure(value: float | None, digits: int) -> str:
        return "–" if value is None else f"{value:,.{digits}f}"

    return (
        name if model.ready else f"{name} (not ready)",
        figure(model.succeeded, 1),
        figure(model.failed, 1),
        figure(model.batch, 1),
        str(model.queue),
        str(model.in_flight),
        figure(model.p50_ms, 2),
        figure(model.p99_ms, 2),
        share(model.waiting),
        share(model.computing),
        figure(model.preprocess_ms, 2),
        figure(model.postprocess_ms, 2),
    )
