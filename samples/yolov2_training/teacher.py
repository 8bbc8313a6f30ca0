"""Learning from a teacher: a network trained on more images, whose feature maps the student learns to predict.

The teacher's classes need not be the student's. What is imitated is how its features vary over a batch: the correlation
of every channel with a linear map of the student's features (Cao et al., "PKD", 2022). The linear maps exist in training
alone; nothing of the teacher is in the exported network.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from darknet2caffe import Network, read_network
from darknet2caffe.layers import Convolutional, Maxpool, Route, Shortcut, Upsample
from pytrtplugins.errors import CfgError

__all__ = ["Imitation", "Teacher"]

EPSILON = 1e-5  # of the teacher's batch norm: AlexeyAB/darknet src/blas.c normalize_cpu
_KNOWN = ("convolutional", "maxpool", "route", "shortcut", "upsample", "dropout", "yolo")


class Teacher(nn.Module):
    """A darknet network with [yolo] heads, frozen; enough layer types for Yolo-Fastest.

    Args:
        cfg: Path of the .cfg; the .weights lie beside it under the same name.

    Raises:
        CfgError: A layer type that is not known here, or an [upsample] that shrinks or scales.
        WeightsError: Too few or too many weights.
    """

    def __init__(self, cfg: Path) -> None:
        super().__init__()
        network = read_network(cfg, cfg.with_suffix(".weights"), dialect="alexeyab")
        self.layers = network.layers
        for layer in self.layers:
            if layer.type not in _KNOWN or getattr(layer, "activation", "linear") not in ("linear", "leaky"):
                raise CfgError(f"{cfg}: a teacher's layer [{layer.type}] is not known here.", path=cfg)
            if isinstance(layer, Upsample) and (layer.reverse or layer.scale != 1):
                raise CfgError(f"{cfg}: a teacher's [upsample] has a positive stride and no scale here.", path=cfg)
        self.parts = nn.ModuleList(_part(network, number) for number in range(len(self.layers)))
        heads = [layer.index for layer in self.layers if layer.type == "yolo"]
        self.channels = [(self.layers[i - 2].dims[0], self.layers[i - 1].dims[0]) for i in heads]
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For every head the features before its last convolution, and the head's raw output."""
        outputs, heads = list[Tensor](), []
        for layer, part in zip(self.layers, self.parts, strict=True):
            given = [x if source < 0 else outputs[source] for source in layer.inputs]
            if layer.type == "yolo":
                heads.append((outputs[-2], outputs[-1]))
            if isinstance(layer, Route):
                out = torch.cat(given, 1)
            elif isinstance(layer, Shortcut):
                out = given[0] + given[1]
            elif isinstance(layer, Upsample):
                out = functional.interpolate(given[0], scale_factor=float(layer.stride), mode="nearest")
            else:
                out = part(given[0])
            outputs.append(functional.leaky_relu(out, 0.1) if getattr(layer, "activation", "") == "leaky" else out)
        return heads


def _part(network: Network, number: int) -> nn.Module:
    """A layer as a module; of a convolution the batch norm is folded in."""
    layer = network.layers[number]
    if isinstance(layer, Maxpool):
        return nn.MaxPool2d(layer.size, layer.stride, layer.size // 2)
    if not isinstance(layer, Convolutional):
        return nn.Identity()
    arrays = {name: torch.from_numpy(array.copy()) for name, array in network.parameters(layer).items()}
    weight, bias = arrays["weights"], arrays["biases"]
    if layer.batch_normalize:
        gain = arrays["scales"] / (arrays["rolling_variance"] + EPSILON).sqrt()
        weight, bias = weight * gain[:, None, None, None], bias - arrays["rolling_mean"] * gain
    channels = layer.input_dims[0][0]
    part = nn.Conv2d(channels, layer.filters, layer.size, layer.stride, layer.padding, groups=layer.groups)
    part.weight.data, part.bias.data = weight, bias  # type: ignore[union-attr]
    return part


class Imitation(nn.Module):
    """One linear map for each of the teacher's heads, and the loss 1 - correlation.

    Args:
        student: Channels of the student's feature maps, in the order of the teacher's heads.
        teacher: :attr:`Teacher.channels`.
    """

    def __init__(self, student: Sequence[int], teacher: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Conv2d(c, sum(t), 1) for c, t in zip(student, teacher, strict=True))

    def forward(self, student: Sequence[Tensor], teacher: Sequence[tuple[Tensor, Tensor]], gate: Tensor) -> Tensor:
        """The mean loss of features and head outputs; 0 when all are linear functions of the student's features.

        Args:
            student: Feature maps.
            teacher: For each of them the features and outputs to predict.
            gate: 0 or 1; at 0 only the linear maps learn, so that random ones do not disturb the student.
        """
        losses = []
        for part, features, wanted in zip(self.maps, student, teacher, strict=True):
            gated = features.detach() + gate * (features - features.detach())
            guess = part(gated).split([t.shape[1] for t in wanted], 1)
            losses += [1 - _correlation(g.float(), t.float()).mean() for g, t in zip(guess, wanted, strict=True)]
        return torch.stack(losses).mean()


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation of every channel over the batch and all cells."""
    a, b = (t - t.mean((0, 2, 3), keepdim=True) for t in (a, b))
    spread = (a.square().mean((0, 2, 3)) * b.square().mean((0, 2, 3)) + 1e-10).sqrt()
    return (a * b).mean((0, 2, 3)) / spread
