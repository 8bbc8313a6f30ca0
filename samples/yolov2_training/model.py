"""A trained network with what is needed to read its output, and its file."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.utils.atomic import write_atomic
from training.saved_tensors import load_saved

from .network import ANCHORS, Yolov2, declare_layers
from .recipe import Recipe

__all__ = ["Model", "build_network", "load_model", "save_model"]


@dataclass(frozen=True)
class Model:
    """A trained network with what is needed to read its output."""

    network: Yolov2
    anchors: Tensor
    classes: tuple[str, ...]


_WIDEST = 8192  # filters of a layer, as for the options
_DO = "Do: give a model.pt that samples/train_yolov2.py wrote"


def build_network(recipe: Recipe, classes: int) -> Yolov2:
    """The recipe's network with its seeded first weights."""
    torch.manual_seed(recipe.seed)
    return Yolov2(declare_layers(recipe.stages, recipe.head, recipe.passthrough, classes), recipe.dropout)


def save_model(path: Path, model: Model, recipe: Recipe) -> None:
    """Write a model for evaluation and export anywhere; the weights of convolutions as float16, where that holds them.

    Equal models give equal bytes.
    """
    state = {name: _narrow(tensor).cpu().clone() for name, tensor in model.network.state_dict().items()}
    content = {
        "recipe": recipe.to_dict(),
        "state": state,
        "anchors": model.anchors.cpu(),
        "classes": list(model.classes),
    }
    file = io.BytesIO()  # torch.save writes the name of a file into it
    torch.save(content, file)
    write_atomic(path, file.getvalue())


def _narrow(tensor: Tensor) -> Tensor:
    """Weights of a convolution as float16; not those that it cannot hold, and no biases and statistics, which are few."""
    half = tensor.half() if tensor.ndim == 4 else tensor
    return half if half.isfinite().all() else tensor


def load_model(path: Path) -> tuple[Model, Recipe]:
    """Read what :func:`save_model` wrote; no code of the file is run, and sizes are compared before memory is taken.

    Raises:
        FormatError: it is another file, or damaged.
        UsageError: it cannot be read.
    """
    try:
        content = load_saved(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.\n{_DO}", path=path) from error
    except FormatError as error:
        raise FormatError(f"{error}\n{_DO}", path=path) from error
    try:
        return _model_of(content)
    except _NoModelError as error:
        raise FormatError(f"{path}: not a model of this sample: {error}.\n{_DO}", path=path) from error


class _NoModelError(ValueError):
    """What a model.pt lacks."""


def _model_of(content: Any) -> tuple[Model, Recipe]:
    if not isinstance(content, dict) or not {"recipe", "state", "anchors", "classes"} <= content.keys():
        keys = ", ".join(map(str, content))[:200] if isinstance(content, dict) else type(content).__name__
        raise _NoModelError(f"it has {keys or 'nothing'}, and no recipe, state, anchors and classes")
    values, state, anchors, classes = (content[name] for name in ("recipe", "state", "anchors", "classes"))
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) and name for name in classes):
        raise _NoModelError("its classes are no list of names")
    if not torch.is_tensor(anchors) or anchors.shape != (ANCHORS, 2) or not (anchors.isfinite() & (anchors > 0)).all():
        raise _NoModelError(f"its anchors are not {ANCHORS} pairs of sizes")
    if not isinstance(state, dict) or not all(torch.is_tensor(tensor) for tensor in state.values()):
        raise _NoModelError("its state is no dict of tensors")
    if not isinstance(values, dict):
        raise _NoModelError("its recipe is no dict")
    recipe = Recipe.from_dict(values)
    widths = [*recipe.stages, recipe.head, recipe.passthrough] if isinstance(recipe.stages, tuple) else []
    if len(widths) != 8 or not all(type(width) is int and 1 <= width <= _WIDEST for width in widths):
        raise _NoModelError("the widths of its recipe are not those of a network")
    layers = declare_layers(recipe.stages, recipe.head, recipe.passthrough, len(classes))
    with torch.device("meta"):  # which takes no memory
        expected = {name: tensor.shape for name, tensor in Yolov2(layers, 0.0).state_dict().items()}
    shapes = {name: tensor.shape for name, tensor in state.items()}
    if wrong := [name for name in expected | shapes if expected.get(name) != shapes.get(name)]:
        raise _NoModelError(
            f"its tensor {wrong[0]} is {_dims(shapes, wrong[0])}, its recipe says {_dims(expected, wrong[0])}"
        )
    if any(tensor.untyped_storage().nbytes() < tensor.numel() * tensor.itemsize for tensor in state.values()):
        raise _NoModelError("its tensors repeat fewer numbers than they have")
    if not all(tensor.isfinite().all() for tensor in state.values()):
        raise _NoModelError("its weights are not all finite numbers")
    network = Yolov2(layers, 0.0)
    network.load_state_dict(state)
    return Model(network.eval(), anchors, tuple(classes)), recipe


def _dims(shapes: dict[str, torch.Size], name: str) -> str:
    return "x".join(map(str, shapes[name])) or "one number" if name in shapes else "missing"
