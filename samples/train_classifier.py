"""Train a classifier on your own photos, from scratch or further, on one GPU or several, and export it as ONNX.

The data is a folder with a folder of photos for each class; a folder of shards, as pytrt shards make --labels folders
writes it; shards of photos with boxes, of which those with boxes of one class count; or "synthetic", photos of noise:

    python samples/train_classifier.py --data photos/train --model resnet50 --hold-back 0.1 --output runs/classes
    python samples/train_classifier.py --data synthetic --model inception_v3 --size 299 --cuda_graphs --steps 500

Networks are torchvision's (resnet50, inception_v3, vgg16, alexnet, mobilenet_v3_large and more), or one of your own:

    python samples/train_classifier.py --data shards --model networks.py:small --size 64

Then read runs/classes: model.onnx and model.names (pytrt table, quantize, build and serve take them),
model.pt, curve.png, log.csv.
Measure photos that no choice has seen:

    python samples/train_classifier.py --data photos/val --evaluate all --start runs/classes/model.pt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from classifier_training.data import open_classes
from classifier_training.model import Model, load_model
from classifier_training.recipe import Recipe
from classifier_training.run import Run, top_shares

from pytrtplugins.errors import UsageError
from training.command import Program, add_options
from training.data import load_photos
from training.ranks import device_of


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; every field of :class:`Recipe` and of the engine's settings is an option."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = "a folder with a folder of photos for each class, or a folder of shards; or synthetic"
    add_options(parser, Recipe, out="runs/classifier", data=data)
    add = parser.add_argument
    add("--model", default="resnet50", metavar="NAME", help="of torchvision, or FILE.py:FUNCTION (%(default)s)")
    add("--start", type=Path, metavar="FILE", help="a model.pt: begin a new schedule with its weights")
    add("--evaluate", metavar="LIST", help="do not train: measure --start on the photos of this list, or on all")
    return parser.parse_args(arguments)


def evaluate(options: argparse.Namespace) -> None:
    """Print top-1 and top-5 of ``--start`` on photos, in float32."""
    if options.start is None:
        raise UsageError("--evaluate needs a model.\nDo: add --start runs/classifier/model.pt")
    device, data, model = (
        device_of(options.device),
        open_classes(options.data, options.evaluate),
        load_model(options.start),
    )
    if unknown := [name for name in data.classes if name not in model.classes]:
        raise UsageError(
            f"--evaluate: the model does not know the classes {', '.join(unknown[:9])}; it has {', '.join(model.classes[:9])}.\n"
            "Do: give photos of its classes"
        )
    photos = load_photos(data, device, side=Recipe(size=model.size).side)
    numbers = photos.boxes.new_tensor([model.classes.index(name) for name in data.classes])
    photos.boxes[..., 0] = numbers[photos.boxes[..., 0].long()]
    model = Model(model.network.to(device), model.name, model.classes, model.size)
    first, best = top_shares(model, photos)
    print(f"{len(photos):,} photos of {len(data.classes)} classes: top-1 {first:.4f}, top-5 {best:.4f}")


PROGRAM = Program(Path(__file__), Run, parse, evaluate, {"start": ()})
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
