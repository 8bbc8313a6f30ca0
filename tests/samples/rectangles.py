"""Generated images of rectangles, and a small network and a loop for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.samples.needs_torch import torch
from training import loop as engine
from training.batch import Pool
from training.data import load_photos, open_data
from training.loader import make_loader
from training.ranks import Ranks
from training.sampler import StepSampler
from training.schedule import Schedule
from training.settings import Settings
from yolov2_training import data, network, recipe, task

ALONE = Ranks(0, 1, torch.device("cpu"), False)
SMALL = {"stages": (4, 4, 8, 8, 8, 8), "head": 8, "passthrough": 4}
CLASSES = ("red", "green")
ANCHORS = torch.tensor([[0.5, 0.5], [1.0, 1.0], [1.5, 1.0], [1.0, 2.0], [2.5, 2.5]])
TINY = ("--batch", "4", "--sizes", "64", "--stages", "4,4,8,8,8,8", "--head", "8", "--passthrough", "4")


def draw_set(folder: Path, count: int = 10) -> Path:
    """Images with one coloured rectangle each, in the YOLO layout."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    names = []
    for i in range(count):
        pixels, kind = np.full((48, 64, 3), 90, np.uint8), i % 2
        (x, y), (w, h) = rng.integers(0, 24, 2), rng.integers(12, 24, 2)
        pixels[y : y + h, x : x + w, kind] = 250
        Image.fromarray(pixels).save(folder / f"images/{i}.png")
        (folder / f"labels/{i}.txt").write_text(
            f"{kind} {(x + w / 2) / 64} {(y + h / 2) / 48} {w / 64} {h / 48}\n",
        )
        names.append(f"images/{i}.png")
    (folder / "classes.txt").write_text("red\ngreen\n")
    (folder / "train.txt").write_text("\n".join(names))
    return folder


def load(folder: Path) -> Pool:
    return load_photos(open_data([folder], "train.txt"), torch.device("cpu"), side=64)


def make_loop(
    folder: Path,
    settings: recipe.Recipe,
    *,
    begin: int = 0,
    loader: str = "resident",
    device=ALONE.device,
    **given,
) -> engine.Loop:
    """The engine with this sample's task."""
    photos = open_data([folder], "train.txt")
    how = Settings(**{key: given.pop(key) for key in list(given) if key in Settings.__dataclass_fields__})
    anchors = (
        given["start"].anchors
        if "start" in given
        else data.kmeans_anchors(data.box_shapes(photos), cells=settings.size // 32)
    )
    what = task.Detection(settings, CLASSES, anchors, how, device, **given)
    sampler = StepSampler(len(photos), settings.batch, seed=settings.seed)
    source = make_loader(loader, photos, sampler, device, size=64, start=begin, stop=settings.steps)
    what.draw_from(source.pool, lambda number: photos.read(number).key)
    schedule, adam = Schedule(settings.steps, settings.learning_rate), (torch.optim.AdamW, {"fused": True})
    ranks = Ranks(0, 1, device, False)
    return engine.Loop(what, source, how, ranks, schedule, optimizer=adam, seed=settings.seed, decay=settings.ema)


def tiny_network(classes: int = 6) -> network.Yolov2:
    """Random weights with fitting batch norm statistics; one channel a layer varies so little that epsilon matters."""
    torch.manual_seed(3)
    net = network.Yolov2(network.declare_layers((4, 8, 8, 8, 16, 16), 16, 4, classes)).train()
    for convolution, norm in net.convolutions():
        if norm is not None:
            convolution.weight.data[0] *= 2e-3
            norm.momentum = 1.0
            norm.weight.data.uniform_(0.5, 1.5)
            norm.bias.data.uniform_(-0.5, 0.5)
    torch.nn.init.normal_(net.parts[-1].weight, std=0.2)
    with torch.no_grad():
        net(torch.rand(8, 3, 96, 96))
    return net.eval()
