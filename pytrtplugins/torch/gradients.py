"""Engines and plugins have no gradients: a backward pass through one raises an error."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..errors import PluginError, PytrtpluginsError, UsageError
from .tensors import require_torch

__all__ = ["no_gradient", "without_gradients"]


def no_gradient(what: str, kind: type[PytrtpluginsError] = PluginError) -> PytrtpluginsError:
    """The error of a backward pass through ``what``."""
    return kind(
        f"{what} has no gradient: it computes forward only.\n"
        "Do: call it within torch.no_grad(), or on x.detach(), if nothing before it is trained"
    )


def without_gradients(what: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
    """The outputs, which refuse a backward pass where an input asks for one."""
    torch = require_torch("a gradient")
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        return outputs
    return tuple(_refusing().apply(what, len(outputs), *outputs, *inputs))


@functools.cache
def _refusing() -> Any:
    torch = require_torch("a gradient")

    class Refusing(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Outputs that hang on inputs, for autograd."""

        @staticmethod
        def forward(ctx: Any, what: str, count: int, *tensors: Any) -> tuple[Any, ...]:
            ctx.what = what
            return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

        @staticmethod
        def backward(ctx: Any, *_: Any) -> None:
            raise no_gradient(ctx.what, UsageError)

    return Refusing
