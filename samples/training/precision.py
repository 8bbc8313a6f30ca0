"""Arithmetic of a step: autocast, loss scale of FP16, TF32, and determinism."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from pytrtplugins.errors import FormatError

from .settings import Settings

__all__ = ["Precision", "make_deterministic"]


class Precision:
    """The precision in which the network computes; parameters and optimizer state keep their own type.

    Args:
        settings: ``precision`` fp32 means the parameters' own type, which tests make float64.
        device: ``cuda`` or ``cpu``.
    """

    def __init__(self, settings: Settings, device: str) -> None:
        name = settings.precision
        self._device, self._type = device, settings.dtype
        self.scaler = torch.amp.GradScaler(device, enabled=name == "fp16")
        if device == "cuda":
            torch.set_float32_matmul_precision("highest" if name == "fp32" else "high")
            torch.backends.cudnn.allow_tf32 = name != "fp32"

    def autocast(self) -> AbstractContextManager[None]:
        """The context of the forward computation."""
        return torch.autocast(self._device, self._type, enabled=self._type is not None)

    def update(self, optimizer: torch.optim.Optimizer, clipped: Sequence[nn.Parameter], largest: float) -> Tensor:
        """Clip the gradients, update the parameters and forget the gradients.

        In FP16 a step whose gradients overflow changes nothing but the loss scale.

        Returns:
            The norm of the clipped parameters' gradients before they were clipped.
        """
        self.scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(clipped, largest)
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def restore(self, scale: Mapping[str, Any]) -> None:
        """Continue with the loss scale of a checkpoint; one that was written in another precision has none.

        Raises:
            FormatError: it is not the state of a GradScaler.
        """
        now = self.scaler.state_dict()
        if not now or not scale:
            return
        if scale.keys() != now.keys() or not all(
            type(value) in (int, float) and math.isfinite(value) and value >= (name == "scale") * 1e-38
            for name, value in scale.items()
        ):
            raise FormatError(f"expected the loss scale as {', '.join(now)}, found {dict(scale)!r}")
        self.scaler.load_state_dict(dict(scale))


def make_deterministic() -> None:
    """Use only operations that give the same bits each time; PyTorch raises an error where it has none."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when the first handle is made
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
