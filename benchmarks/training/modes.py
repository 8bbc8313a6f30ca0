"""Photos a second of one rank and of several, in each way to share variables; `independent`, which shares nothing, is the ceiling.

Each rank has ``--batch`` photos a step. The rows are run by torchrun, each in processes of its own. The losses of each row's first steps
are compared with those of `replicated`; those of `independent` and of staged gradients in the first step only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytrtplugins.utils.files import write_atomic
from pytrtplugins.utils.numbers import Whole

from . import page, subject
from .steps import NETWORKS

CLOSE = 0.1  # relative difference of the first losses
SECONDS_TO_START = 300
MODES: dict[str, dict[str, Any]] = {
    "replicated": {},
    "replicated, staged": {"variable_update": "replicated", "staged_vars": True},
    "parameter_server": {"variable_update": "parameter_server"},
    "distributed_replicated": {"variable_update": "distributed_replicated"},
    "independent": {"variable_update": "independent"},
}
OTHERWISE = ("replicated, staged", "independent")  # whose later losses are others


@dataclass
class Row:
    """Figures of a row; ``reason`` says why there are none. ``scaling`` is relative to one rank."""

    network: str
    name: str
    ranks: int
    rate: float = 0.0
    step_ms: float = 0.0
    memory_gb: float = 0.0
    difference: float = 0.0
    scaling: float = 0.0
    reason: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page of a record; one rank of a row, where torchrun started this."""
    given = _parse(arguments)
    if given.rank_of:
        return _rank(given)
    return page.measure(
        "modes", given, arguments, lambda *_: _rows(given), _line, _write, batch=given.batch, input=given.input
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training modes", description=__doc__)
    page.add_common(parser)
    add = parser.add_argument
    add("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="compact, voc (default: both)")
    add("--gpus", type=Whole(2, 64), default=2, help="ranks of the rows beside that of one (default: %(default)s)")
    add("--batch", type=Whole(1, 4096), default=64, help="photos of a rank's step (default: %(default)s)")
    add("--input", type=Whole(32, 4096), default=416, help="of the network, in pixels (default: %(default)s)")
    add("--precision", choices=("fp32", "tf32", "bf16"), default="", help="(bf16 on a GPU, fp32 on a CPU)")
    add("--compile", action="store_true", help="compile the step")
    add("--rank-of", default="", help=argparse.SUPPRESS)
    add("--result", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _rows(given: argparse.Namespace) -> Iterator[Row]:
    begin = time.monotonic()
    for network in given.networks:
        expected: list[float] = []
        alone = 0.0
        rows = [("one rank", "replicated", 1), *((name, name, given.gpus) for name in MODES)]
        for name, mode, ranks in rows:
            needed = mode == "replicated"  # the others are compared with it
            if given.k.lower() not in name.lower() and not needed:
                continue
            if time.monotonic() - begin > given.until:
                print(f"the rest is left out: {given.until:g} s are over", file=sys.stderr)
                return
            row = Row(network, name, ranks)
            try:
                found = _launch(given, network, mode, ranks)
                row.rate, row.step_ms, row.memory_gb = found["rate"], found["step_ms"], found["memory_gb"]
                if ranks > 1:
                    expected = expected or found["losses"]
                    kept = slice(0, 3) if mode in OTHERWISE else slice(None)
                    row.difference = subject.largest_difference(found["losses"][kept], expected[kept])
                    if not row.difference < CLOSE:
                        row.reason = f"its first losses differ from those of replicated by {row.difference:.2g}"
                alone = alone or row.rate
                row.scaling = row.rate / alone
            except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                row.reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[-1]}"
            yield row


def _launch(given: argparse.Namespace, network: str, mode: str, ranks: int) -> dict[str, Any]:
    """Run a row's ranks; what rank 0 found."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        options = ["--rank-of", mode, "--networks", network, "--result", result, "--device", given.device]
        for name in ("batch", "input", "seconds"):
            options += [f"--{name}", getattr(given, name)]
        options += ["--precision", given.precision] if given.precision else []
        options += ["--compile"] if given.compile else []
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        line = [*torchrun, "-m", "benchmarks.training.modes", *map(str, options)]
        paths = os.pathsep.join([str(page.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        limit = SECONDS_TO_START + 5 * given.seconds
        done = subprocess.run(
            line, env=os.environ | {"PYTHONPATH": paths}, cwd=page.ROOT, capture_output=True, text=True, timeout=limit
        )
        if done.returncode or not result.exists():
            errors = [text for text in done.stderr.splitlines() if "Error" in text]
            raise RuntimeError((errors or ["torchrun failed"])[0])
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def _rank(given: argparse.Namespace) -> int:
    """One rank of a row."""
    import torch

    from training.ranks import join
    from training.settings import Settings

    cuda = given.device == "cuda"
    how = {
        "precision": given.precision or ("bf16" if cuda else "fp32"),
        "compile": given.compile,
        **MODES[given.rank_of],
    }
    ranks = join(given.device, Settings(**how))
    torch.backends.cudnn.benchmark = True
    loop = subject.make_loop(given.networks[0], given.batch, [given.input], ranks, **how)
    losses = subject.first_losses(loop, loop.advance)
    steps, seconds = subject.timed(loop.advance, subject.wait_for(ranks.device), given.seconds, ranks)
    loop.check()
    found = {
        "losses": losses,
        "rate": steps * given.batch * ranks.world / seconds,
        "step_ms": 1e3 * seconds / steps,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else 0.0,
    }
    if ranks.is_first:
        write_atomic(given.result, json.dumps(found).encode())
    ranks.leave()
    return 0


def _line(row: Row) -> str:
    if row.reason:
        return f"{row.network}, {row.name}: {row.reason}"
    return f"{row.network}, {row.name}, {row.ranks} ranks: {row.rate:,.0f} photos/s, {row.scaling:.3f} x one rank"


def table(rows: page.Rows) -> str:
    """The rows, in the order in which they ran."""
    lines = [
        "| network | variables | ranks | photos/s | times one rank | ms | memory GB of a rank | first losses against replicated |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in (each for each in rows if not each["reason"]):
        lines.append(
            f"| {row['network']} | {row['name']} | {row['ranks']} | {row['rate']:,.0f} | {row['scaling']:.3f} "
            f"| {row['step_ms']:.2f} | {row['memory_gb']:.1f} | {row['difference']:.1e} |"
        )
    return page.listed(lines, rows)


def _write(given: argparse.Namespace, record: dict[str, Any]) -> int:
    bars = [
        page.Bar(f"{row['network']}, {row['name']}", row["rate"], f"{row['rate']:,.0f}", True)
        for row in record["rows"]
        if not row["reason"]
    ]
    return page.write(given, record, table, bars, "photos/s")


if __name__ == "__main__":
    sys.exit(main())
