"""A trained network with what is needed to read its output, and its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.files import atomic_path

from .network import Yolov2, declare_layers
from .recipe import Recipe

__all__ = ["Model", "build_network", "load_model", "save_model"]


@dataclass(frozen=True)
class Model:
    """A trained network with what is needed to read its output."""

    network: Yolov2
    anchors: Tensor
    classes: tuple[str, ...]


def build_network(recipe: Recipe, classes: int) -> Yolov2:
    """The recipe's network with its seeded first weights."""
    torch.manual_seed(recipe.seed)
    return Yolov2(declare_layers(recipe.stages, recipe.head, recipe.passthrough, classes), recipe.dropout)


def save_model(path: Path, model: Model, recipe: Recipe) -> None:
    """Write a model as float16 tensors, for evaluation and export anywhere."""
    state = {k: v.half().cpu() if v.dtype.is_floating_point else v.cpu() for k, v in model.network.state_dict().items()}
    content = {
        "recipe": recipe.to_dict(),
        "state": state,
        "anchors": model.anchors.cpu(),
        "classes": list(model.classes),
    }
    with atomic_path(path) as temporary:
        torch.save(content, temporary)


def load_model(path: Path) -> tuple[Model, Recipe]:
    """Read what :func:`save_model` wrote.

    Raises:
        FormatError: the file is missing, or something else.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # PyTorch raises many types for files of other kinds
        reason = "no such file" if isinstance(error, FileNotFoundError) else "not a model that PyTorch can read"
        raise FormatError(
            f"{path}: {reason}.\nDo: give a model.pt that samples/train_yolov2.py wrote", path=path
        ) from error
    if not isinstance(content, dict) or not {"recipe", "state", "anchors", "classes"} <= content.keys():
        raise FormatError(
            f"{path}: not a model of this sample.\nDo: give a model.pt that samples/train_yolov2.py wrote", path=path
        )
    recipe = Recipe.from_dict(content["recipe"])
    network = build_network(recipe, len(content["classes"]))
    try:
        network.load_state_dict(content["state"])
    except RuntimeError as error:
        raise FormatError(
            f"{path}: its weights are not those of its recipe.\nDo: give a model.pt that samples/train_yolov2.py wrote",
            path=path,
        ) from error
    return Model(network.eval(), content["anchors"], tuple(content["classes"])), recipe
