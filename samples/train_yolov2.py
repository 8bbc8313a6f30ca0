"""Train YOLOv2 on your own photos, from scratch, on one GPU or several, and export it for darknet.

The data is a folder of shards, as pytrt shards make writes it; or a folder (or tars of it) with photos, labels,
classes.txt, and train.txt with the photos' names, in darknet's layout or another that pytrt shards make reads.
Anchors, measurements and model.cfg are for the size that --sizes says, the largest of several.

A run of a few minutes on a GPU, with an eighth of the photos held back to look at the accuracy:

    python samples/train_yolov2.py --data voc12-animals --out runs/try --hold-back 0.12 --steps 20000

A long run in pieces of nine minutes: repeat the same line until it says that the schedule is done.

    python samples/train_yolov2.py --data voc12-animals --out runs/long --steps 90000 --seconds 540 --resume

The full-size network on two GPUs, which starts again by itself when a process dies:

    python samples/train_yolov2.py --data shards --network voc --loader spdl-gpu --gpus 2 --restarts 3 --resume

Sixteen GPUs of several machines, joined by Ray, with all files in a folder that the machines share:

    python samples/train_yolov2.py --data shards --network voc --loader spdl-gpu --gpus 16 --ray --restarts 3

Then read runs/long: model.cfg, model.weights and model.names (darknet, darknet2caffe and samples/yolov2.py read
them), curve.png, log.csv, and model.pt. Once you have chosen, measure photos that no choice has seen:

    python samples/train_yolov2.py --data voc12-animals --evaluate val.txt --model runs/long/model.pt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch

from pytrtplugins.errors import PytrtpluginsError, UsageError
from pytrtplugins.utils.numbers import Real, Whole
from training.loader import KINDS
from training.ranks import Job, device_of, is_launched, launch
from training.ray import launch_on_ray
from training.settings import Settings, add_settings
from yolov2_training.data import load_photos, open_data
from yolov2_training.evaluate import measure
from yolov2_training.model import Model, load_model
from yolov2_training.recipe import NETWORKS, Recipe
from yolov2_training.run import check_unused, train

LONGEST = 31_536_000  # seconds: a year


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; every field of :class:`Recipe` and of the engine's settings is an option."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", nargs="+", required=True, help="folder of shards; or folders or tars with photos, labels, train.txt")
    add("--out", type=Path, default=Path("runs/yolov2"), help="where results go (%(default)s)")
    add(
        "--hold-back",
        type=Real(0, 0.99),
        default=0.0,
        metavar="SHARE",
        help="share of the photos that is kept from training, for measurements",
    )
    add("--evaluations", type=Whole(1, 1_000_000), default=12, help="measurements on held-back photos (%(default)s)")
    add("--seconds", type=Real(0, LONGEST), default=float("inf"), help="stop after this time and write a checkpoint")
    add("--save-every", type=Real(1, LONGEST), default=120.0, help="seconds between checkpoints (%(default)s)")
    add("--resume", action="store_true", help="continue from the last checkpoint in OUT, if there is one")
    add("--start", type=Path, metavar="MODEL", help="begin a new schedule with these weights: a model.pt, or a .cfg")
    add("--teacher", type=Path, metavar="CFG", help="imitate this darknet network with [yolo] heads")
    add("--evaluate", metavar="LIST", help="do not train: measure --model on the photos of this list, or on all")
    add("--model", type=Path, help="a model.pt, for --evaluate")
    _add_engine(parser.add_argument_group("engine", "how it computes, and how ranks share variables: docs/training.md"))
    group = parser.add_argument_group("recipe", "the numbers that determine the result")
    group.add_argument(
        "--network", choices=NETWORKS, default="compact", help="which widths --stages, ... have (%(default)s)"
    )
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
    chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chosen.add_argument("--network", default="compact")
    parser.set_defaults(**NETWORKS.get(chosen.parse_known_args(arguments)[0].network, {}))
    return parser.parse_args(arguments)


def _add_engine(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="(%(default)s)")
    add("--gpus", type=Whole(1, 1024), metavar="N", help="start N processes, each with a GPU; on a CPU they use gloo")
    add(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="start them on a Ray cluster: that of this machine (auto), local: a new one, or HOST:PORT",
    )
    add("--ray-cores", type=Whole(1, 1024), default=1, help="cores that Ray reserves for each process (%(default)s)")
    add(
        "--restarts",
        type=Whole(0, 1000),
        default=0,
        help="times that all of them start again after one, or its machine, died (%(default)s)",
    )
    add("--loader", choices=KINDS, default="resident", help="how photos get to the GPU (%(default)s)")
    add("--workers", type=Whole(0, 1024), default=4, help="processes of --loader dataloader (%(default)s)")
    add("--readers", type=Whole(1, 1024), default=8, help="threads of the SPDL loaders that read (%(default)s)")
    add("--decoders", type=Whole(0, 1024), default=0, help="threads that decode; 0: one a core, beside steps 8 at most")
    add("--decoder", choices=("auto", "torchvision", "nvimgcodec"), default="auto", help="of spdl-gpu (%(default)s)")
    add("--skip-bad", action="store_true", help="replace photos that do not decode by the next ones")
    add("--trace", action="store_true", help="write OUT/trace.json for chrome://tracing, and a figure of the stages")
    add_settings(group)


def main(arguments: list[str] | None = None, signals: Sequence[int] | None = None) -> int:
    """Train, or evaluate; the exit status. A rank on Ray gets ``signals`` as a list that fills when it is to end."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    try:
        check_places(options)
        if options.evaluate:
            evaluate(options)
        elif (options.gpus or options.ray) and not is_launched():
            start(options, arguments)
        else:
            train(options, signals)
    except PytrtpluginsError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def check_places(options: argparse.Namespace) -> None:
    """Require a device that is there, and the files that are named.

    Raises:
        UsageError: one of them is missing; the message says which.
    """
    try:
        device = torch.device(options.device)
    except RuntimeError:
        raise UsageError(f"--device {options.device}: no such device.\nDo: give --device cuda or cpu") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device {options.device}: PyTorch finds no GPU here.\nDo: give --device cpu")
    for option in ("start", "teacher", "model"):
        path = getattr(options, option)
        if path is None:
            continue
        parts = {".cfg": (".weights", ".names")}.get(path.suffix, ()) if option == "start" else ()
        parts = (".weights",) if option == "teacher" else parts
        for file in (path, *(path.with_suffix(suffix) for suffix in parts)):
            if not file.is_file():
                raise UsageError(f"--{option} {path}: {file} is not there.\nDo: ls {file.parent}")


