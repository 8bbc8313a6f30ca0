"""The largest rate: connections that ask again once they are answered, by wrk where it is installed, which takes the least CPU."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .load import Clients, Exchange, Load

CONNECTIONS = 16
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
_TURN = """
local requests, turn = {}, 0
for number = 1, %d do
  local file = io.open("%s/" .. number, "rb")
  requests[number] = file:read("*a")
  file:close()
end
request = function() turn = turn %% #requests + 1; return requests[turn] end
"""


@dataclass(frozen=True)
class Saturated:
    """What came back of a server that always has something to do.

    Attributes:
        answers: All of them right: of wrk with status 200, of this package's client with the bytes that are expected.
        seconds: In which they came.
        p50_ms: Latency.
        p99_ms: The same.
        cpu_s: Of what asked.
    """

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_s: float


def saturated(port: int, exchanges: Sequence[Exchange], clients: Clients, seconds: float) -> Saturated:
    """Ask without a pause.

    Raises:
        ValueError: an answer was wrong, or missing.
    """
    if shutil.which("wrk"):
        return _wrk(port, exchanges, seconds)
    found = clients.run(Load(port, exchanges, seconds, CONNECTIONS))
    if found.wrong or found.lost or not len(found.latencies_s):
        raise ValueError(f"{found.lost} requests lost, answers that were wrong by their status: {dict(found.wrong)}")
    return Saturated(
        len(found.latencies_s), found.seconds, found.quantile_ms(0.5), found.quantile_ms(0.99), found.cpu_s
    )


def _wrk(port: int, exchanges: Sequence[Exchange], seconds: float) -> Saturated:
    with tempfile.TemporaryDirectory() as name:
        for number, exchange in enumerate(exchanges, 1):
            (Path(name) / str(number)).write_bytes(exchange.request)
        script = Path(name) / "turn.lua"
        script.write_text(_TURN % (len(exchanges), name))
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "--latency", "-s", str(script)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = subprocess.run(
            [*command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True
        ).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = re.search(r"(\d+) requests in ([\d.]+)(\w+)", said)
    errors = re.findall(r"(Non-2xx.*|Socket errors.*)", said)
    if done is None or not int(done[1]) or errors:
        raise ValueError(f"wrk: {'; '.join(errors) or said[-300:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Saturated(
        int(done[1]), float(done[2]) * _UNITS[done[3]] / 1e3, _quantile(said, "50%"), _quantile(said, "99%"), cpu
    )


def _quantile(said: str, part: str) -> float:
    found = re.search(rf"{part} +([\d.]+)(\w+)", said)
    if found is None:
        raise ValueError(f"wrk said no {part} latency: {said[-300:]}")
    return float(found[1]) * _UNITS[found[2]]
