"""torchvision beside a PyTorch for CPUs: its operators for boxes do not load there, and no classifier needs them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

_DECLARED: list[Any] = []


def require_torchvision() -> None:
    """Make torchvision importable, or skip the test."""
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        pytest.skip("torchvision is missing (pip install torchvision)")
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # "operator torchvision::nms does not exist"
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        folder = Path(spec.origin).parent
        text = "".join(path.read_text() for path in (folder / "_meta_registrations.py", *(folder / "ops").glob("*.py")))
        names = {*re.findall(r"torchvision::(\w+)", text), *re.findall(r'register_meta\("(\w+)"\)', text)}
        _DECLARED.append(library := torch.library.Library("torchvision", "FRAGMENT"))
        for name in names:
            library.define(f"{name}(Tensor x) -> Tensor")
