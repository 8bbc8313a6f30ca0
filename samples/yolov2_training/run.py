"""A run of YOLOv2: its photos and anchors, its measurements, and darknet's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from pytrtplugins.errors import PytrtpluginsError, UsageError
from pytrtplugins.utils.override import override
from training import run
from training.augment import STRIDE
from training.data import SIDE, TRAINING, Records, load_photos, open_data

from .boxes import BoxLimits
from .data import box_shapes, kmeans_anchors, letterbox_images
from .evaluate import scores
from .export import write_darknet
from .model import Model, build_network, load_model, save_model
from .recipe import Recipe
from .task import Detection
from .teacher import Teacher

__all__ = ["Run", "load_start"]


class Run(run.Run):
    """A run of YOLOv2, in this process. See `training.run.Run`."""

    recipes, score, results = Recipe, "mAP50", "model.cfg, .weights, .names"
    recipe: Recipe
    task: Detection

    @override
    def open(self) -> Records:
        return open_data(self.options.data, TRAINING, self.options.exif)

    @override
    def prepare(self) -> None:
        self.boxes, path = BoxLimits.of(self.data, self.recipe.boxes), self.options.start
        self.start = None if path is None else load_start(path, self.recipe, self.data.classes)

    @override
    def load_held_back(self, photos: Records) -> None:
        self.held = load_photos(photos, self.ranks.device, side=SIDE, skip_bad=self.options.skip_bad)
        self.inputs = letterbox_images(self.held, self.recipe.size)

    @override
    def make_task(self) -> Detection:
        options, start = self.options, self.start
        return Detection(
            self.recipe,
            self.data.classes,
            self._anchors() if start is None else start.anchors,
            self.settings,
            self.ranks.device,
            teacher=Teacher(options.teacher) if options.teacher else None,
            start=start,
            ranks=None if options.variable_update == "independent" else self.ranks,
            boxes=self.boxes.image,
        )

    def _anchors(self) -> Tensor:
        """Anchors for the boxes of the photos, in cells of the largest size."""
        shapes = box_shapes(self.data, skip_bad=self.options.skip_bad)
        return kmeans_anchors(shapes, cells=self.recipe.size // STRIDE)

    @override
    def stored_side(self) -> int:
        return SIDE

    @override
    def most_boxes(self) -> int:
        return self.boxes.photo

    @override
    def identity(self) -> dict[str, Any]:
        return {"teacher": None if self.options.teacher is None else self.options.teacher.name}

    @override
    def notes(self) -> Sequence[str]:
        recipe, start = self.recipe, self.options.start
        images = recipe.batch // self.ranks.world // self.settings.accumulate
        largest = ", the largest of --sizes" if len(set(recipe.sizes)) > 1 else ""
        what = (
            "anchors, mAP50 and model.cfg"
            if start is None
            else f"mAP50 and model.cfg (the anchors are those of {start})"
        )
        return (
            self.boxes.text(images, recipe.size),
            f"{what} are for {recipe.size} x {recipe.size} pixels{largest}",
        )

    @override
    def measure(self, average: dict[str, Tensor]) -> tuple[dict[str, float], str]:
        figures = scores(self.task.model(average), self.inputs, self.held)
        each = " ".join(f"{k.removeprefix('AP50 ')} {v:.3f}" for k, v in figures.items() if k.startswith("AP50 "))
        of = f"of {figures['classes']} of {len(self.data.classes)} classes"
        return figures, f"mAP50 {figures['mAP50']:.3f} {of} at {self.recipe.size} pixels: {each}"

    @override
    def write(self, average: dict[str, Tensor]) -> None:
        model, out = self.task.model(average), self.options.out
        save_model(out / "model.pt", model, self.recipe)
        seen = self.loop.step * self.recipe.batch
        write_darknet(out / "model", model.network, model.anchors, model.classes, size=self.recipe.size, seen=seen)


def load_start(path: Path, recipe: Recipe, classes: Sequence[str]) -> Model:
    """Read the model that a run begins with: of a model.pt, or of darknet's files.

    Args:
        path: The model.pt, or the .cfg.
        recipe: Of the run.
        classes: Of its photos.

    Raises:
        UsageError: its widths or classes are not those of the run.
        FormatError: it cannot be read.
    """
    if path.suffix == ".cfg":
        from .darknet import load_darknet  # which needs the converter

        try:
            model = load_darknet(path)
        except (OSError, UnicodeDecodeError, PytrtpluginsError) as error:
            if "\nDo:" in str(error):
                raise
            raise UsageError(
                f"--start {path}: {str(error).rstrip('.')}.\n"
                "Do: give a .cfg with its .weights and .names beside it, under the same name; or a model.pt"
            ) from error
    else:
        model = load_model(path)[0]
    ours = {name: tensor.shape for name, tensor in build_network(recipe, len(classes)).state_dict().items()}
    if model.classes != tuple(classes) or ours != {n: t.shape for n, t in model.network.state_dict().items()}:
        raise UsageError(
            f"--start {path}: a network of other widths or classes ({', '.join(model.classes)}).\n"
            "Do: give --stages, --head and --passthrough as it was trained with, and photos of its classes"
        )
    return model
