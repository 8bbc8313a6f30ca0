"""The command ``pytrt repair``, which repairs known faults of exporters."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Annotated

from ..model import read_onnx, write_onnx
from ..passes import REPAIRS, repair
from ..utils.atomic import check_target
from ..utils.listing import count_text, first_lines
from .app import app
from .facts import RepairFacts
from .shared import options
from .shared.option import option
from .shared.results import Result

__all__ = ["repair_model"]


Names = Annotated[list[str] | None, option("A,B", "Leave out these repairs; may be repeated.")]


@app.command("repair")  # type: ignore[untyped-decorator]
def repair_model(
    model: options.Model,
    output: Annotated[
        Path | None,
        option(
            "FILE.onnx",
            "Write the model to this file; without it the command only says what it found.",
            "--output",
            "-o",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, option("A,B", f"Run these repairs alone: {', '.join(REPAIRS)}. May be repeated.")
    ] = None,
    skip: Names = None,
    also: Annotated[
        list[str] | None, option("A,B", "Also run these optional repairs: free-batch. May be repeated.")
    ] = None,
) -> Result[RepairFacts]:
    """Find what exporters are known to write wrongly, say where and why, and mend it.

    Without -o nothing is written, and the exit code is 1 where a fault was found. A fault is what onnxruntime refuses, or computes
    otherwise than was meant; leftovers go without a change of the numbers.

    Examples: pytrt repair broken.onnx

    pytrt repair broken.onnx -o fixed.onnx

    pytrt repair broken.onnx -o fixed.onnx --also free-batch

    pytrt repair broken.onnx -o fixed.onnx --only channel-vectors,batchnorm-spatial
    """
    if output is not None:
        check_target(output)
    loaded, external_data = read_onnx(model)
    repaired = repair(loaded, only=_split_names(only), skip=_split_names(skip) or (), also=_split_names(also) or ())
    if output is not None:
        write_onnx(repaired.model, output, external_data=external_data)
    faults = sum(finding.fault for finding in repaired.findings)
    changes = sum(REPAIRS[finding.repair].on_request for finding in repaired.findings)
    choice = "".join(
        f" --{name} {shlex.quote(','.join(names))}"
        for name, names in (("only", only), ("skip", skip), ("also", also))
        if names
    )
    written = (
        f"pytrt inspect {output}"
        if output
        else f"pytrt repair {model}{choice} -o OUT.onnx"
        if repaired.findings
        else ""
    )
    file = None if output is None else str(output)
    facts = RepairFacts(
        str(model), file, faults, len(repaired.findings) - faults - changes, changes, repaired.findings, written
    )
    problem = f"{model}: {count_text(faults, 'fault')}" if faults else ""
    return Result(facts, _print, output is not None or not faults, problem)


def _split_names(texts: list[str] | None) -> list[str] | None:
    """Split names at commas, in one or several words."""
    return [name.strip() for text in texts for name in text.split(",")] if texts else None


def _print(facts: RepairFacts) -> None:
    order = list(REPAIRS)
    changes_text = f", {count_text(facts.changes, 'change')}" if facts.changes else ""
    print(
        f"{facts.model}: {count_text(facts.faults, 'fault')}, {count_text(facts.leftovers, 'leftover')}{changes_text}"
    )
    for (name, fault), group in itertools.groupby(
        sorted(facts.findings, key=lambda finding: (order.index(finding.repair), not finding.fault)),
        lambda finding: (finding.repair, finding.fault),
    ):
        findings = list(group)
        kind = "fault" if fault else "change" if REPAIRS[name].on_request else "leftover"
        print(f"\n{name} ({count_text(len(findings), kind)}): {REPAIRS[name].why}")
        print(*first_lines([f"{finding.node}: {finding.found} -> {finding.done}" for finding in findings]), sep="\n")
    if facts.findings or facts.file:
        print()
    if facts.file:
        print(f"{facts.file}: written")
    if facts.next:
        print(f"Do: {facts.next}")
