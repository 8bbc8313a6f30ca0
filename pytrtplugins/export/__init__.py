"""What runs where there is no Python: see `pytrtplugins.export.triton`."""

from __future__ import annotations
