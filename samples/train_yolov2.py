"""Train a compact YOLOv2 on your own images, from scratch, and export it for darknet.

The data is a folder (or tars of it) in the YOLO layout: images/, labels/ with one text file an image (class cx cy w h
in 0..1), classes.txt, and train.txt with the images' paths. All images are decoded once and stay on the device as
uint8; augmentation happens there.

A run of a few minutes on a GPU, with an eighth of the images held back to look at the accuracy:

    python samples/train_yolov2.py --data voc12-animals --out runs/try --hold-back 0.12 --steps 20000

A long run in pieces of nine minutes: repeat the same line until it says that the schedule is done.

    python samples/train_yolov2.py --data voc12-animals --out runs/long --steps 90000 --seconds 540 --resume

Then read runs/long: model.cfg, model.weights and model.names (darknet, darknet2caffe and samples/yolov2.py read
them), curve.png, log.csv, and model.pt. Once you have chosen, measure images that no choice has seen:

    python samples/train_yolov2.py --data voc12-animals --evaluate val.txt --model runs/long/model.pt
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from pytrtplugins.errors import PytrtpluginsError, UsageError
from pytrtplugins.utils.numbers import Real, Whole
from yolov2_training.curve import draw_curve, write_log
from yolov2_training.data import Images, Source, hold_back, letterbox_images, load_images
from yolov2_training.evaluate import average_precision
from yolov2_training.export import write_darknet
from yolov2_training.recipe import Recipe
from yolov2_training.teacher import Teacher
from yolov2_training.trainer import PARTS, Model, Trainer, load_model, save_model

EVALUATION_SIZE = 416
LINES = 60  # progress lines of a whole schedule
SYNC = 20  # steps queued before the clock is read
SAVE_SECONDS = 120
LONGEST = 31_536_000  # seconds: a year


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; every field of :class:`Recipe` is an option."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, help="folder or tars with images/, labels/, train.txt")
    parser.add_argument("--out", type=Path, default=Path("runs/yolov2"), help="where results go (%(default)s)")
    parser.add_argument(
        "--hold-back",
        type=Real(0, 0.99),
        default=0.0,
        metavar="SHARE",
        help="share of the images that is kept from training, for measurements",
    )
    parser.add_argument(
        "--evaluations", type=Whole(1, 1_000_000), default=12, help="measurements on held-back images (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=Real(0, LONGEST), default=float("inf"), help="stop after this time and write a checkpoint"
    )
    parser.add_argument("--resume", action="store_true", help="continue from OUT/checkpoint.pt, if it exists")
    parser.add_argument("--start", type=Path, metavar="MODEL", help="begin a new schedule with this model.pt's weights")
    parser.add_argument("--teacher", type=Path, metavar="CFG", help="imitate this darknet network with [yolo] heads")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="(%(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="do not compile the step (CUDA only)")
    parser.add_argument("--evaluate", metavar="LIST", help="do not train: measure --model on the images of this list")
    parser.add_argument("--model", type=Path, help="a model.pt, for --evaluate")
    group = parser.add_argument_group("recipe", "the numbers that determine the result")
    for option in fields(Recipe):
        many = isinstance(option.default, tuple)
        shown = ",".join(map(str, option.default)) if many else option.default
        group.add_argument(
            f"--{option.name.replace('_', '-')}",
            type=option.metadata["limits"],
            default=option.default,
            metavar="N,N,..." if many else "N",
            help=f"{option.metadata['help']} ({shown})",
        )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Train, or evaluate; the exit status."""
    options = parse(arguments)
    try:
        if options.evaluate:
            evaluate(options)
        else:
            train(options)
    except PytrtpluginsError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def train(options: argparse.Namespace) -> None:
    """Advance the run by ``--seconds`` or to its end, then write its results."""
    begin, device = time.monotonic(), torch.device(options.device)
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.suppress_errors = True  # a part that cannot be compiled runs as it is
    recipe = Recipe.from_dict(vars(options))
    source = Source(options.data)
    classes = tuple(source.lines("classes.txt"))
    names, held = hold_back(source.lines("train.txt"), options.hold_back)
    images = load_images(source, names, device)
    development = load_images(source, held, device) if held else None
    teacher = Teacher(options.teacher) if options.teacher else None
    compiled = device.type == "cuda" and not options.no_compile
    start = load_model(options.start)[0] if options.start else None
    trainer = Trainer(recipe, images, classes, teacher=teacher, compiled=compiled, start=start)
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoint = options.out / "checkpoint.pt"
    if options.resume and checkpoint.exists():
        trainer.resume(checkpoint)
    numbers = sum(p.numel() for p in trainer.network.state_dict().values() if p.dtype.is_floating_point)
    print(
        f"{len(images)} images, {len(held)} held back; {numbers:,} numbers, {(numbers * 4 + 20) / 1e6:.2f} MB .weights"
    )
    print(
        f"step {trainer.step} of {recipe.steps} on {device}; {time.monotonic() - begin:.0f} s to get ready", flush=True
    )
    _run(trainer, development, options, begin)
    trainer.save(checkpoint)
    write_results(options.out, trainer)
    if trainer.step < recipe.steps:
        print(f"stopped at step {trainer.step} of {recipe.steps}. Do: run the same command with --resume", flush=True)
    else:
        print(f"the schedule is done: {options.out}/model.cfg, .weights, .names, curve.png", flush=True)


