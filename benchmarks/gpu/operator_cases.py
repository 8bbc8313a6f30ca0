"""Single operators in the forms and sizes that networks use, each as a module of PyTorch, which exports it and is its peer."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx
import torch
from torch import nn
from torch.nn import functional

__all__ = ["CASES", "Case", "exported"]

_OPSET = 18
Make = Callable[[], Callable[..., Any]]


@dataclass(frozen=True)
class Input:
    """An input that is drawn.

    Attributes:
        dims: Its dims.
        below: Of whole numbers, which are int64, each once in a row; 0 for floats.
        kind: ``normal``, or ``positions`` between -1.1 and 1.1.
    """

    dims: tuple[int, ...]
    below: int = 0
    kind: str = "normal"

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        """Draw it: float32 or int64."""
        if self.below:
            return torch.rand((*self.dims[:-1], self.below), generator=generator).argsort(-1)[..., : self.dims[-1]]
        if self.kind == "positions":
            return torch.rand(self.dims, generator=generator) * 2.2 - 1.1
        return torch.randn(self.dims, generator=generator)


@dataclass(frozen=True)
class Case:
    """An operator in one form and size.

    Attributes:
        operator: ONNX's name.
        form: What distinguishes it from other forms of the operator.
        size: Dims in words.
        make: Makes the module or function, with random weights.
        inputs: Of it.
    """

    operator: str
    form: str
    size: str
    make: Make
    inputs: tuple[Input, ...]

    @property
    def name(self) -> str:
        """The name of its row."""
        return f"{self.operator}, {self.form}, {self.size}"

    def module(self) -> nn.Module:
        """The module, the same in each call."""
        torch.manual_seed(0)
        built = self.make()
        return (built if isinstance(built, nn.Module) else _Function(built)).eval()

    def arrays(self) -> list[torch.Tensor]:
        """Its inputs, the same in each call: float32 or int64 on the CPU."""
        generator = torch.Generator().manual_seed(1)
        return [each.draw(generator) for each in self.inputs]


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


class _First(nn.Module):
    """A module of which the first result counts."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(*inputs)[0]
        return found


def exported(module: nn.Module, inputs: Sequence[torch.Tensor]) -> onnx.ModelProto:
    """The module as ONNX with fixed dims, in the types of its inputs."""
    names = [f"x{index}" for index in range(len(inputs))]
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            module, tuple(inputs), written, dynamo=False, opset_version=_OPSET, input_names=names, output_names=["y"]
        )
    return onnx.load_from_string(written.getvalue())


def _cases(operator: str, form: str, make: Callable[..., Any], *sizes: tuple[Any, ...]) -> Iterator[Case]:
    """Cases of one form: each size is the arguments of ``make``, then the dims of the inputs, or inputs."""
    for size in sizes:
        arguments, *given = size
        inputs = tuple(each if isinstance(each, Input) else Input(each) for each in given)
        dims = " and ".join("x".join(map(str, each.dims)) for each in inputs)
        words = f" to {arguments[1]}" if operator.startswith(("Conv", "LSTM", "GRU")) else ""
        yield Case(operator, form, dims + words, partial(make, *arguments), inputs)


def _constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """What makes the function itself."""
    return lambda *arguments: partial(function, *arguments) if arguments else function


