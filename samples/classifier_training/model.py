"""Networks of torchvision or of your own, with what is needed to read their output, and their file."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.optional import require
from training.saved_tensors import load_saved

__all__ = ["Classifier", "Model", "build_network", "check_network", "load_model", "save_model", "write_onnx"]

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's photos, as torchvision has them
_DO = "Do: give a model.pt that samples/train_classifier.py wrote"


class Classifier(nn.Module):
    """A network with the normalization of its input.

    Inputs: (N, 3, H, W), RGB in 0..1.
    Outputs: (N, classes) logits; in training perhaps a second tensor of an auxiliary classifier.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        for name, values in (("mean", _MEAN), ("deviation", _DEVIATION)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Any:
        """The network's output for images."""
        return self.body((images - self.mean) / self.deviation)


@dataclass(frozen=True)
class Model:
    """A trained network.

    Fields:
        network: In evaluation mode.
        name: As for `_find_network`.
        classes: Names.
        size: Width and height of its input.
    """

    network: Classifier
    name: str
    classes: tuple[str, ...]
    size: int


def _find_network(name: str) -> Callable[[int], nn.Module]:
    """What makes a network for a number of classes.

    Args:
        name: Of torchvision, such as ``resnet50``; or ``FILE.py:FUNCTION``, a function that takes the number of classes and gives a module.

    Raises:
        UsageError: there is no such network.
        MissingExtraError: torchvision is not installed.
    """
    path, colon, function = name.rpartition(":")
    if colon:
        return _function(path, function)
    models = require("torchvision.models", extra="", package="torchvision", feature=f"--model {name}")
    known = models.list_models(module=models)
    if name not in known:
        near = [each for each in known if each[:3] == name[:3]] or ["resnet50", "vgg16"]
        raise UsageError(
            f"--model {name}: torchvision has no such network.\nDo: give {', '.join(near)}, another of torchvision.models, or "
            "FILE.py:FUNCTION"
        )
    options = {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
    return lambda classes: models.get_model(name, weights=None, num_classes=classes, **options)


def _function(path: str, name: str) -> Callable[[int], nn.Module]:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path) if Path(path).is_file() else None
    if spec is None or spec.loader is None:
        raise UsageError(f"--model {path}:{name}: {path} is no Python file.\nDo: ls {Path(path).parent}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"--model {path}:{name}: {path} has no function {name}.\nDo: define it, or give its name")
    return function


def build_network(name: str, classes: int, seed: int = 0) -> Classifier:
    """A network with its seeded first weights; see `_find_network`."""
    torch.manual_seed(seed)
    return Classifier(_find_network(name)(classes))


def check_network(name: str, classes: int, size: int) -> None:
    """Try a network without memory for its numbers: what it cannot do is said before photos are read.

    Raises:
        UsageError: there is no such network, it takes no images of this size, or its output has another shape.
    """
    try:
        with torch.device("meta"):
            out = build_network(name, classes).train()(torch.zeros(2, 3, size, size))
    except RuntimeError as error:
        raise UsageError(
            f"--model {name}: it takes no images of {size} x {size} pixels: {error}.\nDo: give a larger --size"
        ) from error
    for logits in [out] if isinstance(out, Tensor) else out:
        if logits.shape != (2, classes):
            raise UsageError(
                f"--model {name}: its output for 2 images is {tuple(logits.shape)}, expected (2, {classes}).\n"
                "Do: let it give a value for each image and class"
            )


def save_model(path: Path, model: Model) -> None:
    """Write a model; equal models give equal bytes."""
    state = {name: tensor.cpu().clone() for name, tensor in model.network.state_dict().items()}
    file = io.BytesIO()  # torch.save writes the name of a file into it
    torch.save({"model": model.name, "classes": list(model.classes), "size": model.size, "state": state}, file)
    write_atomic(path, file.getvalue())


def load_model(path: Path) -> Model:
    """Read what :func:`save_model` wrote; no code of the file is run.

    Raises:
        FormatError: it is another file, or damaged.
        UsageError: its network is not there.
    """
    try:
        content = load_saved(path)
    except FormatError as error:
        raise FormatError(f"{error}\n{_DO}", path=path) from error
    kinds = {"model": str, "classes": list, "size": int, "state": dict}
    if not isinstance(content, dict) or not all(isinstance(content.get(name), kind) for name, kind in kinds.items()):
        raise FormatError(f"{path}: not a model of this sample.\n{_DO}", path=path)
    name, classes, size, state = (content[name] for name in kinds)
    network = build_network(name, len(classes))
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise FormatError(
            f"{path}: its weights are not those of {name}: {str(error).splitlines()[-1].strip()}\n{_DO}"
        ) from error
    return Model(network.eval(), name, tuple(map(str, classes)), size)


def write_onnx(path: Path, model: Model) -> None:
    """Write the network as an ONNX file: ``images``, (batch, 3, size, size), RGB in 0..1, become ``logits``, (batch, classes)."""
    device = next(model.network.parameters()).device
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other exporter needs onnxscript
        torch.onnx.export(
            model.network,
            (torch.zeros(1, 3, model.size, model.size, device=device),),
            file,
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    write_atomic(path, file.getvalue())
