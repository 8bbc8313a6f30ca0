"""Entry point of a gate: ``python -m pytrtplugins.mlops.pipeline.run_gate GATE FILE.json ... --output VERDICT.json``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ...errors import PipelineError
from ...utils.atomic import write_atomic
from ...utils.terminal import exit_on_error
from ...utils.text_formats import read_json
from .figures import read_figures
from .gate import Gate

__all__ = ["main", "verdict_text"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate a gate, print the comparisons, and write the verdict if it passes.

    Raises:
        SystemExit: always; code 0, 1 where the gate stops the pipeline, or 2 after an error.
    """
    with exit_on_error():
        parser = argparse.ArgumentParser(description="Compare figures with what they must hold.")
        parser.add_argument("gate")
        parser.add_argument("files", nargs="+", type=Path)
        parser.add_argument("--output", type=Path, required=True)
        parser.add_argument(
            "--passes", type=Path, help="where to write true or false; then a gate that stops ends with 0"
        )
        options = parser.parse_args(arguments)
        passes = _main(options.gate, options.files, options.output)
        if options.passes is not None:
            write_atomic(options.passes, b"true" if passes else b"false")
        sys.exit(0 if passes or options.passes is not None else 1)


def verdict_text(path: Path, *, within: Path | None = None) -> str:
    """The comparisons of a passed gate, from its output: ``map50 above 0.5 (net.map50 0.65 > 0.5)``.

    Raises:
        FormatError: the file is damaged.
        OSError: it cannot be read.
    """
    comparisons = read_json(path, within=within)["comparisons"]
    return "; ".join(f"{comparison['text']} ({comparison['found']})" for comparison in comparisons)


def _main(gate: str, files: Sequence[Path], output: Path) -> bool:
    figures = {}
    for path in files:
        if path.stem in figures:
            raise PipelineError(
                f"{path}: another input of this gate is called {path.stem} too; figures are found by that name"
            )
        if path.suffix == ".json":
            figures[path.stem] = read_figures(path)
    verdict = Gate.parse(gate).check(figures)
    for comparison in verdict.comparisons:
        print(f"{'holds' if comparison.holds else 'FAILS'}: {comparison.text} ({comparison.found})")
    if verdict.passes:
        write_atomic(output, json.dumps(asdict(verdict), indent=1).encode())
    else:
        print(f"The gate stops the pipeline: {gate}")
    return verdict.passes


if __name__ == "__main__":
    main()
