"""Train samples/models/yolov2-animals afresh within a given time: choose between recipes on held-back photos, then train on all of them.

It is made for a GPU that is there for some minutes only:

    python samples/train_animals.py --data voc12-animals --teacher yolo-fastest-1.1-xl.cfg --seconds 480

Two short runs come first: one compiles, and one measures how many photos a second this machine trains and what a start costs, so that
everything ends in its time: starts, schedules and measurements. Every recipe then
trains without an eighth of the photos, and is measured on these; the best of them trains on all photos. choice.md has the figures.
The validation split is looked at once, at the end, and decides nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median

import torch

from pytrtplugins.errors import PytrtpluginsError, UsageError
from pytrtplugins.utils.files import write_atomic
from pytrtplugins.utils.numbers import Real, Whole
from yolov2_training.curve import read_log
from yolov2_training.data import open_data

PROGRAM = Path(__file__).with_name("train_yolov2.py")
COMMON = ("--stages", "24,48,96,160,208,256", "--imitation", "12", "--balance", "0.5", "--evaluations", "1")
RECIPES: dict[str, tuple[str, ...]] = {
    "as shipped": (),
    "rare classes as often as common ones": ("--balance", "1"),
    "mosaics nearly to the end": ("--close", "0.95"),
}
"""What differs from ``COMMON``. A mosaic takes an animal out of its meadow, by which sheep are told from horses."""
HELD_BACK = "0.12"
VALIDATION = "val.txt"
PROBED = 300  # steps of the run that measures the speed
CHOICE = 0.5  # share of the training time in which the recipes are compared; the rest is for the last run
SPARE = 0.05  # share of the time that is kept for what takes longer than the first run says


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; the exit status."""
    options = parse(arguments)
    try:
        train(options)
    except (PytrtpluginsError, subprocess.CalledProcessError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", nargs="+", required=True, help="as for train_yolov2.py")
    add("--teacher", help="darknet network to imitate, as for train_yolov2.py")
    add("--out", type=Path, default=Path("runs/animals"), help="where results go (%(default)s)")
    add("--seconds", type=Real(1, 1_000_000), default=480.0, help="for everything together (%(default)s)")
    add("--batch", type=Whole(1, 4096), default=64, help="photos a step (%(default)s)")
    add("more", nargs="*", help="after --: further options of each run of train_yolov2.py")
    options = parser.parse_args(arguments)
    if torch.cuda.is_available():
        options.more.append("--cuda_graphs")
    return options


def train(options: argparse.Namespace) -> None:
    """Measure the speed, choose a recipe, train with it, and measure the result."""
    end = time.monotonic() + (1 - SPARE) * options.seconds
    open_data(options.data, VALIDATION)  # said now, and not when the time is over
    run(options, "compile", PROBED, ())  # the next runs find on the disk what was compiled
    row, overhead = run(options, "speed", PROBED, ())
    speed, found = row["images/s"], {}
    seconds = CHOICE / len(RECIPES) * training_time(end, overhead, len(RECIPES) + 2)
    steps = steps_in(seconds, speed, options.batch)
    for number, (name, changes) in enumerate(RECIPES.items()):
        found[name], overhead = run(options, f"recipe-{number}", steps, (*changes, "--hold-back", HELD_BACK))
    best = choose(found)
    seconds = training_time(end, overhead, 2)
    more = (*RECIPES[best], "--seconds", f"{seconds:.1f}")
    run(options, "final", steps_in(seconds, speed, options.batch), more)
    model = options.out / "final" / "model.pt"
    command = [sys.executable, str(PROGRAM), "--data", *options.data, "--evaluate", VALIDATION, "--model", str(model)]
    measured = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    text = report(found, best, measured)
    write_atomic(options.out / "choice.md", text.encode())
    print(text)


def training_time(end: float, overhead: float, starts: int) -> float:
    """Seconds until the end in which steps can be done, where programs are started so many times.

    Raises:
        UsageError: There are none.
    """
    left = end - time.monotonic() - starts * overhead
    if left <= 0:
        raise UsageError(
            f"--seconds: {starts} more starts, of {overhead:.0f} s each, leave no time to train.\n"
            f"Do: give {ceil(-left) + 60} seconds more at least"
        )
    return left


def run(options: argparse.Namespace, name: str, steps: int, changes: Sequence[str]) -> tuple[dict[str, float], float]:
    """Train for some steps; the last line of the log, and the seconds that all but the steps took: starting, compiling, measuring."""
    out, begin = options.out / name, time.monotonic()
    teacher = ["--teacher", options.teacher] if options.teacher else []
    command = [sys.executable, str(PROGRAM), "--data", *options.data, "--out", str(out), "--steps", str(steps)]
    subprocess.run([*command, "--batch", str(options.batch), *teacher, *COMMON, *changes, *options.more], check=True)
    rows = read_log(out / "log.csv")
    speed = median(row["images/s"] for row in rows)  # the first row's has compiling in it
    overhead = time.monotonic() - begin - rows[-1]["step"] * options.batch / speed
    return rows[-1] | {"images/s": speed}, max(0.0, overhead)


def steps_in(seconds: float, speed: float, batch: int) -> int:
    """How many steps fit into a time."""
    return max(1, int(seconds * speed / batch))


def choose(found: Mapping[str, Mapping[str, float]]) -> str:
    """The recipe with the largest mAP50 on held-back photos; of equal ones the first."""
    return max(found, key=lambda name: found[name]["mAP50"])


def report(found: Mapping[str, Mapping[str, float]], best: str, measured: str) -> str:
    """The tables of a model card: what was chosen from, and what the result reaches on photos that nothing was chosen on."""
    kinds = [name for name in next(iter(found.values())) if name.startswith("AP50 ")]
    lines = ["| recipe | steps | mAP50 | " + " | ".join(kinds) + " |", "|---|---:|---:|" + "---:|" * len(kinds)]
    for name, row in found.items():
        shown = f"**{name}**" if name == best else name
        figures = " | ".join(f"{row[kind]:.3f}" for kind in kinds)
        lines.append(f"| {shown} | {row['step']:.0f} | {row['mAP50']:.3f} | {figures} |")
    return "\n".join(
        ["Held-back training photos:", "", *lines, "", "Validation split, after all photos:", "", measured]
    )


if __name__ == "__main__":
    sys.exit(main())
