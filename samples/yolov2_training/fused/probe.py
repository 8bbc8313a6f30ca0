"""Whether Triton compiles and runs kernels on a device: it needs a C compiler and Python's headers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["run_a_kernel"]


@triton.jit
def _store_kernel(out):
    tl.store(out, 1)


def run_a_kernel(device: torch.device) -> None:
    """Run the smallest kernel there is.

    Raises:
        Exception: of Triton, of whatever kind.
    """
    out = torch.zeros(1, device=device)
    _store_kernel[(1,)](out)
    if out.item() != 1:
        raise RuntimeError("a kernel left no result")
