"""darknet through the library at DARKNET_LIBRARY, if that was built for a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from .clock import Clock
from .running import Running, pinned_copy
from .subject import Subject

if TYPE_CHECKING:
    from tests.oracles.libdarknet import DarknetNetwork


def load_darknet(subject: Subject, batch: int) -> DarknetNetwork:
    """The network inside darknet, for a batch; skips the row where there is none."""
    from tests.oracles.libdarknet import DarknetUnavailableError, LibDarknet

    try:
        library = LibDarknet()
    except DarknetUnavailableError as error:
        pytest.skip(str(error))
    if not library.on_gpu:
        pytest.skip(f"{library.path} was built without a GPU; build darknet with GPU=1 and set DARKNET_LIBRARY")
    cfg = subject.folder / f"batch-{batch}.cfg"
    text = (subject.folder / "yolov2-voc.cfg").read_text()
    for name, value in (("batch", batch), ("subdivisions", 1)):
        text = re.sub(rf"^{name} *=.*", f"{name}={value}", text, flags=re.M)
    cfg.write_text(text)
    return library.load(cfg, subject.folder / "yolov2-voc.weights", batch)


def darknet(subject: Subject, clock: Clock, batch: int) -> Running:
    """Its network_predict."""
    network = load_darknet(subject, batch)
    dims = (batch, *subject.head.shape[1:])
    return Running(lambda x: network.predict(x, quiet=False).reshape(dims), close=network.close)


def darknet_pinned(subject: Subject, clock: Clock, batch: int) -> Running:
    """The same on images in pinned memory; its output lies where darknet puts it."""
    return replace(darknet(subject, clock, batch), place=pinned_copy)