def _convolutions() -> Iterator[Case]:
    conv1, conv2, conv3 = nn.Conv1d, nn.Conv2d, nn.Conv3d
    yield from _cases(
        "Conv", "1-D, 3", partial(conv1, kernel_size=3, padding=1),
        ((64, 128), (1, 64, 500)), ((80, 384), (1, 80, 3000)), ((512, 512), (8, 512, 1000)),
    )  # fmt: skip
    yield from _cases(
        "Conv", "1-D, 3, stride 2", partial(conv1, kernel_size=3, padding=1, stride=2), ((384, 384), (1, 384, 3000))
    )
    depthwise = lambda channels, _: conv1(channels, channels, 9, padding=4, groups=channels)  # noqa: E731
    yield from _cases("Conv", "1-D, depthwise 9", depthwise, ((512, 512), (1, 512, 1000)))
    for side, size in ((3, 1), (1, 0)):
        yield from _cases(
            "Conv", f"2-D, {side}x{side}", partial(conv2, kernel_size=side, padding=size),
            ((64, 64), (1, 64, 56, 56)), ((256, 256), (1, 256, 28, 28)), ((128, 128), (8, 128, 56, 56)),
        )  # fmt: skip
    yield from _cases(
        "Conv", "2-D, 7x7, stride 2", partial(conv2, kernel_size=7, padding=3, stride=2), ((3, 64), (1, 3, 224, 224))
    )
    wide = lambda channels, _: conv2(channels, channels, 7, padding=3, groups=channels)  # noqa: E731
    yield from _cases("Conv", "2-D, depthwise 7x7", wide, ((192, 192), (1, 192, 56, 56)))
    grouped = partial(conv2, kernel_size=3, padding=1, groups=32)
    yield from _cases("Conv", "2-D, 3x3, 32 groups", grouped, ((256, 256), (1, 256, 28, 28)))
    yield from _cases(
        "Conv", "2-D, 3x3, dilation 12", partial(conv2, kernel_size=3, padding=12, dilation=12), ((256, 256), (1, 256, 28, 28))
    )  # fmt: skip
    yield from _cases(
        "Conv", "3-D, 3x3x3", partial(conv3, kernel_size=3, padding=1),
        ((64, 64), (1, 64, 8, 56, 56)), ((128, 128), (1, 128, 4, 28, 28)), ((32, 32), (1, 32, 32, 64, 64)),
    )  # fmt: skip
    first = partial(conv3, kernel_size=(3, 7, 7), padding=(1, 3, 3), stride=(1, 2, 2))
    yield from _cases("Conv", "3-D, 3x7x7, stride 2", first, ((3, 64), (1, 3, 8, 112, 112)))
    yield from _cases(
        "ConvTranspose", "2-D, 2x2, stride 2", partial(nn.ConvTranspose2d, kernel_size=2, stride=2),
        ((256, 128), (1, 256, 28, 28)), ((64, 32), (1, 64, 128, 128)),
    )  # fmt: skip
    yield from _cases(
        "ConvTranspose", "1-D, 16, stride 8", partial(nn.ConvTranspose1d, kernel_size=16, stride=8, padding=4), ((256, 128), (1, 256, 400))
    )  # fmt: skip
    yield from _cases(
        "ConvTranspose", "3-D, 2x2x2, stride 2", partial(nn.ConvTranspose3d, kernel_size=2, stride=2), ((64, 32), (1, 64, 16, 32, 32))
    )  # fmt: skip


def _pools() -> Iterator[Case]:
    yield from _cases("MaxPool", "2-D, 3x3, stride 2", partial(nn.MaxPool2d, 3, 2, 1), ((), (1, 64, 112, 112)))
    yield from _cases("MaxPool", "1-D, 3, stride 2", partial(nn.MaxPool1d, 3, 2, 1), ((), (1, 512, 1000)))
    yield from _cases("MaxPool", "3-D, 2x2x2", partial(nn.MaxPool3d, 2), ((), (1, 64, 16, 56, 56)))
    yield from _cases("AveragePool", "2-D, 2x2", partial(nn.AvgPool2d, 2), ((), (1, 256, 56, 56)))
    yield from _cases("AveragePool", "3-D, 2x2x2", partial(nn.AvgPool3d, 2), ((), (1, 64, 16, 56, 56)))
    yield from _cases(
        "GlobalAveragePool", "2-D", partial(nn.AdaptiveAvgPool2d, 1), ((), (1, 960, 7, 7)), ((), (8, 256, 28, 28))
    )


def _products() -> Iterator[Case]:
    yield from _cases("Gemm", "constant matrix", nn.Linear, ((768, 3072), (128, 768)), ((2048, 1000), (1, 2048)))
    yield from _cases("MatMul", "constant matrix", nn.Linear, ((384, 1536), (1, 1500, 384)))
    product = _constant(torch.matmul)
    yield from _cases("MatMul", "two tensors", product, ((), (12, 197, 64), (12, 64, 197)))
    yield from _cases("MatMul", "two tensors, broadcast", product, ((), (8, 4, 64, 64), (4, 64, 64)))
    yield from _cases(
        "Einsum", "bhid,bhjd->bhij", _constant(partial(torch.einsum, "bhid,bhjd->bhij")),
        ((), (64, 2, 49, 32), (64, 2, 49, 32)), ((), (1, 12, 197, 64), (1, 12, 197, 64)),
    )  # fmt: skip
    yield from _cases(
        "Einsum", "bchw,cd->bdhw", _constant(partial(torch.einsum, "bchw,cd->bdhw")), ((), (1, 64, 56, 56), (64, 64))
    )


def _recurrent() -> Iterator[Case]:
    def recurrent(kind: type[nn.RNNBase], bidirectional: bool = False, layers: int = 1) -> Callable[..., nn.Module]:
        return lambda given, hidden: _First(kind(given, hidden, num_layers=layers, bidirectional=bidirectional))

    yield from _cases("LSTM", "bidirectional", recurrent(nn.LSTM, True), ((512, 256), (40, 1, 512)))
    yield from _cases("LSTM", "forward", recurrent(nn.LSTM), ((512, 512), (100, 1, 512)), ((512, 512), (50, 16, 512)))
    yield from _cases("LSTM", "forward, 2 layers", recurrent(nn.LSTM, False, 2), ((512, 512), (100, 1, 512)))
    yield from _cases("GRU", "forward", recurrent(nn.GRU), ((256, 256), (100, 1, 256)))


