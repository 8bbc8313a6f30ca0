"""Damaged .cfg and .weights files, and what reading and converting them may cost.

`mutations` damages the files of drawn networks and of published cfgs; `attempt` gives what became of them: a converted
network, or one of our errors, within 2 s of processor time, and within 64 MB and three times the files' size of memory.
"""

from __future__ import annotations

import contextlib
import functools
import math
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from darknet2caffe import Network, read_network, to_onnx
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.dialect import DialectChoice
from pytrtplugins.errors import CfgError, UsageError, WeightsError
from tests.darknet2caffe.networks import ALL_LAYERS, CFGS
from tests.darknet2caffe.strategies import Case, cases

MAX_SECONDS = 2.0
MAX_BYTES = 64 << 20
MAX_TIMES_FILE = 3
_MAX_WEIGHTS = 2_000_000  # of networks that are converted without a weights file

_PUBLISHED = ("yolov2-tiny", "yolov1", "yolov3-tiny", "yolo9000", "alexnet", "resnext50", "jnet-conv", "writing")
_LARGE = ("yolov3-tiny",)  # read with 35 MB of weights
_VALUES = (
    *("", "0", "-1", "1", "2", "3", "7", "64", "65536", "1000000", "999999999", "2147483647", "2147483648", "9" * 20),
    *(
        "9" * 400,
        "-" + "9" * 19,
        "x",
        "nan",
        "inf",
        "-inf",
        "1e9",
        "-1e38",
        "1e300",
        "1e400",
        "1e-400",
        ".",
        ",",
        ",,",
        "1,",
        "-2,-2",
    ),
    *("[net]", "0x10", "1_0", "+5", "--5", "0,1,2,3,4,5,6", "#", "=", "leaky", "mish", "relu6"),
)


