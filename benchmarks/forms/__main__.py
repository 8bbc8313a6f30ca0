"""Draw forms of all ONNX operators and of onnxruntime's own, run them on engines and through rewrites, compare with oracles.

python -m benchmarks.forms                          all forms on all engines: some minutes on 2 cores
python -m benchmarks.forms Resize Upsample --show wrong
python -m benchmarks.forms --runner cpu --every 14
python -m benchmarks.forms com.microsoft --runner cpu reference cuda
python -m benchmarks.forms com.microsoft --damaged --every 9 --runner onnxruntime --show crashed failed unnamed
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from itertools import islice
from pathlib import Path

from pytrtplugins.utils.numbers import IntRange

from ..networks import ROOT
from ..node_tests import CRASHED, FAILED, HUNG, PASSED, REFUSED, WRONG, Outcome, run_cases
from ..pages.region import fill_table
from .damage import damaged
from .form import draw_forms
from .kept import load_forms
from .report import coverage_table, dispute_table, operator_table, packages, summary
from .runners import DOCUMENTED, INT8, RUNNERS, run_form, takes


def main() -> int:
    """Parse arguments, run, print or write."""
    arguments = _arguments()
    if arguments.damaged:
        drawn = islice(draw_forms(arguments.seed, arguments.operators), 0, None, arguments.every)
        forms = [each for form in drawn for each in damaged(form)]
    else:
        forms = load_forms(arguments.seed, arguments.operators, arguments.every, arguments.processes)
    print(f"{len(forms)} forms, {sum(form.expected is not None for form in forms)} with an oracle", flush=True)
    outcomes: dict[str, dict[str, Outcome]] = {}
    for runner in arguments.runner:
        begin = time.perf_counter()
        run = partial(run_form, runner=runner)
        taken = [form for form in forms if takes(runner, form)]
        outcomes[runner] = {form.name: outcome for form, outcome in run_cases(taken, run, arguments.processes)}
        print(f"{runner}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        for form in taken:
            outcome = outcomes[runner][form.name]
            unnamed = outcome.kind == REFUSED and outcome.values == "unnamed" and "unnamed" in arguments.show
            if outcome.kind in arguments.show or unnamed:
                print(f"{runner}\t{form.name}\t{outcome.kind}\t{','.join(form.tags)}\t{outcome.reason}", flush=True)
    if "disputed" in arguments.show:
        for form in forms:
            if form.expected is None:
                print(f"oracles\t{form.name}\t{','.join(form.tags)}\t{form.source}")
    print(summary(forms, outcomes))
    if arguments.write:
        head = f"{len(forms)} forms, seed {arguments.seed}; {packages()}."
        fill_table(arguments.docs, "forms", f"{head}\n\n{summary(forms, outcomes)}")
        fill_table(arguments.docs, "forms operators", operator_table(forms, outcomes))
        fill_table(arguments.docs, "forms coverage", coverage_table(forms))
        fill_table(arguments.docs, "forms disputes", dispute_table(forms))
    bad = (WRONG, FAILED, CRASHED, HUNG)
    return int(any(outcome.kind in bad for found in outcomes.values() for outcome in found.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.forms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("operators", nargs="*", help="only forms of these operators, such as Conv or com.microsoft.Gelu, or domains")
    add(
        "--runner",
        nargs="+",
        choices=[*RUNNERS, *INT8],
        default=[*RUNNERS, *INT8],
        help="engines and rewrites (default: all)",
    )
    add("--seed", type=IntRange(0, 2**31), default=0, help="draws other forms (default: %(default)s)")
    add("--every", type=IntRange(1, 10**6), default=1, metavar="N", help="only every N-th form (default: all)")
    add("--damaged", action="store_true", help="run each form's damaged kin: inputs and attributes left out or changed")
    add("--processes", type=IntRange(1, 1024), default=os.cpu_count(), help="forms at a time (default: %(default)s)")
    kinds = [WRONG, DOCUMENTED, FAILED, CRASHED, HUNG, REFUSED, PASSED, "unnamed", "disputed"]
    add("--show", nargs="*", default=[], choices=kinds, help="print forms that ended so, with the reason")
    add("--write", action="store_true", help="write the tables of the page")
    add(
        "--docs",
        type=Path,
        default=ROOT / "docs" / "reference" / "operators.md",
        help="the page (default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
