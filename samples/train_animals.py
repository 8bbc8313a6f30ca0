"""Train samples/models/yolov2-animals within a given time, afresh or further, by a recipe that is chosen on held-back photos.

It is made for a GPU that is there for some minutes only. Afresh:

    python samples/train_animals.py --data voc12-animals --teacher yolo-fastest-1.1-xl.cfg --seconds 480

Two short runs come first: one compiles, and one measures how many photos a second this machine trains and what a start costs, so that
everything ends in its time: starts, schedules and measurements. Every recipe then trains without an eighth of the photos, and is measured
on these; the best of them trains on all photos. Or further, from given weights:

    python samples/train_animals.py --data voc12-animals --teacher yolo-fastest-1.1-xl.cfg --start samples/models/yolov2-animals.cfg

The shipped weights have seen all photos, so none can be held back from them. Therefore another network is trained afresh without the
held-back photos, and every recipe trains it further, all at the same time. The best recipe then trains the given weights, on all photos.

choice.md has the figures. The validation split is looked at once, at the end, and decides nothing.
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
import train_yolov2

from pytrtplugins.errors import PytrtpluginsError, UsageError
from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.numbers import FloatRange, IntRange
from pytrtplugins.vision.labels.photo import EXIF
from training.command import check_places
from training.curve import read_log
from training.data import TRAINING, open_data, split
from training.run import check_folder
from yolov2_training.recipe import Recipe
from yolov2_training.run import load_start

PROGRAM = Path(__file__).with_name("train_yolov2.py")
COMMON = ("--stages", "24,48,96,160,208,256", "--imitation", "12", "--balance", "0.5", "--evaluations", "1")
_SECOND = ("--balance", "0", "--balance-boxes", "1", "--negative", "0.15")
RECIPES: dict[str, tuple[str, ...]] = {
    "the first network's": (),
    "as many boxes of each class, light and dark exchanged": _SECOND,
}
"""What differs from ``COMMON``. Sheep come in flocks: by photos they are rarer than horses, by boxes they are more. And no network should
know a sheep by its light wool alone. samples/models/yolov2-animals has the second recipe, its predecessor had the first."""
CLOSE = 0.01  # of mAP50: what another seed may give. Among recipes that are so close to the best, the last is taken: it changes most
HELD_BACK = "0.12"
VALIDATION = "val.txt"
PROBED = 300  # steps of the run that measures the speed
CHOICE = 0.5  # share of the training time in which the recipes are compared; the rest is for the last run
SPARE = 0.05  # share of the time that is kept for what takes longer than the first run says
SPEED = 3000.0  # photos a second, before any is measured: what an H200 trains with the teacher
LONGER = 4  # times the steps that fit, of a schedule that is not ended: its rate hardly falls
BASE = 0.36  # share of the time in which what the recipes begin with is trained, with its start and compiling
TRIALS = 0.15  # share of the time in which all recipes together train it further
FURTHER = ("--learning-rate", "1e-3", "--close", "0.7")


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
    add("--exif", choices=EXIF, help="as for train_yolov2.py")
    add("--teacher", help="darknet network to imitate, as for train_yolov2.py")
    add("--start", metavar="MODEL", help="train these weights further: a model.pt or a .cfg, of the shipped widths")
    add("--skip-validation", action="store_true", help="leave the validation split to another machine")
    add("--output", "-o", dest="out", type=Path, default=Path("runs/animals"), help="where results go (%(default)s)")
    add("--seconds", type=FloatRange(1, 1_000_000), default=480.0, help="for everything together (%(default)s)")
    add("--batch", type=IntRange(1, 4096), default=64, help="photos a step (%(default)s)")
    add("more", nargs="*", help="after --: further options of each run of train_yolov2.py")
    options = parser.parse_args(arguments)
    if torch.cuda.is_available():
        options.more.append("--cuda_graphs")
    return options


def train(options: argparse.Namespace) -> None:
    """Choose a recipe, train with it, and measure the result."""
    end = time.monotonic() + (1 - SPARE) * options.seconds
    check(options)
    found, speed, overhead = (further if options.start else afresh)(options, end)
    best = choose(found)
    put(options, report(found, best))
    seconds = training_time(end, overhead, 1 if options.skip_validation else 2)
    longest = f"{seconds + overhead + SPARE * options.seconds:.1f}"  # first steps, which compile, are of a run's time
    more = (*RECIPES[best], *begun(options.start), "--seconds", longest)
    run(options, "final", steps_in(seconds, speed, options.batch), more)
    if not options.skip_validation:
        put(options, report(found, best, validate(options)))


def check(options: argparse.Namespace) -> None:
    """Say now what would end the last run, and not when the time is over.

    Raises:
        PytrtpluginsError: an option, the photos, or the network to begin with cannot be used.
    """
    given = train_yolov2.parse(command(options, "final", 1, begun(options.start))[2:])
    recipe = Recipe.from_dict(vars(given))
    recipe.check(1, given.accumulate)
    check_places(given, train_yolov2.FILES)
    check_folder(options.out)
    data = open_data(options.data, TRAINING, given.exif)
    split(data, float(HELD_BACK))
    if given.start:
        load_start(given.start, recipe, data.classes)
    if not options.skip_validation:
        open_data(options.data, VALIDATION, given.exif)


def put(options: argparse.Namespace, text: str) -> None:
    """Print a report, and keep it beside the runs."""
    print(text, flush=True)
    write_atomic(options.out / "choice.md", text.encode())


def validate(options: argparse.Namespace) -> str:
    """What the last run reaches on the validation split."""
    line = [sys.executable, str(PROGRAM), *data_options(options), "--evaluate", VALIDATION]
    line += ["--model", str(options.out / "final" / "model.pt")]
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout


Found = dict[str, dict[str, float]]


def afresh(options: argparse.Namespace, end: float) -> tuple[Found, float, float]:
    """Train each recipe afresh, one after the other; the last line of their logs, photos a second, and what a start takes."""
    run(options, "compile", PROBED, ())  # the next runs find on the disk what was compiled
    row, overhead = run(options, "speed", PROBED, ())
    speed, found = row["images/s"], Found()
    seconds = CHOICE / len(RECIPES) * training_time(end, overhead, len(RECIPES) + 2)
    steps = steps_in(seconds, speed, options.batch)
    for number, (name, changes) in enumerate(RECIPES.items()):
        found[name], overhead = run(options, f"recipe-{number}", steps, (*changes, "--hold-back", HELD_BACK))
    return found, speed, overhead


def further(options: argparse.Namespace, end: float) -> tuple[Found, float, float]:
    """Train a network without the held-back photos, then that one further by each recipe, all at the same time; the same results."""
    left, held = end - time.monotonic(), ("--hold-back", HELD_BACK)
    steps = LONGER * steps_in(BASE * left, SPEED, options.batch)
    row, _ = run(options, "base", steps, (*held, "--seconds", f"{BASE * left:.1f}"))
    speed, begin = row["images/s"], time.monotonic()
    steps = steps_in(TRIALS * left / len(RECIPES), speed, options.batch)
    base = options.out / "base" / "model.pt"
    lines = [
        command(options, f"recipe-{number}", steps, (*changes, *begun(base), *held))
        for number, changes in enumerate(RECIPES.values())
    ]
    running = [subprocess.Popen(line) for line in lines]
    try:
        for process, line in zip(running, lines, strict=True):
            if status := process.wait():
                raise subprocess.CalledProcessError(status, line)
    finally:
        for process in running:
            process.kill()
            process.wait()
    rows = [read_log(options.out / f"recipe-{number}" / "log.csv")[-1] for number in range(len(RECIPES))]
    trained = len(RECIPES) * steps * options.batch / speed
    return dict(zip(RECIPES, rows, strict=True)), speed, max(0.0, time.monotonic() - begin - trained)


def begun(start: str | Path | None) -> tuple[str, ...]:
    """The options with which a run begins with a trained network."""
    return ("--start", str(start), *FURTHER) if start else ()


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


def data_options(options: argparse.Namespace) -> list[str]:
    """The photos, as options of train_yolov2.py."""
    return ["--data", *options.data, *(["--exif", options.exif] if options.exif else [])]


def command(options: argparse.Namespace, name: str, steps: int, changes: Sequence[str]) -> list[str]:
    """The line of a run of train_yolov2.py."""
    teacher = ["--teacher", options.teacher] if options.teacher else []
    line = [sys.executable, str(PROGRAM), *data_options(options), "--output", str(options.out / name)]
    line += ["--steps", str(steps), "--batch", str(options.batch)]
    return [*line, *teacher, *COMMON, *changes, *options.more]


def run(options: argparse.Namespace, name: str, steps: int, changes: Sequence[str]) -> tuple[dict[str, float], float]:
    """Train for some steps; the last line of the log, and the seconds that all but the steps took: starting, compiling, measuring."""
    begin = time.monotonic()
    subprocess.run(command(options, name, steps, changes), check=True)
    rows = read_log(options.out / name / "log.csv")
    speed = median(row["images/s"] for row in rows)  # the first row's has compiling in it
    overhead = time.monotonic() - begin - rows[-1]["step"] * options.batch / speed
    return rows[-1] | {"images/s": speed}, max(0.0, overhead)


def steps_in(seconds: float, speed: float, batch: int) -> int:
    """How many steps fit into a time."""
    return max(1, int(seconds * speed / batch))


def choose(found: Mapping[str, Mapping[str, float]]) -> str:
    """The recipe with the largest mAP50 on held-back photos; of those that are ``CLOSE`` to it the last."""
    best = max(row["mAP50"] for row in found.values())
    return [name for name, row in found.items() if row["mAP50"] >= best - CLOSE][-1]


def report(found: Mapping[str, Mapping[str, float]], best: str, measured: str = "not measured yet\n") -> str:
    """The tables of a model card: what was chosen from, and what the result reaches on photos that nothing was chosen on."""
    kinds = [name for name in next(iter(found.values())) if name.startswith("AP50 ")]
    count = f" of {classes:.0f} classes" if (classes := next(iter(found.values())).get("classes")) else ""
    lines = [f"| recipe | steps | mAP50{count} | " + " | ".join(kinds) + " |", "|---|---:|---:|" + "---:|" * len(kinds)]
    for name, row in found.items():
        shown = f"**{name}**" if name == best else name
        figures = " | ".join(f"{row[kind]:.3f}" for kind in kinds)
        lines.append(f"| {shown} | {row['step']:.0f} | {row['mAP50']:.3f} | {figures} |")
    return "\n".join(
        ["Held-back training photos:", "", *lines, "", "Validation split, after all photos:", "", measured]
    )


if __name__ == "__main__":
    sys.exit(main())
