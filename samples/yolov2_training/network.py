"""A compact YOLOv2: its layers are declared once, and PyTorch's modules and darknet's .cfg both follow from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ANCHORS", "Convolution", "Layer", "Maxpool", "Reorg", "Route", "Yolov2", "declare_layers", "reorg"]

ANCHORS = 5  # boxes that every cell predicts


@dataclass(frozen=True)
class Convolution:
    """A convolution; with batch normalization and leaky ReLU unless it is the last one."""

    filters: int
    size: int
    last: bool = False


@dataclass(frozen=True)
class Maxpool:
    """Halves width and height."""


@dataclass(frozen=True)
class Reorg:
    """Darknet's block permutation with stride 2: a quarter of the cells, four times the channels."""


@dataclass(frozen=True)
class Route:
    """Concatenates the outputs of earlier layers, given relative to this one."""

    layers: tuple[int, ...]


Layer = Convolution | Maxpool | Reorg | Route


def declare_layers(stages: Sequence[int], head: int, passthrough: int, classes: int) -> list[Layer]:
    """YOLOv2-VOC's layers with other widths.

    Args:
        stages: Filters of the trunk's six stages; the input is halved between any two of them.
        head: Filters of the three 3x3 convolutions before the last one.
        passthrough: Filters of the 1x1 convolution on the fine grid, before reorg.
        classes: Number of classes.

    Returns:
        Darknet's layers in file order, without the closing region layer.
    """
    a, b, c, d, e, f = stages

    def trio(n: int) -> list[Layer]:
        return [Convolution(n, 3), Convolution(n // 2, 1), Convolution(n, 3)]

    def quintet(n: int) -> list[Layer]:
        return [*trio(n), Convolution(n // 2, 1), Convolution(n, 3)]

    return [
        *(Convolution(a, 3), Maxpool(), Convolution(b, 3), Maxpool()),
        *(*trio(c), Maxpool(), *trio(d), Maxpool()),
        *(*quintet(e), Maxpool(), *quintet(f)),
        *(Convolution(head, 3), Convolution(head, 3)),
        *(Route((-9,)), Convolution(passthrough, 1), Reorg(), Route((-1, -4))),
        *(Convolution(head, 3), Convolution(ANCHORS * (5 + classes), 1, last=True)),
    ]


def reorg(x: Tensor) -> Tensor:
    """Darknet's reorg with stride 2, which is not space-to-depth: the buffer is first re-read as (C/4, 2H, 2W)."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c // 4, h, 2, w, 2)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


class Yolov2(nn.Module):
    """The network, up to the input of the region layer.

    Args:
        layers: From :func:`declare_layers`.
        dropout: Share of channels dropped after the concatenating route, in training only; darknet sees none of it.

    Inputs: (N, 3, H, W), RGB in 0..1, H and W multiples of 32.
    Outputs: (N, anchors * (5 + classes), H/32, W/32), raw.
    """

    def __init__(self, layers: Sequence[Layer], dropout: float = 0.0) -> None:
        super().__init__()
        self.layers, self.dropout = tuple(layers), dropout
        self.parts, channels = nn.ModuleList(), [3]
        for i, layer in enumerate(layers):
            if isinstance(layer, Convolution):
                self.parts.append(_convolution(channels[-1], layer))
                channels.append(layer.filters)
            elif isinstance(layer, Route):
                self.parts.append(nn.Identity())
                channels.append(sum(channels[i + 1 + back] for back in layer.layers))
            else:
                self.parts.append(nn.MaxPool2d(2) if isinstance(layer, Maxpool) else nn.Identity())
                channels.append(channels[-1] * (4 if isinstance(layer, Reorg) else 1))
        self._needed = {i + back for i, layer in enumerate(layers) if isinstance(layer, Route) for back in layer.layers}
        first = next(i for i, layer in enumerate(layers) if isinstance(layer, Route))
        self.feature_layers = (first - 1, first + layers[first].layers[0])
        self.feature_channels = tuple(channels[1 + i] for i in self.feature_layers)
        before = range(min(self._needed.union(self.feature_layers)))
        self._half = 1 + max(i for i in before if isinstance(layers[i], Maxpool))

    def forward(self, x: Tensor) -> Tensor:
        """The region layer's input for images ``x``."""
        return self.forward_with_features(x)[0]

    def forward_with_features(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The same, with the features on the coarse and the fine grid that a teacher may shape."""
        return self.finish(self.begin(x))

    def begin(self, x: Tensor) -> Tensor:
        """The layers up to a pooling: the larger part of the computation, with few of the weights.

        Ranks exchange gradients of weights while the gradient of what is before them is computed. A compiler gives all gradients of a
        function at once, so it compiles this one and `finish` apart.
        """
        for part in self.parts[: self._half]:
            x = part(x)
        return x

    def finish(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The layers behind `begin`: the region layer's input, and the features."""
        kept: dict[int, Tensor] = {}
        for i in range(self._half, len(self.layers)):
            layer, part = self.layers[i], self.parts[i]
            if isinstance(layer, Route):
                x = torch.cat([kept[i + back] for back in layer.layers], 1)
                if len(layer.layers) > 1:
                    x = functional.dropout2d(x, self.dropout, self.training)
            else:
                x = reorg(x) if isinstance(layer, Reorg) else part(x)
            if self.keeps(i):
                kept[i] = x
        return x, [kept[i] for i in self.feature_layers]

    def keeps(self, layer: int) -> bool:
        """Whether the output of a layer, by its number, is needed by more than the layer behind it."""
        return layer in self.feature_layers or layer in self._needed

    def convolutions(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d | None]]:
        """Every convolution with its batch norm, in the order of the .weights file."""
        found: list[tuple[nn.Conv2d, nn.BatchNorm2d | None]] = []
        for layer, part in zip(self.layers, self.parts, strict=True):
            if isinstance(layer, Convolution):
                found.append((part, None) if layer.last else (part[0], part[1]))
        return found


def _convolution(channels: int, layer: Convolution) -> nn.Module:
    if layer.last:
        last = nn.Conv2d(channels, layer.filters, layer.size)
        nn.init.normal_(last.weight, std=0.01)
        nn.init.zeros_(last.bias)
        last.bias.data.view(ANCHORS, -1)[:, 4] = -4.0  # objectness: most cells hold nothing
        return last
    convolution = nn.Conv2d(channels, layer.filters, layer.size, padding=layer.size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, a=0.1, mode="fan_out")
    return nn.Sequential(convolution, nn.BatchNorm2d(layer.filters, momentum=0.03), nn.LeakyReLU(0.1))
