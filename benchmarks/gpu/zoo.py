"""Networks that others made: torchvision's and transformers' families with random weights, exported by PyTorch on this machine."""

from __future__ import annotations

import importlib
import io
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .zoo_darknet import SIDES, DarknetNet, darknet, darknet_model
from .zoo_second import SECOND
from .zoo_third import THIRD

__all__ = ["NETWORKS", "Network", "chosen", "exported"]

_OPSET = 17
_COARSE = 8  # cells along a side of a drawn image
_CALIBRATED = 4  # images that batch norms see


@dataclass(frozen=True)
class Network:
    """One network.

    Attributes:
        name: Its name.
        module: Makes it, with one input and one output.
        side: Of its square images; 0 for a network that reads words.
        words: How many words a sentence has.
        convolutional: Whether INT8 is measured too.
        export: Module → its ONNX model, where PyTorch's exporter does not make it.
        dims: Of its input without the batch, where that is neither an image nor words.
    """

    name: str
    module: Callable[[], nn.Module]
    side: int = 224
    words: int = 0
    convolutional: bool = True
    export: Callable[[nn.Module], onnx.ModelProto] | None = None
    dims: tuple[int, ...] = ()

    def make(self) -> nn.Module:
        """The module with random weights, the same in each call; the statistics of batch norms are those of a few images."""
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the time that initial weights take
            module = self.module().eval().requires_grad_(False)  # a tensor that it keeps of a run can be copied
        with torch.no_grad():
            _randomize(module)
            norms = [each for each in module.modules() if isinstance(each, _BatchNorm)]
            if norms:
                _fit(module, norms, torch.from_numpy(self.inputs(_CALIBRATED)))
            if isinstance(module, DarknetNet):
                module.even_out(torch.from_numpy(self.inputs(1)))
        return module

    def inputs(self, count: int) -> np.ndarray:
        """Images of coarse cells and noise, (count, 3, side, side) float32 in 0..1; words, (count, words) int64; or noise of `dims`."""
        random = np.random.default_rng(1)
        if self.dims:
            return random.random((count, *self.dims), dtype=np.float32)
        if self.words:
            return random.integers(0, 30000, (count, self.words))
        at = np.arange(self.side) * _COARSE // self.side
        cells = random.random((count, 3, _COARSE, _COARSE), dtype=np.float32)[:, :, at][..., at]
        return 0.75 * cells + 0.25 * random.random((count, 3, self.side, self.side), dtype=np.float32)


def exported(network: Network, module: nn.Module, dynamo: bool = False) -> onnx.ModelProto:
    """The module as ONNX, for any batch, with one input and one output."""
    if network.export is not None:
        return network.export(module)
    example = torch.from_numpy(network.inputs(2))  # a batch of 1 would be taken for fixed
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of both exporters, about themselves
        if dynamo:
            shapes = ({0: torch.export.Dim("N", min=1, max=1024)},)
            program = torch.onnx.export(
                module, (example,), dynamo=True, dynamic_shapes=shapes, verbose=False, opset_version=18, **names
            )
            return program.model_proto
        written = io.BytesIO()
        axes = {"x": {0: "N"}, "y": {0: "N"}}
        torch.onnx.export(module, (example,), written, dynamo=False, opset_version=_OPSET, dynamic_axes=axes, **names)
    return onnx.load_from_string(written.getvalue())


def _randomize(module: nn.Module) -> None:
    """Draw what starts at zero, one, or next to nothing: affine batch norms, heads of ViT and RetinaNet, ConvNeXt's scales."""
    for each in module.modules():
        if isinstance(each, _BatchNorm):
            each.weight.uniform_(0.25, 0.75)
            each.bias.normal_(0, 0.4)
        elif isinstance(each, nn.Linear) and not each.weight.any():
            each.weight.normal_(0, each.in_features**-0.5)
        elif isinstance(each, nn.Conv2d) and each.weight.std() < 0.5 * each.weight[0].numel() ** -0.5:
            each.weight.normal_(0, (2 / each.weight[0].numel()) ** 0.5)
    for name, parameter in module.named_parameters():
        if name.endswith("layer_scale"):
            parameter.uniform_(0.1, 0.3)