def _run(trainer: Trainer, development: Images | None, options: argparse.Namespace, begin: float) -> None:
    """The loop: steps, and at times a line, a measurement or a checkpoint."""
    steps, first, saved, start = trainer.recipe.steps, trainer.step, begin, 0.0
    every, measure = max(1, steps // LINES), max(1, steps // options.evaluations)
    images = None if development is None else letterbox_images(development, EVALUATION_SIZE)
    while trainer.step < steps:
        trainer.advance()
        if trainer.step % SYNC == 0 or trainer.step in (first + 1, steps):
            _wait(trainer.device)
            now = time.monotonic()
            start = start or now  # the first step compiles: it is not part of the speed
            if now - begin > options.seconds:
                break
            if now - saved > SAVE_SECONDS:
                trainer.save(options.out / "checkpoint.pt")
                saved = now
        due = images is not None and (trainer.step % measure == 0 or trainer.step == steps)
        if due or trainer.step % every == 0 or trainer.step == steps:
            _report(trainer, images if due else None, development, first, start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _report(trainer: Trainer, images: Any, development: Images | None, first: int, start: float) -> None:
    """Print a progress line and add it to the log; with images, measure the averaged network too."""
    _wait(trainer.device)
    recipe, done = trainer.recipe, trainer.step - first - 1
    pace = (time.monotonic() - start) / done if start and done else 0.0
    row = {"step": trainer.step, "epoch": trainer.epoch, "rate": trainer.rate}
    row |= dict(zip(PARTS, trainer.measured.tolist(), strict=True))
    if images is not None and development is not None:
        row |= scores(trainer.model(), images, development)
    trainer.rows.append(row)
    left = (recipe.steps - trainer.step) * pace
    speed = f"{recipe.batch / pace:.0f} images/s, {left / 60:.1f} min left" if pace else "compiled"
    text = " ".join(f"{name} {row[name]:.3f}" for name in PARTS)
    print(f"step {trainer.step}/{recipe.steps} epoch {trainer.epoch:.0f} | {text} | {speed}", flush=True)
    if "mAP50" in row:
        print(
            "    " + " ".join(f"{k.removeprefix('AP50 ')} {v:.3f}" for k, v in row.items() if "AP50" in k), flush=True
        )


def scores(model: Model, inputs: Any, images: Images) -> dict[str, float]:
    """MAP50 and the AP of each class, with names as in the log."""
    found = average_precision(model.network, inputs, images, model.anchors, len(model.classes))
    named = {f"AP50 {name}": value for name, value in zip(model.classes, found, strict=True)}
    return {"mAP50": sum(found) / len(found)} | named


def write_results(out: Path, trainer: Trainer) -> None:
    """Write the averaged network for PyTorch and for darknet, the log and the curve."""
    model, seen = trainer.model(), trainer.step * trainer.recipe.batch
    save_model(out / "model.pt", model, trainer.recipe)
    write_darknet(out / "model", model.network, model.anchors, model.classes, seen=seen)
    if trainer.rows:
        write_log(out / "log.csv", trainer.rows)
        draw_curve(out / "curve.png", {"this run": trainer.rows})


def evaluate(options: argparse.Namespace) -> None:
    """Print mAP50 of ``--model`` on the images of a list, in float32."""
    if options.model is None:
        raise UsageError("--evaluate needs a model.\nDo: add --model runs/yolov2/model.pt")
    model, _ = load_model(options.model)
    source, device = Source(options.data), torch.device(options.device)
    images = load_images(source, source.lines(options.evaluate), device)
    model = Model(model.network.to(device), model.anchors.to(device), model.classes)
    for name, value in scores(model, letterbox_images(images, EVALUATION_SIZE), images).items():
        print(f"{name}: {value:.4f}")


if __name__ == "__main__":
    sys.exit(main())
