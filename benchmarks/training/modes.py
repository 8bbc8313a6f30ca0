"""Photos a second of one rank and of several, in each way to share variables and in other libraries' loops.

`independent`, which shares nothing, is the ceiling. Each rank has ``--batch`` photos a step. Before a row counts, its first losses are
compared: with those of `replicated`, or of one rank, and the ranks' weights with each other. A group of processes measures row after row;
if a row fails or takes too long, its group is ended, and another one goes on behind it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pytrtplugins.utils.numbers import FloatRange, IntRange

from . import subject
from .group import Group, forget_choices
from .measuring import add_common, is_chosen, measure
from .steps import NETWORKS

CLOSE = 0.1  # relative difference of the first losses
EQUAL = 1e-6  # relative difference of the ranks' weights
ONE, REPLICATED, INDEPENDENT = "one rank", "replicated", "independent"
COMPACT = "replicated, compact_gradient_transfer"
GRAPHS = ", CUDA graphs"
AHEAD = (INDEPENDENT, REPLICATED, "parameter_server")  # which differ in what the compiler makes
PROGRAM = "benchmarks.training.rank"


@dataclass(frozen=True)
class Subject:
    """A way to train.

    Fields:
        name: On the page.
        settings: Of the engine, beside those of the command line.
        peer: Another library's loop, which shares variables in its own way.
        whole: Whether its losses follow those of `replicated` in later steps, too.
        equal: Whether its ranks' weights are those of each other.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    peer: str = ""
    whole: bool = True
    equal: bool = True


SHARED = (
    Subject(REPLICATED),
    Subject(INDEPENDENT, {"variable_update": "independent"}, equal=False),
    Subject("Lightning Fabric, DDP", peer="fabric"),
    Subject("accelerate, DDP", peer="accelerate"),
    Subject("distributed_replicated", {"variable_update": "distributed_replicated"}),
    Subject("replicated, staged_vars", {"staged_vars": True}, whole=False),
    Subject(COMPACT, {"compact_gradient_transfer": True}),
    Subject("parameter_server", {"variable_update": "parameter_server"}),
)
CAPTURED = (
    Subject(REPLICATED + GRAPHS, {"cuda_graphs": True}),
    Subject(COMPACT + GRAPHS, {"compact_gradient_transfer": True, "cuda_graphs": True}),
    Subject(INDEPENDENT + GRAPHS, {"variable_update": "independent", "cuda_graphs": True}, equal=False),
)
"""These are captured on GPUs only."""


@dataclass
class Row:
    """Figures of a row; ``reason`` says why there are none.

    Fields:
        network: Which.
        name: Of the way to train.
        ranks: How many.
        rate: Photos a second of all of them.
        step_ms: Time of a step.
        memory_gb: Of rank 0's GPU.
        difference: Of its first losses from those that they are compared with.
        spread: How far the ranks' weights are apart after these steps.
        scaling: The rate relative to that of one rank, which launches its steps in the same way.
        own: Whether it is this project's.
    """

    network: str
    name: str
    ranks: int
    rate: float = 0.0
    step_ms: float = 0.0
    memory_gb: float = 0.0
    difference: float = 0.0
    spread: float = 0.0
    scaling: float = 0.0
    own: bool = True
    reason: str = ""


