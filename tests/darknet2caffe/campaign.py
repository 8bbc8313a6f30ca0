"""The campaign: many more random networks and damaged files than the tests have time for, and what became of them.

    python -m tests.darknet2caffe.campaign --networks 5000 --blind 2000 --mutations 20000

Nothing is written, unless --save names a folder for the networks and files that failed. Ends with 1 if anything did.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pytrtplugins.errors import CfgError
from tests.darknet2caffe.comparison import LayerResult, compare
from tests.darknet2caffe.mutations import Outcome, attempt, mutations
from tests.darknet2caffe.strategies import Case, cases, wild_cases
from tests.oracles.darknet_worker import DarknetWorker

T = TypeVar("T")
_CHUNK = 100  # hypothesis varies what it drew: many short runs differ more than a long one


class Networks:
    """What became of drawn networks.

    Args:
        worker: libdarknet.
        folder: For the files of one case.
    """

    def __init__(self, worker: DarknetWorker, folder: Path) -> None:
        self._worker, self._folder = worker, folder
        self.count: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.kinds: dict[str, list[LayerResult]] = {}
        self.activations: Counter[str] = Counter()

    def __call__(self, case: Case) -> None:
        """Compare one; raises what is wrong with it."""
        try:
            results = compare(case, self._worker, self._folder)
        except CfgError as error:
            if not case.wild:
                raise
            self.count["blind, refused"] += 1
            self.refused[_reason(error)] += 1
            return
        self.count["blind, converted" if case.wild else "drawn"] += 1
        self.count["layers"] += len(results)
        for result in results:
            self.kinds.setdefault(result.kind, []).append(result)
            self.activations.update([result.activation] if result.activation else [])

    def lines(self) -> Iterator[str]:
        """The summary."""
        yield f"{self.count['drawn']:,} networks and {self.count['blind, converted']:,} with blind values are right:"
        yield f"{self.count['layers']:,} layers. {self.count['blind, refused']:,} with blind values are refused."
        yield f"\n{'layer':38} {'count':>7} {'alone':>9} {'end to end':>11}   apart*"
        for kind, results in sorted(self.kinds.items()):
            alone, whole = (_largest(results, key) for key in ("alone", "end_to_end"))
            apart = sum(result.end_to_end is None for result in results)
            yield f"{kind:38} {len(results):7,} {alone:9.1e} {whole:11.1e} {apart or '':>8}"
        every = [result for results in self.kinds.values() for result in results]
        for key, told in (("alone", "layer by layer"), ("end_to_end", "end to end")):
            worst = max(every, key=lambda result: getattr(result, key) or 0.0, default=None)
            if worst is not None:
                yield f"largest error {told}: {getattr(worst, key) or 0.0:.1e} ({worst.name})"
        yield "* compared alone only: after an l2norm of zeros, or where the network magnifies the sixth digit of the image"
        yield "\nactivations: " + ", ".join(f"{name} {count:,}" for name, count in self.activations.most_common())
        yield "\nrefused, by reason:"
        yield from (f"{count:7,}  {reason}" for reason, count in self.refused.most_common())


class Mutations:
    """What became of damaged files.

    Args:
        folder: For the files of one case.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.outcomes: list[Outcome] = []

    def __call__(self, mutation: Any) -> None:
        """Try one; raises what is none of our errors."""
        self.outcomes.append(attempt(mutation, self._folder))

    def lines(self) -> Iterator[str]:
        """The summary."""
        yield f"{len(self.outcomes):,} damaged files:"
        results = Counter(outcome.result for outcome in self.outcomes)
        yield from (f"{count:7,}  {result}" for result, count in results.most_common())
        yield f"longest: {max((o.seconds for o in self.outcomes), default=0.0):.2f} s of processor time"
        yield f"largest: {max((o.bytes for o in self.outcomes), default=0) / 2**20:.1f} MB above what the process had"


def _largest(results: Sequence[LayerResult], key: str) -> float:
    return max((getattr(result, key) or 0.0 for result in results), default=0.0)


def _reason(error: CfgError) -> str:
    """What a refusal says, without its numbers."""
    text = str(error).partition("]: ")[2].partition("\n")[0].partition(". ")[0]
    text = re.sub(r"\([^)]*\)+", "", re.sub(r"-?[0-9][0-9,.]*", "n", text))
    return re.sub(r"(, n)+|\s+", lambda match: " " if match[0].isspace() else ", n", text)[:90].strip()


def _each(
    strategy: st.SearchStrategy[T], count: int, first_seed: int, name: str, use: Callable[[T], None]
) -> list[Any]:
    """Draw examples and use each; returns the failures: example, traceback."""
    failures: list[Any] = []
    start, done = time.monotonic(), 0
    for chunk in range(0, count, _CHUNK):

        @seed(first_seed + chunk)
        @settings(
            max_examples=min(_CHUNK, count - chunk),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def one(example: T) -> None:
            nonlocal done
            done += 1
            try:
                use(example)
            except Exception as error:
                failures.append((example, "".join(traceback.format_exception(error))))
                print(f"\n{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
            if sys.stderr.isatty():
                told = f"\r{name}: {done:,} of {count:,}, {len(failures)} failed, {time.monotonic() - start:.0f} s "
                print(told, end="", file=sys.stderr, flush=True)

        one()
    print(f"\n{name}: {done:,} tried, {len(failures)} failed, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return failures


def _save(failures: Sequence[Any], folder: Path) -> None:
    """Write what failed: the traceback, the example and its text."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (example, told) in enumerate(failures):
        text = example.text if isinstance(example, Case) else example.cfg.decode(errors="replace")
        (folder / f"{number}.txt").write_text(f"{told}\n{example!r}\n\n{text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=100, help="random networks, compared with libdarknet")
    parser.add_argument("--blind", type=int, default=50, help="networks whose last section has blind values")
    parser.add_argument("--mutations", type=int, default=200, help="damaged files")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws others")
    parser.add_argument("--save", type=Path, help="folder for what failed")
    chosen = parser.parse_args(arguments)
    first = chosen.seed * 10_000_000
    with tempfile.TemporaryDirectory() as name, DarknetWorker() as worker:
        networks, damaged = Networks(worker, Path(name)), Mutations(Path(name))
        failures = _each(cases(), chosen.networks, first, "networks", networks)
        failures += _each(wild_cases(), chosen.blind, first + 1, "blind values", networks)
        failures += _each(mutations(), chosen.mutations, first + 2, "damaged files", damaged)
    print("\n".join([f"seed {chosen.seed}", *networks.lines(), "", *damaged.lines(), "", f"{len(failures)} failed"]))
    if chosen.save:
        _save(failures, chosen.save)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
