"""Networks as others write them: families in torch.nn, trained for a moment on drawn images, by either of PyTorch's exporters."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["EXPORTERS", "FAMILIES", "SIZE", "exported", "images"]

SIZE = 96
_STEPS, _BATCH = 24, 8
_OPSET = 18


def images(family: str, count: int, seed: int) -> npt.NDArray[np.float32]:
    """What a family looks at, (count, 3, SIZE, SIZE) in 0..1: lines of dark strokes on a plain page for crnn, scenes for others."""
    random = np.random.default_rng(seed)
    return np.stack([_page(random) if family == "crnn" else _scene(random) for _ in range(count)])


def _scene(random: np.random.Generator) -> npt.NDArray[np.float32]:
    """A smooth ground, bars and discs on it, a little noise."""
    rows, columns = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) / SIZE
    tilt = random.uniform(-1, 1, (3, 2)).astype(np.float32)
    image = 0.5 + 0.3 * (tilt[:, 0, None, None] * (rows - 0.5) + tilt[:, 1, None, None] * (columns - 0.5))
    for _ in range(int(random.integers(2, 7))):
        y, x, radius = random.uniform(0.1, 0.9), random.uniform(0.1, 0.9), random.uniform(0.04, 0.25)
        if random.random() < 0.5:
            inside = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
        else:
            inside = (abs(rows - y) < radius) & (abs(columns - x) < radius * random.uniform(0.1, 1))
        image[:, inside] = random.uniform(0, 1, (3, 1))
    return np.clip(image + random.normal(0, 0.02, image.shape), 0, 1).astype(np.float32)


def _page(random: np.random.Generator) -> npt.NDArray[np.float32]:
    """Upright and level strokes in a line, all else the page's own grey."""
    image = np.full((3, SIZE, SIZE), random.uniform(0.85, 0.95), np.float32)
    at = int(random.integers(4, 20))
    while at < SIZE - 16:
        width, top = int(random.integers(6, 12)), SIZE // 2 - int(random.integers(8, 16))
        for _ in range(int(random.integers(2, 4))):
            if random.random() < 0.5:
                stroke = at + int(random.integers(0, width))
                image[:, top : SIZE // 2 + 12, stroke : stroke + 2] = 0.1
            else:
                level = int(random.integers(top, SIZE // 2 + 12))
                image[:, level : level + 2, at : at + width] = 0.1
        at += width + 4
    return image


class _Block(nn.Sequential):
    """Convolution, batch norm, activation."""

    def __init__(self, given: int, made: int, kernel: int = 3, stride: int = 1, group: int = 1, act: Any = nn.SiLU):
        layers = [
            nn.Conv2d(given, made, kernel, stride, kernel // 2, groups=group, bias=False),
            nn.BatchNorm2d(made),
        ]
        super().__init__(*layers, *([act()] if act is not None else []))


class _Bottleneck(nn.Module):
    """YOLOv5's: two convolutions, and what entered added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = _Block(channels, channels, 1), _Block(channels, channels, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.first(x))


class _C3(nn.Module):
    """YOLOv5's stage: two branches joined by a concatenation."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        half = channels // 2
        self.left, self.right = _Block(channels, half, 1), _Block(channels, half, 1)
        self.inner = nn.Sequential(*[_Bottleneck(half) for _ in range(depth)])
        self.last = _Block(2 * half, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.inner(self.left(x)), self.right(x)], 1))


class _Sppf(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = _Block(channels, channels // 2, 1), _Block(channels * 2, channels, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


def _yolov5(act: Any = nn.SiLU) -> nn.Module:
    return nn.Sequential(
        _Block(3, 16, 6, 2), _Block(16, 32, 3, 2), _C3(32, 1), _Block(32, 64, 3, 2), _C3(64, 2), _Block(64, 128, 3, 2),
        _C3(128, 1), _Sppf(128), nn.Conv2d(128, 24, 1), nn.Flatten(), nn.LazyLinear(10),
    )  # fmt: skip


class _Squeeze(nn.Module):
    """Squeeze and excite: each channel times a gate from its own mean."""

    def __init__(self, channels: int, gate: Any, act: Any) -> None:
        super().__init__()
        self.gates = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // 4, 1),
            act(),
            nn.Conv2d(channels // 4, channels, 1),
            gate(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gates(x)


class _Inverted(nn.Module):
    """MobileNetV2's, V3's and EfficientNet's block: wide depthwise convolution between two narrow ones."""

    def __init__(self, given: int, made: int, stride: int, act: Any, gate: Any) -> None:
        super().__init__()
        wide = given * 4
        squeeze = [] if gate is None else [_Squeeze(wide, gate, nn.SiLU if act is nn.SiLU else nn.ReLU)]
        self.body = nn.Sequential(
            _Block(given, wide, 1, act=act), _Block(wide, wide, 3, stride, wide, act=act), *squeeze,
            _Block(wide, made, 1, act=None),
        )  # fmt: skip
        self.adds = stride == 1 and given == made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def _inverted(act: Any, gate: Any) -> nn.Module:
    return nn.Sequential(
        _Block(3, 16, 3, 2, act=act), _Inverted(16, 24, 2, act, gate), _Inverted(24, 24, 1, act, gate),
        _Inverted(24, 40, 2, act, gate), _Inverted(40, 40, 1, act, gate), _Inverted(40, 80, 2, act, gate),
        _Inverted(80, 80, 1, act, gate), _Block(80, 240, 1, act=act), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(240, 128), act(), nn.Linear(128, 10),
    )  # fmt: skip


class _Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_Block(given, made, 3, stride, act=nn.ReLU), _Block(made, made, act=None))
        self.side = nn.Identity() if given == made and stride == 1 else _Block(given, made, 1, stride, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.side(x))


def _resnet() -> nn.Module:
    return nn.Sequential(
        _Block(3, 32, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1), _Residual(32, 32, 1), _Residual(32, 32, 1),
        _Residual(32, 64, 2), _Residual(64, 64, 1), _Residual(64, 128, 2), _Residual(128, 128, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


class _ConvNextBlock(nn.Module):
    """Depthwise 7x7, layer norm over the channels, two linear layers with GELU, a scale a channel, and what entered."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.first, self.second = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.act = nn.GELU()
        self.scale = nn.Parameter(0.3 * torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.second(self.act(self.first(y)))
        return x + y.permute(0, 3, 1, 2)


def _convnext() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 48, 4, 4), _ConvNextBlock(48), _ConvNextBlock(48), nn.Conv2d(48, 96, 2, 2),
        _ConvNextBlock(96), _ConvNextBlock(96), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(96), nn.Linear(96, 10),
    )  # fmt: skip


class _Attention(nn.Module):
    """A transformer's layer, normalized first."""

    def __init__(self, width: int, heads: int, approximate: str) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act = nn.GELU(approximate=approximate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, count, width = x.shape
        parts = self.three(self.before(x)).reshape(n, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        weights = torch.softmax(query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(n, count, width))
        return x + self.second(self.act(self.first(self.after(x))))


class _Vit(nn.Module):
    def __init__(self, width: int = 128, depth: int = 4, approximate: str = "none") -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.place = nn.Parameter(0.1 * torch.randn(1, (SIZE // 8) ** 2, width))
        self.layers = nn.Sequential(*[_Attention(width, 4, approximate) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.layers(x)).mean(1))


class _DenseLayer(nn.Module):
    """DenseNet's: batch norm and ReLU before each convolution, the result joined to all before it."""

    def __init__(self, given: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(given), nn.ReLU(), nn.Conv2d(given, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.body(x)], 1)


def _densenet() -> nn.Module:
    layers: list[nn.Module] = [_Block(3, 32, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels = 32
    for stage in range(3):
        for _ in range(4):
            layers.append(_DenseLayer(channels, 16))
            channels += 16
        if stage < 2:
            layers += [
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            channels //= 2
    return nn.Sequential(
        *layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)
    )


class _Crnn(nn.Module):
    """Text recognition: convolutions that squeeze the height, then a step of two linear layers for each column."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _Block(3, 32, act=nn.ReLU), nn.MaxPool2d(2), _Block(32, 64, act=nn.ReLU), nn.MaxPool2d(2),
            _Block(64, 128, act=nn.ReLU), _Block(128, 128, act=nn.ReLU), nn.MaxPool2d((2, 1)),
            _Block(128, 128, act=nn.ReLU), nn.MaxPool2d((2, 1)),
        )  # fmt: skip
        self.first, self.second = nn.Linear(128 * (SIZE // 16), 128), nn.Linear(128, 37)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x).flatten(1, 2).transpose(1, 2)
        return self.second(functional.hardtanh(self.first(x), 0, 6))


FAMILIES: Mapping[str, Callable[[], nn.Module]] = {
    "yolov5": _yolov5,
    "efficientnet": lambda: _inverted(nn.SiLU, nn.Sigmoid),
    "mobilenetv3": lambda: _inverted(nn.Hardswish, nn.Hardsigmoid),
    "mobilenetv2": lambda: _inverted(nn.ReLU6, None),
    "resnet": _resnet,
    "densenet": _densenet,
    "convnext": _convnext,
    "vit": _Vit,
    "crnn": _Crnn,
}
"""Name of a family → what makes a small network of it."""

EXPORTERS = {"torchscript": False, "dynamo": True}


@functools.cache
def trained(family: str) -> nn.Module:
    """A network whose weights and batch norms have seen images: it tells how many pixels are bright, and how many are red ..."""
    torch.set_num_threads(1)  # the same sums on every machine
    torch.manual_seed(0)
    network = FAMILIES[family]()
    inputs = torch.from_numpy(images(family, 64, seed=0))
    with torch.no_grad():
        network(inputs[:2])  # lazy layers learn their sizes
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    goals = functional.adaptive_avg_pool2d(inputs, 2).flatten(1)[:, :10]
    random = np.random.default_rng(1)
    for _ in range(_STEPS):
        chosen = torch.from_numpy(random.integers(0, len(inputs), _BATCH))
        outputs = network(inputs[chosen])
        wanted = goals[chosen] if outputs.ndim == 2 else _columns(inputs[chosen], outputs.shape)
        loss = functional.mse_loss(outputs, 4 * (wanted - 0.5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def _columns(inputs: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Brightness at some heights of each column, as many as the network gives."""
    return functional.adaptive_avg_pool2d(inputs.mean(1), (shape[2], shape[1])).transpose(1, 2)


def exported(family: str, exporter: str) -> onnx.ModelProto:
    """The network as ONNX, by one of `EXPORTERS`; its input is called ``data``."""
    network, example = trained(family), torch.from_numpy(images(family, 1, seed=2))
    names: dict[str, Any] = {"input_names": ["data"], "output_names": ["y"], "opset_version": _OPSET}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of both exporters, about themselves
        if EXPORTERS[exporter]:
            program = torch.onnx.export(network, (example,), dynamo=True, verbose=False, **names)
            return program.model_proto
        written = io.BytesIO()
        torch.onnx.export(network, (example,), written, dynamo=False, **names)
    return onnx.load_from_string(written.getvalue())