Task = tuple[str, Subject, int]  # network, way, ranks


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page of a record."""
    given = _parse(arguments)
    return measure("modes", given, arguments, lambda *_: _rows(given), _line, batch=given.batch, input=given.input)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training modes", description=__doc__)
    add_common(parser)
    add = parser.add_argument
    add("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="compact, voc (default: both)")
    add("--gpus", type=IntRange(2, 64), default=2, help="ranks of the rows beside that of one (default: %(default)s)")
    add("--batch", type=IntRange(1, 4096), default=64, help="photos of a rank's step (default: %(default)s)")
    add("--input", type=IntRange(32, 4096), default=416, help="of the network, in pixels (default: %(default)s)")
    add("--precision", choices=("fp32", "tf32", "bf16"), default="", help="(bf16 on a GPU, fp32 on a CPU)")
    add("--compile", action=argparse.BooleanOptionalAction, help="compile the step (on a GPU: yes)")
    add(
        "--ahead", action="store_true", help="compile for all rows at once, in processes of their own, before the first"
    )
    add(
        "--longest",
        type=FloatRange(1, 86_400),
        default=180.0,
        help="end a row that takes more seconds, with its compiling (default: %(default)s)",
    )
    return parser.parse_args(arguments)


def tasks(given: argparse.Namespace) -> list[Task]:
    """The rows, in the order in which they are measured; without ``-k`` all, else also what the others are compared with."""
    captured = CAPTURED if given.device.startswith("cuda") else ()
    alone = [Subject(ONE), *(Subject(ONE + GRAPHS, {"cuda_graphs": True}) for _ in captured[:1])]
    own = [each for each in SHARED if not each.peer]
    peers = [each for each in SHARED if each.peer]
    several = [*own[:2], *peers, *captured, *own[2:]]
    found = [(each, 1) for each in alone] + [(each, given.gpus) for each in several]
    needed = {ONE, REPLICATED}
    if any(is_chosen(given, each.name) for each in captured):
        needed.add(ONE + GRAPHS)
    return [
        (network, each, ranks)
        for each, ranks in found
        if is_chosen(given, each.name) or each.name in needed
        for network in given.networks
    ]


def _rows(given: argparse.Namespace) -> Iterator[Row]:
    begin, known = time.monotonic(), dict[tuple[str, str], dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="modes-") as folder:
        if given.ahead:
            _compile_ahead(given, Path(folder), begin)
        for (network, each, ranks), found in _measured(given, Path(folder), begin):
            row = Row(network, each.name, ranks, own=not each.peer, reason=found.get("reason", ""))
            if not row.reason:
                _fill(row, each, found, known)
            known[network, each.name] = found
            yield row


def _measured(given: argparse.Namespace, folder: Path, begin: float) -> Iterator[tuple[Task, dict[str, Any]]]:
    """What the ranks find of each task; a group of processes for one rank, one for several, and one more behind each failure."""
    left, groups = tasks(given), 0
    while left:
        ranks, groups = left[0][2], groups + 1
        some = [task for task in left if task[2] == ranks]
        with Group(PROGRAM, _job(given, some, begin), ranks, folder / f"group-{groups}") as group:
            for number, task in enumerate(some):
                try:
                    found = group.result(number, given.longest)
                except RuntimeError as error:
                    found = {"reason": str(error), "ended": True}
                if found.get("late"):
                    print(f"the rest is left out: {given.until:g} s are over", file=sys.stderr)
                    return
                left.remove(task)
                yield task, found
                if found.get("ended"):
                    break


def _compile_ahead(given: argparse.Namespace, folder: Path, begin: float) -> None:
    """Take first steps in all ways that the compiler sees as different, at the same time: later it finds its results on the disk.

    What fails here fails again where it is measured, and is told there.
    """
    wanted = [task for task in tasks(given) if task[1].name in AHEAD]
    with ExitStack() as stack:
        groups = list[Group]()
        for number, task in enumerate(wanted):
            job, place = _job(given, [task], begin) | {"seconds": 0}, folder / f"ahead-{number}"
            groups.append(stack.enter_context(Group(PROGRAM, job, task[2], place, beside=len(wanted))))
        for group in groups:
            group.wait(max(0.0, given.longest - (time.monotonic() - begin)))
    forget_choices()
    print(f"compiled ahead in {time.monotonic() - begin:.0f} s", file=sys.stderr)


def _job(given: argparse.Namespace, some: Sequence[Task], begin: float) -> dict[str, Any]:
    cuda = given.device.startswith("cuda")
    common = {
        "precision": given.precision or ("bf16" if cuda else "fp32"),
        "compile": cuda if given.compile is None else given.compile,
    }
    return {
        "device": given.device,
        "batch": given.batch,
        "input": given.input,
        "seconds": given.seconds,
        "until": time.time() + given.until - (time.monotonic() - begin),
        "tasks": [asdict(each) | {"network": network, "settings": common | each.settings} for network, each, _ in some],
    }


def _fill(row: Row, each: Subject, found: dict[str, Any], known: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The figures of a row, if its losses and weights are what they should be."""
    row.spread = found["spread"]
    losses = {
        name: known[row.network, name].get("losses") for name in (ONE, REPLICATED) if (row.network, name) in known
    }
    try:
        row.difference = _difference(row, each, found["losses"], losses)
    except LookupError:
        row.reason = "there is nothing to compare its first losses with"
    else:
        if not row.difference < CLOSE:
            row.reason = f"its first losses differ by {row.difference:.2g} from those that they are compared with"
        elif each.equal != (row.spread < EQUAL) and row.ranks > 1:
            row.reason = f"its ranks' weights are apart by {row.spread:.2g}"
    if row.reason:
        return
    row.rate, row.step_ms, row.memory_gb = found["rate"], found["step_ms"], found["memory_gb"]
    like = known.get((row.network, ONE + GRAPHS * row.name.endswith(GRAPHS)), found if row.ranks == 1 else {})
    row.scaling = row.rate / like["rate"] if like.get("rate") else 0.0


def _difference(row: Row, each: Subject, found: list[float], known: dict[str, list[float] | None]) -> float:
    """How far first losses are from those of the same steps elsewhere.

    Rank 0 of ranks that share nothing does what one rank does. `replicated` normalizes its loss by the boxes of all ranks: of its first
    step the parts of the loss have the same ratios as those of one rank. All others do what `replicated` does; with late gradients, in the
    first step.
    """
    if row.name == ONE:
        return 0.0
    alone, replicated = known.get(ONE), known.get(REPLICATED)
    if row.ranks == 1 or each.settings.get("variable_update") == "independent":
        if not alone:
            raise LookupError(ONE)
        return subject.largest_difference(found, alone)
    if row.name == REPLICATED or not replicated:
        if not alone:
            raise LookupError(ONE)
        return subject.largest_difference(_shares(found), _shares(alone))
    steps = slice(None) if each.whole else slice(0, 3)
    return subject.largest_difference(found[steps], replicated[steps])


def _shares(losses: Sequence[float]) -> list[float]:
    """The parts of the first step's loss as shares of their sum."""
    return [each / sum(losses[:3]) for each in losses[:3]]


def _line(row: Row) -> str:
    if row.reason:
        return f"{row.network}, {row.name}: {row.reason}"
    return f"{row.network}, {row.name}, {row.ranks} ranks: {row.rate:,.0f} photos/s, {row.scaling:.3f} x one rank"


if __name__ == "__main__":
    sys.exit(main())
