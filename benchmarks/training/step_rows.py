"""The rows of the benchmark of steps: how each of them computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import padding, peers

BATCHES = (128, 256)  # beside the one that was asked for
BEST = "BF16, NHWC, compiled, CUDA graphs"


@dataclass(frozen=True)
class Subject:
    """A row.

    Fields:
        name: On the page.
        settings: Of the engine.
        peer: Another library's loop.
        changes: Are done to the network before.
        sizes: Of the network's input, in pixels, beside the size that was asked for; one is drawn a step.
        batch: Photos a step; 0: as many as were asked for.
        compiler: Options of PyTorch's compiler, Inductor.
    """

    name: str
    settings: dict[str, Any]
    peer: Callable[[Any, str], Callable[[], None]] | None = None
    changes: Sequence[Callable[[Any], None]] = ()
    sizes: tuple[int, ...] = (0,)
    batch: int = 0
    compiler: dict[str, Any] = field(default_factory=dict)

    @property
    def fits_any(self) -> bool:
        """Whether a classifier can be trained so, too: it has no layers that are joined, and one size."""
        return not self.changes and len(self.sizes) == 1


def subjects() -> list[Subject]:
    """The rows, in the order in which they are measured."""
    nhwc = {"data_format": "NHWC"}
    bf16, compiled = {**nhwc, "precision": "bf16"}, {"compile": True}
    best = bf16 | compiled | {"cuda_graphs": True}
    return [
        Subject(BEST, best),
        Subject(f"{BEST}, batch {BATCHES[0]}", best, batch=BATCHES[0]),
        Subject(f"{BEST}, no layers joined", best, changes=[apart]),
        Subject("BF16, NHWC, compiled", bf16 | compiled),
        Subject("Lightning Fabric, BF16, NHWC, compiled", bf16 | compiled, peer=peers.fabric),
        Subject("accelerate, BF16, NHWC, compiled", bf16 | compiled, peer=peers.accelerate),
        Subject("FP16, NHWC, compiled, CUDA graphs", best | {"precision": "fp16"}),
        Subject("BF16, NHWC, CUDA graphs", bf16 | {"cuda_graphs": True}),
        Subject("BF16, NHWC", bf16),
        Subject("TF32, NHWC", {**nhwc, "precision": "tf32"}),
        Subject("FP16, NHWC", {**nhwc, "precision": "fp16"}),
        Subject("BF16, NCHW", {**bf16, "data_format": "NCHW"}),
        Subject("BF16, NHWC, batch norm of separate operations", bf16, changes=[apart, separate_batch_norm]),
        Subject("Lightning Fabric, BF16, NHWC", bf16, peer=peers.fabric),
        Subject("accelerate, BF16, NHWC", bf16, peer=peers.accelerate),
        Subject("FP32, NHWC", nhwc),
        Subject("FP32, NCHW", {"data_format": "NCHW"}),
        Subject("BF16, NHWC, compiled, two sizes", bf16 | compiled, sizes=(-32, 32)),
        *(Subject(f"{BEST}, batch {batch}", best, batch=batch) for batch in BATCHES[1:]),
        Subject(f"{BEST}, last convolution of 8n channels", best, changes=[padding.pad_last]),
        Subject(f"{BEST}, kernels combined", best, compiler={"combo_kernels": True}),
        Subject(f"{BEST}, kernels tuned", best, compiler={"coordinate_descent_tuning": True}),  # for minutes
    ]


def apart(network: Any) -> None:
    """Make layers of their own again of those that were joined."""
    import torch

    from yolov2_training.fused import Joined

    for i, part in enumerate(network.parts):
        if isinstance(part, Joined):
            network.parts[i], network.parts[i + 1] = torch.nn.Sequential(*part), torch.nn.MaxPool2d(2)


def separate_batch_norm(network: Any) -> None:
    """Put batch norms in a network that are made of elementwise operations and means, as before they were fused."""
    import torch

    class Separate(torch.nn.BatchNorm2d):
        def forward(self, x: Any) -> Any:
            wide = x.float()
            mean, variance = wide.mean((0, 2, 3)), wide.var((0, 2, 3), unbiased=False)
            with torch.no_grad():
                count = x.numel() / x.shape[1]
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            scale = (self.weight * (variance + self.eps).rsqrt())[:, None, None]
            return ((wide - mean[:, None, None]) * scale + self.bias[:, None, None]).to(x.dtype)

    for module in network.modules():
        if type(module) is torch.nn.BatchNorm2d:
            module.__class__ = Separate
