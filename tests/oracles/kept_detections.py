"""What darknet finds in images, kept where compiled kernels are: it takes a second for each image, and is the same in every run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path

from pytrtplugins.cuda.cache import cached_bytes
from tests.oracles import libdarknet as module
from tests.oracles.libdarknet import DarknetDetection, LibDarknet


class KeptDetections:
    """One network's `DarknetNetwork.detections`; darknet finds anew what it did not with these very files.

    Args:
        library: The library.
        cfg: The network.
        weights: Its weights.
        find: ``detections`` of the network that was loaded from these files.
    """

    def __init__(
        self, library: LibDarknet, cfg: Path, weights: Path, find: Callable[..., list[DarknetDetection]]
    ) -> None:
        oracle = Path(module.__file__)
        files = (library.path, oracle, oracle.with_name("darknet_shim.c"), cfg, weights)
        self._digests, self._find = [*map(_digest, files)], find

    def __call__(self, image: Path, threshold: float) -> list[DarknetDetection]:
        """What `darknet detect` finds in an image; best first."""

        def found() -> bytes:
            return json.dumps([astuple(item) for item in self._find(image, threshold=threshold)]).encode()

        kept = cached_bytes(["darknet's detections", *self._digests, _digest(image), repr(threshold)], ".json", found)
        return [DarknetDetection(class_id, score, tuple(xyxy)) for class_id, score, xyxy in json.loads(kept)]


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