@dataclass(frozen=True)
class Mutation:
    """Damaged files.

    Attributes:
        origin: Whose they were.
        cfg: The .cfg.
        weights: The .weights; None: only the cfg is read.
        files: What the cfg names.
        dialect: How it is read.
    """

    origin: str
    cfg: bytes
    weights: bytes | None
    files: tuple[tuple[str, bytes], ...] = ()
    dialect: DialectChoice = "auto"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation: ``result`` is converted, read, or the name of the error."""

    result: str
    seconds: float
    bytes: int


class LimitError(AssertionError):
    """Reading or converting took too long, or too much memory."""


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """Valid files with up to four damages in one of them, or in both."""
    origin, case, has_weights = draw(_origins())
    dialect: DialectChoice = draw(st.sampled_from(["auto", "auto", "pjreddie", "alexeyab"]))
    cfg, weights = case.text.replace("{folder}/", "").encode(), _weights(case) if has_weights else None
    files = [(name, text.encode()) for name, text in case.files]
    damaged = draw(
        st.sampled_from(["cfg", "cfg", *["weights"] * (weights is not None), *["file"] * bool(files), "all"])
    )
    if weights is not None and damaged in ("weights", "all"):
        weights = _damaged_bytes(draw, weights, dense_until=200)
    if files and damaged in ("file", "all"):
        files = [(name, _damaged(draw, text)) for name, text in files]
    if damaged in ("cfg", "all"):
        cfg = _damaged(draw, cfg)
    return Mutation(origin, cfg, weights, tuple(files), dialect)


def _origins() -> st.SearchStrategy[tuple[str, Case, bool]]:
    published = [name for name in _PUBLISHED if (CFGS / f"{name}.cfg").exists()]
    large = [name for name in _LARGE if (CFGS / f"{name}.cfg").exists()]
    drawn = st.tuples(st.just("drawn"), cases(3, 12), st.booleans())
    fixed = st.tuples(st.just("all layers"), st.just(Case(ALL_LAYERS)), st.booleans())
    if not published:
        return drawn | fixed
    names = st.sampled_from([*[(name, False) for name in published], *((name, True) for name in large)])
    read = names.map(lambda given: (given[0], Case((CFGS / f"{given[0]}.cfg").read_text()), given[1]))
    return drawn | fixed | drawn | read


@functools.lru_cache(maxsize=4)
def _weights(case: Case) -> bytes:
    """Random weights that fit; none for networks whose tree is not there yet."""
    kept = "\n".join(line for line in case.text.split("\n") if not line.strip().startswith("tree"))
    network = read_network(parse_cfg(kept)).with_random_weights(case.seed)
    return b"" if network.weights is None else network.weights.to_bytes()


def _damaged(draw: st.DrawFn, text: bytes) -> bytes:
    """Up to four damages."""
    for _ in range(draw(st.integers(1, 4))):
        text = _damaged_bytes(draw, text) if draw(st.integers(0, 3)) == 0 else _damaged_lines(draw, text)
    return text


def _damaged_bytes(draw: st.DrawFn, data: bytes, dense_until: int = 0) -> bytes:
    """Bytes flipped, the end cut off, or something put behind it."""
    changed = bytearray(data)
    last = len(changed) - 1
    place = st.integers(0, last) | st.integers(0, min(dense_until or last, last))
    match draw(st.sampled_from(["flip", "flip", "set", "cut", "extend"])):
        case "flip" if changed:
            for _ in range(draw(st.integers(1, 5))):
                changed[draw(place)] ^= 1 << draw(st.integers(0, 7))
        case "set" if changed:
            changed[draw(place)] = draw(st.integers(0, 255))
        case "cut" if changed:
            del changed[draw(place) :]
        case "extend":
            changed += draw(st.binary(min_size=1, max_size=40))
    return bytes(changed)


def _damaged_lines(draw: st.DrawFn, data: bytes) -> bytes:
    """Lines doubled, dropped, swapped, moved, or with another value."""
    lines = data.split(b"\n")
    place, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(["value", "value", "value", "double", "drop", "swap", "many"])):
        case "value":
            lines[place] = lines[place].partition(b"=")[0] + b"=" + draw(st.sampled_from(_VALUES)).encode()
        case "double":
            lines.insert(other, lines[place])
        case "drop":
            del lines[place]
        case "swap":
            lines[place], lines[other] = lines[other], lines[place]
        case "many":
            first, end = sorted((place, other))
            lines[first:end] = lines[first:end] * draw(st.integers(2, 20))
    return b"\n".join(lines)


def attempt(mutation: Mutation, folder: Path) -> Outcome:
    """Read the files and convert the network.

    Raises:
        LimitError: that took more than it may.
        Exception: whatever is none of our errors.
    """
    for name, text in mutation.files:
        (folder / name).write_bytes(text)
    cfg, weights = folder / "mutation.cfg", folder / "mutation.weights"
    cfg.write_bytes(mutation.cfg)
    size = len(mutation.cfg)
    if mutation.weights is not None:
        weights.write_bytes(mutation.weights)
        size += len(mutation.weights)
    with limited(MAX_BYTES + MAX_TIMES_FILE * size) as spent:
        try:
            network = read_network(cfg, None if mutation.weights is None else weights, dialect=mutation.dialect)
            result = "converted" if _convert(network) else "read"
        except (CfgError, WeightsError, UsageError) as error:
            result = type(error).__name__
            if len(str(error)) > 2000:
                raise LimitError(f"the message has {len(str(error)):,} characters: {str(error)[:300]}") from error
    return Outcome(result, **spent)


def _convert(network: Network) -> bool:
    """Convert a network that has weights, or may get some of a modest number."""
    if network.weights is None:
        shapes = [shape for layer in network.layers for _, shape in layer.parameters]
        if sum(map(math.prod, shapes)) > _MAX_WEIGHTS:
            return False
        network = network.with_random_weights()
    return to_onnx(network) is not None


@contextlib.contextmanager
def limited(max_bytes: int, max_seconds: float = MAX_SECONDS) -> Iterator[dict[str, Any]]:
    """Limit processor time and memory; the dict that it gives gets what was spent.

    Memory is what the process holds at its peak (Linux's VmHWM), less what it held before. Address space is limited to
    as much, so that what is asked for and never touched counts too. Warnings are errors.
    """
    if sys.gettrace() is not None:  # coverage takes time for each line
        max_seconds *= 4
    spent: dict[str, Any] = {}
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
    before, address_space = _status("VmRSS"), _status("VmSize")
    old = resource.getrlimit(resource.RLIMIT_AS)

    def too_long(*_: object) -> None:
        raise LimitError(f"more than {max_seconds} s of processor time")

    handler = signal.signal(signal.SIGPROF, too_long)
    start = time.process_time()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (address_space + max_bytes, old[1]))
        signal.setitimer(signal.ITIMER_PROF, max_seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield spent
    except MemoryError as error:
        raise LimitError(f"more than {max_bytes:,} bytes are asked for") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, old)
    spent |= {"seconds": time.process_time() - start, "bytes": max(0, _status("VmHWM") - before)}
    if spent["bytes"] > max_bytes:
        raise LimitError(f"{spent['bytes']:,} bytes at the peak, expected at most {max_bytes:,}")


def _status(key: str) -> int:
    """A size of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)