def _positions() -> Iterator[Case]:
    for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
        sample = _constant(partial(functional.grid_sample, mode=mode, padding_mode=padding, align_corners=False))
        yield from _cases(
            "GridSample", f"2-D, {mode}, {padding}", sample, ((), (8, 32, 80, 80), Input((8, 300, 4, 2), kind="positions"))
        )  # fmt: skip

    def largest(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: torch.topk(x, count, -1)[0]

    yield from _cases("TopK", "last axis", largest, ((300,), (1, 8400)), ((5,), (8, 1000)), ((50,), (1, 50257)))
    maximum = _constant(lambda x: x.argmax(-1))
    yield from _cases("ArgMax", "last axis", maximum, ((), (1, 50257)), ((), (8, 300, 91)))
    elements = _constant(lambda x, index: torch.gather(x, 1, index))
    yield from _cases("GatherElements", "rows", elements, ((), (1, 8400, 256), Input((1, 300, 256), 8400)))
    rows = _constant(lambda x, index: functional.embedding(index, x))
    yield from _cases("Gather", "computed rows", rows, ((), (30522, 768), Input((1, 128), 30522)))
    put = _constant(lambda x, index, update: x.scatter(1, index, update))
    yield from _cases("ScatterElements", "none", put, ((), (8, 1000), Input((8, 100), 1000), (8, 100)))
    added = _constant(lambda x, index, update: x.scatter_add(1, index, update))
    yield from _cases("ScatterElements", "add", added, ((), (8, 1000), Input((8, 100), 1000), (8, 100)))


def _moves() -> Iterator[Case]:
    def resize(mode: str, **more: Any) -> Callable[..., Any]:
        return _constant(lambda x: functional.interpolate(x, scale_factor=2.0, mode=mode, **more))

    yield from _cases("Resize", "nearest, 2", resize("nearest"), ((), (1, 256, 26, 26)))
    yield from _cases("Resize", "linear, 2", resize("bilinear", align_corners=False), ((), (1, 256, 26, 26)))
    yield from _cases("Resize", "cubic, 2", resize("bicubic", align_corners=False), ((), (1, 64, 64, 64)))
    yield from _cases("DepthToSpace", "2", partial(nn.PixelShuffle, 2), ((), (1, 64, 128, 128)))
    yield from _cases(
        "Transpose", "0231", _constant(lambda x: x.permute(0, 2, 3, 1).contiguous()), ((), (1, 256, 56, 56))
    )
    yield from _cases("Concat", "channels", _constant(lambda x, y: torch.cat((x, y), 1)), ((), *[(1, 128, 56, 56)] * 2))
    yield from _cases("Slice", "rows", _constant(lambda x: x[:, :, 4:-4, 4:-4].contiguous()), ((), (1, 64, 128, 128)))
    yield from _cases("Pad", "reflect", partial(nn.ReflectionPad2d, 3), ((), (1, 64, 128, 128)))
    yield from _cases("Trilu", "lower", _constant(torch.tril), ((), (12, 512, 512)))
    yield from _cases("CumSum", "last axis", _constant(lambda x: x.cumsum(-1)), ((), (8, 16, 1024)))


def _rows() -> Iterator[Case]:
    yield from _cases("Softmax", "last axis", partial(nn.Softmax, -1), ((), (12, 197, 197)), ((), (1, 50257)))
    yield from _cases("LayerNormalization", "last axis", nn.LayerNorm, ((768,), (1, 197, 768)))
    yield from _cases("GroupNormalization", "32 groups", nn.GroupNorm, ((32, 256), (1, 256, 56, 56)))
    yield from _cases("InstanceNormalization", "2-D", nn.InstanceNorm2d, ((64,), (1, 64, 128, 128)))
    yield from _cases("ReduceMean", "last axis", _constant(lambda x: x.mean(-1)), ((), (8, 512, 1024)))
    yield from _cases("ReduceMax", "axis 1", _constant(lambda x: x.amax(1)), ((), (8, 1024, 128)))
    yield from _cases("Gelu", "all values", partial(nn.GELU), ((), (1, 197, 3072)))
    yield from _cases("HardSwish", "all values", nn.Hardswish, ((), (1, 240, 56, 56)))
    yield from _cases("Add", "broadcast channels", _constant(torch.add), ((), (1, 256, 56, 56), (1, 256, 1, 1)))


CASES = tuple(
    case for family in (_convolutions, _pools, _products, _recurrent, _positions, _moves, _rows) for case in family()
)
"""All cases, by family."""
