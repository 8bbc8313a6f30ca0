"""Raise an error in a backward pass through an engine or plugin, which have no gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..errors import PluginError, PytrtpluginsError, UsageError
from .tensors import require_torch

__all__ = ["no_gradient", "without_gradients"]


def no_gradient(what: str, kind: type[PytrtpluginsError] = PluginError) -> PytrtpluginsError:
    """Return the error for a backward pass through ``what``."""
    return kind(
        f"{what} has no gradient: it computes forward only.\n"
        "Do: call it within torch.no_grad(), or on x.detach(), if nothing before it is trained"
    )


def without_gradients(what: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the outputs; a backward pass through them raises an error if an input requires a gradient."""
    torch = require_torch("a gradient")
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        return outputs
    return tuple(_no_gradient_function().apply(what, len(outputs), *outputs, *inputs))


@functools.cache
def _no_gradient_function() -> Any:
    torch = require_torch("a gradient")

    class NoGradient(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Autograd function that connects outputs to inputs, and raises an error in backward."""

        @staticmethod
        def forward(ctx: Any, what: str, count: int, *tensors: Any) -> tuple[Any, ...]:
            ctx.what = what
            return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

        @staticmethod
        def backward(ctx: Any, *_: Any) -> None:
            raise no_gradient(ctx.what, UsageError)

    return NoGradient