def start(options: argparse.Namespace, arguments: list[str]) -> None:
    """Start ``--gpus`` ranks, and again if one dies: therefore each continues where there is a checkpoint."""
    if not options.gpus:
        raise UsageError("--ray needs the number of ranks.\nDo: add --gpus 2, or as many as the cluster has")
    check_unused(options)
    kind, _, number = options.device.partition(":")
    if number:
        raise UsageError(
            f"--device {options.device} with --gpus: each rank gets a GPU of its own.\nDo: give --device {kind}"
        )
    if not options.ray:  # whose GPUs are those of other machines
        device_of(options.device, options.gpus if options.device == "cuda" else 1)
    settings = Settings.from_options(options, options.device)
    settings.check(options.device, options.gpus, joined=True)
    Recipe.from_dict(vars(options)).check(options.gpus, settings.accumulate)
    job = Job(
        program=Path(__file__).absolute(),
        arguments=[*arguments, "--resume", "--device", options.device],
        out=options.out,
        settings=settings,
        device=options.device,
        ranks=options.gpus,
        cores=options.ray_cores,
        restarts=options.restarts,
    )
    if options.ray:
        launch_on_ray(job, options.ray)
    else:
        launch(job)


def evaluate(options: argparse.Namespace) -> None:
    """Print mAP50 of ``--model`` on the photos of a list, in float32, at the largest size that it was trained at."""
    if options.model is None:
        raise UsageError("--evaluate needs a model.\nDo: add --model runs/yolov2/model.pt")
    device, data = device_of(options.device), open_data(options.data, options.evaluate)
    model, recipe = load_model(options.model)
    model = Model(model.network.to(device), model.anchors.to(device), model.classes)
    print(measure(model, load_photos(data, device), data.classes, recipe.size))


if __name__ == "__main__":
    sys.exit(main())
