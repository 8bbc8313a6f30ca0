"""Train YOLOv2 on your own photos, from scratch, on one GPU or several, and export it for darknet.

The data is a folder of shards, as pytrt shards make writes it; or a folder (or tars of it) with photos, labels,
classes.txt, and train.txt with the photos' names, in darknet's layout or another that pytrt shards make reads.
Anchors, measurements and model.cfg are for the size that --sizes says, the largest of several.

A run of a few minutes on a GPU, with an eighth of the photos held back to look at the accuracy:

    python samples/train_yolov2.py --data voc12-animals --output runs/try --hold-back 0.12 --steps 20000

A long run in pieces of nine minutes: repeat the same line until it says that the schedule is done.

    python samples/train_yolov2.py --data voc12-animals --output runs/long --steps 90000 --seconds 540 --resume

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
from pathlib import Path

from pytrtplugins.errors import UsageError
from pytrtplugins.vision.labels.photo import EXIF
from training.command import Program, add_options
from training.data import SIDE, load_photos, open_data
from training.ranks import device_of
from yolov2_training.evaluate import measure
from yolov2_training.model import Model, load_model
from yolov2_training.recipe import NETWORKS, Recipe
from yolov2_training.run import Run


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; every field of :class:`Recipe` and of the engine's settings is an option."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = "folder of shards; or folders or tars with photos, labels, train.txt"
    group = add_options(parser, Recipe, out="runs/yolov2", data=data)
    group.add_argument(
        "--network", choices=NETWORKS, default="compact", help="which widths --stages, ... have (%(default)s)"
    )
    add = parser.add_argument
    add(
        "--exif",
        choices=EXIF,
        help="what labels are drawn on where EXIF turns photos and sizes in the labels do not say it",
    )
    add("--start", type=Path, metavar="MODEL", help="begin a new schedule with these weights: a model.pt, or a .cfg")
    add("--teacher", type=Path, metavar="CFG", help="imitate this darknet network with [yolo] heads")
    add("--evaluate", metavar="LIST", help="do not train: measure --model on the photos of this list, or on all")
    add("--model", type=Path, help="a model.pt, for --evaluate")
    chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chosen.add_argument("--network", default="compact")
    parser.set_defaults(**NETWORKS.get(chosen.parse_known_args(arguments)[0].network, {}))
    return parser.parse_args(arguments)


def evaluate(options: argparse.Namespace) -> None:
    """Print mAP50 of ``--model`` on the photos of a list, in float32, at the largest size that it was trained at."""
    if options.model is None:
        raise UsageError("--evaluate needs a model.\nDo: add --model runs/yolov2/model.pt")
    device, data = device_of(options.device), open_data(options.data, options.evaluate, options.exif)
    model, recipe = load_model(options.model)
    model = Model(model.network.to(device), model.anchors.to(device), model.classes)
    print(measure(model, load_photos(data, device, side=SIDE), data.classes, recipe.size))


FILES = {"start": (".weights", ".names"), "teacher": (".weights",), "model": ()}
"""Options that name files, and what lies beside a .cfg."""
PROGRAM = Program(Path(__file__), Run, parse, evaluate, FILES)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
