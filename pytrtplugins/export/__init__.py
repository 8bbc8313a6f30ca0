"""Export plugins as C++ libraries, and models as Triton repositories."""

from __future__ import annotations
