"""``python -m darknet2caffe``."""

from __future__ import annotations

from .cli import main

main()