def _fit(module: nn.Module, norms: Sequence[nn.BatchNorm2d], images: torch.Tensor) -> None:
    """Give batch norms the statistics of the images, each behind those that have them already."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    module(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
        assert norm.running_var is not None
        norm.running_var.clamp_(min=0.1 * float(norm.running_var.mean()))  # so that no channel amplifies rounding


class _Field(nn.Module):
    """A module whose result has one part that counts: an entry or an attribute."""

    def __init__(self, inner: nn.Module, name: str) -> None:
        super().__init__()
        self.inner, self.name = inner, name

    def forward(self, x: torch.Tensor) -> Any:
        found = self.inner(x)
        return found[self.name] if isinstance(found, dict) else getattr(found, self.name)


class _Detector(nn.Module):
    """A detector's convolutions without anchors and suppression: classes and boxes of each place, side by side."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.head(list(self.backbone(x).values()))
        return torch.cat([found["cls_logits"], found["bbox_regression"]], -1)


class _Unet(nn.Module):
    """U-Net: down by pools, up by transposed convolutions, joined on each level."""

    def __init__(self, width: int = 64, levels: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.downs = nn.ModuleList(map(_twice, [3, *widths], widths))
        self.middle = _twice(widths[-1], 2 * widths[-1])
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * each, each, 2, 2) for each in reversed(widths))
        self.joins = nn.ModuleList(_twice(2 * each, each) for each in reversed(widths))
        self.last, self.pool = nn.Conv2d(width, 2, 1), nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.downs:
            kept.append(down(x))
            x = self.pool(kept[-1])
        x = self.middle(x)
        for up, join in zip(self.ups, self.joins, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


def _twice(given: int, made: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (given, made):
        layers += [nn.Conv2d(channels, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def _library(name: str) -> Any:
    """A library whose networks are raced; skips the row where it is not installed."""
    return pytest.importorskip(name, exc_type=ImportError)


def _torchvision(name: str) -> nn.Module:
    return getattr(_library("torchvision.models"), name)(weights=None)


def _segmentation(name: str) -> nn.Module:
    _library("torchvision")
    family = importlib.import_module("torchvision.models.segmentation")
    return _Field(getattr(family, name)(weights=None, weights_backbone=None), "out")


def _detection(name: str) -> nn.Module:
    _library("torchvision")
    family = importlib.import_module("torchvision.models.detection")
    return _Detector(getattr(family, name)(weights=None, weights_backbone=None))


def _transformers(model: str, config: str) -> nn.Module:
    library = _library("transformers")
    inner = getattr(library, model)(getattr(library, config)(), add_pooling_layer=False)
    return _Field(inner, "last_hidden_state")


_CLASSIFIERS = (
    "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "vgg16", "densenet121", "googlenet", "inception_v3",
    "squeezenet1_1", "shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_v2_s",
    "regnet_y_400mf", "mnasnet1_0", "convnext_tiny", "vit_b_16", "swin_t",
)  # fmt: skip
_TRANSFORMERS = ("vit_b_16", "swin_t")
_ALL = (
    *(
        Network(name, partial(_torchvision, name), 299 if name == "inception_v3" else 224, 0, name not in _TRANSFORMERS)
        for name in _CLASSIFIERS
    ),
    *(
        Network(name, partial(_segmentation, name))
        for name in ("deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large")
    ),
    Network("ssdlite320_mobilenet_v3_large", partial(_detection, "ssdlite320_mobilenet_v3_large"), 320),
    Network("retinanet_resnet50_fpn", partial(_detection, "retinanet_resnet50_fpn"), 512),
    Network("unet", _Unet, 256),
    *(Network(name, partial(darknet, name), side, export=darknet_model) for name, side in SIDES.items()),
    Network("bert_base", partial(_transformers, "BertModel", "BertConfig"), 0, 128, False),
    Network("vit_base", partial(_transformers, "ViTModel", "ViTConfig"), 224, 0, False),
)
NETWORKS = {
    **{network.name: network for network in _ALL},
    **{name: Network(name, **facts) for name, facts in (SECOND | THIRD).items()},
}
"""The networks of all zoos, by name."""
SETS = {"first": tuple(network.name for network in _ALL), "second": tuple(SECOND), "third": tuple(THIRD)}


def chosen() -> tuple[str, ...]:
    """The networks and zoos (``first``, ``second``, ``third``) that BENCHMARK_ZOO names, separated by commas; by default the first zoo."""
    words = (word.strip() for word in os.environ.get("BENCHMARK_ZOO", "").split(",") if word.strip())
    names = tuple(name for word in words for name in SETS.get(word, (word,)))
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        raise ValueError(f"BENCHMARK_ZOO: {', '.join(unknown)} unknown; there are {', '.join((*SETS, *NETWORKS))}")
    return names or SETS["first"]
