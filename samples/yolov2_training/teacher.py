"""Learning from a teacher: a network trained on more images, whose feature maps the student learns to predict.

The teacher's classes need not be the student's. What is imitated is how its features vary over a batch: the correlation
of every channel with a linear map of the student's features (Cao et al., "PKD", 2022). The linear maps exist in training
alone; nothing of the teacher is in the exported network.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pytrtplugins.errors import CfgError, WeightsError

__all__ = ["Imitation", "Teacher"]

HEADER_BYTES = 20
EPSILON = 1e-5  # of the teacher's batch norm: AlexeyAB/darknet src/blas.c normalize_cpu
Section = dict[str, str]


class Teacher(nn.Module):
    """A darknet network with [yolo] heads, frozen; enough layer types for Yolo-Fastest.

    Args:
        cfg: Path of the .cfg; the .weights lie beside it under the same name.

    Raises:
        CfgError: A layer type that is not known here.
        WeightsError: Too few or too many weights.
    """

    def __init__(self, cfg: Path) -> None:
        super().__init__()
        self.sections = _read_cfg(cfg)
        weights = cfg.with_suffix(".weights")
        flat = np.fromfile(weights, np.float32, offset=HEADER_BYTES)
        self.parts, channels, position = nn.ModuleList(), [3], 0
        for i, section in enumerate(self.sections):
            kind, part, width = section["type"], nn.Identity(), channels[-1]
            if kind == "convolutional":
                part, used = _convolution(section, width, flat[position:], weights)
                position, width = position + used, part.out_channels
            elif kind == "route":
                width = sum(channels[1 + j] for j in self._sources(i))
            elif kind == "maxpool":
                part = nn.MaxPool2d(int(section["size"]), int(section["stride"]), int(section["size"]) // 2)
            elif kind not in ("shortcut", "upsample", "dropout", "yolo"):
                raise CfgError(f"{cfg}: a teacher's layer [{kind}] is not known here.", path=cfg)
            self.parts.append(part)
            channels.append(width)
        if position != len(flat):
            raise WeightsError(f"{weights}: expected {position} numbers, found {len(flat)}.", path=weights)
        self.channels = [
            (channels[i - 1], channels[i]) for i, section in enumerate(self.sections) if section["type"] == "yolo"
        ]
        self.requires_grad_(False).eval()

    def _sources(self, i: int) -> list[int]:
        layers = [int(value) for value in self.sections[i]["layers"].split(",")]
        return [i + j if j < 0 else j for j in layers]

    def forward(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For every head the features before its last convolution, and the head's raw output."""
        outputs: list[Tensor] = []
        heads = []
        for i, (section, part) in enumerate(zip(self.sections, self.parts, strict=True)):
            match section["type"]:
                case "route":
                    x = torch.cat([outputs[j] for j in self._sources(i)], 1)
                case "shortcut":
                    x = x + outputs[i + int(section["from"])]
                case "upsample":
                    x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
                case "yolo":
                    heads.append((outputs[i - 2], x))
                case _:
                    x = part(x)
                    if section.get("activation") == "leaky":
                        x = functional.leaky_relu(x, 0.1)
            outputs.append(x)
        return heads


def _read_cfg(path: Path) -> list[Section]:
    sections: list[Section] = []
    for line in path.read_text().splitlines():
        text = line.split("#")[0].strip()
        if text.startswith("["):
            sections.append({"type": text.strip("[]")})
        elif text:
            key, _, value = text.partition("=")
            sections[-1][key.strip()] = value.strip()
    return sections[1:]


def _convolution(section: Section, channels: int, flat: np.ndarray, path: Path) -> tuple[nn.Conv2d, int]:
    """A convolution with its batch norm folded in, and how many numbers of the file it took."""
    filters, size, groups = int(section["filters"]), int(section["size"]), int(section.get("groups", 1))
    shape = (filters, channels // groups, size, size)
    vectors, count = (4 if section.get("batch_normalize") == "1" else 1), int(np.prod(shape))
    used = vectors * filters + count
    if used > len(flat):
        raise WeightsError(f"{path}: too short for the .cfg.", path=path)
    head = torch.from_numpy(flat[: vectors * filters].copy()).view(vectors, filters)
    weight = torch.from_numpy(flat[vectors * filters : used].copy()).view(shape)
    bias = head[0]
    if vectors == 4:
        gain = head[1] / (head[3] + EPSILON).sqrt()
        weight, bias = weight * gain[:, None, None, None], bias - head[2] * gain
    part = nn.Conv2d(channels, filters, size, int(section["stride"]), size // 2, groups=groups)
    part.weight.data, part.bias.data = weight, bias  # type: ignore[union-attr]
    return part, used


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
