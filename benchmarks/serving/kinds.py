"""What servers are asked: the same values of every one, in the form that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from .load import Exchange
from .peers import Peer
from .rows import Asked
from .servers import post

TINY, RAW, PHOTOS = "64 bytes", "519,168 bytes", "photos, 768x576 JPEG"


def _tiny() -> list[np.ndarray]:
    return [np.arange(16, dtype=np.float32) + number for number in range(10)]


def _raw() -> list[np.ndarray]:
    return [np.full((416, 416, 3), number, np.uint8) for number in range(1, 4)]


def own_kinds(photos: Sequence[Exchange]) -> dict[str, Asked]:
    """What this project's server is asked: all."""
    found = {}
    for kind, model, arrays in ((TINY, "tiny", _tiny()), (RAW, "raw", _raw())):
        path = f"/v2/models/{model}/infer"
        requests = [Exchange(post(path, each.tobytes(), Inference_Header_Content_Length=0)) for each in arrays]
        found[kind] = Asked(requests, partial(_is, _last, [_total(each) for each in arrays]))
    return {**found, PHOTOS: Asked(photos)}


def peer_kinds(peer: Peer) -> dict[str, Asked]:
    """What another server is asked: the sums."""
    found = {}
    for kind, arrays in ((TINY, _tiny()), (RAW, _raw() if peer.raw else [])):
        if arrays:
            requests = [peer.exchange(each.tobytes(), each.ravel()[:16].tolist()) for each in arrays]
            found[kind] = Asked(requests, partial(_is, peer.result, [_total(each) for each in arrays]))
    return found


def _is(read: Callable[[bytes], float], totals: Sequence[float], number: int, answer: bytes) -> bool:
    return read(answer) == totals[number]


def _last(answer: bytes) -> float:
    """The float32 at an answer's end."""
    return float(np.frombuffer(answer[-4:], np.float32)[0])


def _total(array: np.ndarray) -> float:
    return float(array.ravel()[:16].astype(np.float32).sum())
