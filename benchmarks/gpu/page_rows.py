"""A page that a record was written to → the rows that it shows, as a record: new rows are then joined to those of earlier days.

Figures have the digits that the page shows; what the page says of a goal stays true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import MARKERS

from .rows import row_of
from .runners import NAME, ONNXRUNTIME, TORCH_COMPILED, TORCH_GRAPH, TORCH_TUNED
from .zoo_report import MOST

__all__ = ["EARLIER", "page_record"]

EARLIER = "Rows of earlier days:"
_WORDS = {TORCH_COMPILED: "compile", TORCH_TUNED: "max-autotune", ONNXRUNTIME: "onnxruntime"}
"""How the zoo's rows call a peer."""
_FILES = 2048
"""Of `test_files`; the page shows how many of them are read in a second."""
Bench = dict[str, Any]


def page_record(docs: Path, name: str, zoo: bool) -> dict[str, Any] | None:
    """The record of a section; None where the page has none.

    Args:
        docs: Folder of the pages.
        name: Of the section.
        zoo: Whether it is the zoo's, which has a page of its own.
    """
    page = docs / ("benchmarks-zoo.md" if zoo else "benchmarks.md")
    begin, end = (marker.format(name=name) for marker in MARKERS)
    text = page.read_text("utf-8") if page.exists() else ""
    if begin not in text:
        return None
    section = text.partition(begin)[2].partition(end)[0]
    found = re.search(r"^(.+?), driver .*; (\d{4}-\d\d-\d\d)\. Clocks", section, re.MULTILINE)
    if found is None:
        raise ValueError(f"{page}: section {name} has no paragraph about the machine")
    days = {row: day for day, rows in _list(section, EARLIER) for row in rows.split("; ")}
    benches = [*(_zoo(section) if zoo else _race(section))]
    for bench in benches:
        bench["date"] = days.get(row_of(bench["fullname"]), found[2])
    joined = re.search(r"Joined from (\d+) runs", section)
    return {
        "gpu": {"gpu": found[1], "ceilings": _ceilings(section)},
        "datetime": f"{found[2]}T00:00:00",
        "runs": int(joined[1]) if joined else 1,
        "benchmarks": benches,
        "left_out": [f"{row}: {reason}" for row, reason in _list(section, "Left out:")],
    }


def _list(section: str, title: str) -> list[tuple[str, str]]:
    """The items below a title, each in two parts."""
    lines = section.partition(f"\n{title}\n\n")[2].partition("\n\n")[0].splitlines()
    parts = (line.removeprefix("- ").partition(": ") for line in lines if line.startswith("- "))
    return [(first, second) for first, _, second in parts]


def _tables(section: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The head and the rows of each table."""
    for text in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip()[1:-1].split("|")] for line in text.splitlines())
        yield head, rows


def _number(cell: str) -> float | None:
    """A figure, without what stands in brackets behind it; None for a dash."""
    text = cell.strip("*` ").partition(" ")[0].replace(",", "").rstrip("%")
    return None if text in ("–", "") else float(text)


def _whole(cell: str) -> int | None:
    value = _number(cell)
    return None if value is None else int(value)


def _pair(cell: str) -> tuple[float | None, float | None]:
    """Median and minimum."""
    median, _, least = cell.partition(" (")
    return _number(median), _number(least.removesuffix(")") or "–")


def _bench(test: str, row: str, info: Mapping[str, Any], host: str = "–") -> Bench:
    """A row as a record has it."""
    median, least = (1e-6 * (each or 0.0) for each in _pair(host))
    return {
        "fullname": f"benchmarks/gpu/{test}[{row}]",
        "extra_info": dict(info),
        "stats": {"median": median, "min": least},
    }


def _race(section: str) -> Iterator[Bench]:
    """Rows of all tables of the race."""
    readers = {
        "floors µs: arithmetic, memory, launches": _raced,
        "arrays in pinned memory": _pinned,
        "one image to boxes": _image,
        "JPEG files to boxes": _files,
        "step": _step,
    }
    figures = {row[0]: _number(row[2]) for head, rows in _tables(section) if len(head) == 4 for row in rows}
    for head, rows in _tables(section):
        for bench in (read(row, _ceilings(section)) for mark, read in readers.items() if mark in head for row in rows):
            _refine(bench["extra_info"], figures)
            yield bench
    search, cached = (
        figures.get(f"FP16, build that {what}")
        for what in ("times all kernels", "finds them in the cache")
    )  # fmt: skip
    if search and cached:
        info = {"kind": "build", "precision": "FP16", "search_s": search, "cached_s": cached}
        yield _bench("test_build.py::test_build", "fp16", info)


def _refine(info: dict[str, Any], figures: Mapping[str, float | None]) -> None:
    """Take the digits that goals show and the tables do not."""
    if info["kind"] == "race" and info["runner"] == NAME and info["gpu_us"]:
        found = figures.get(f"{info['precision']}, batch {info['batch']}, on the GPU")
        if found is not None:
            info["gpu_us"] = min(max(found, info["gpu_us"] - 0.499), info["gpu_us"] + 0.499)
    elif info["kind"] == "image" and info["size"] == [768, 576] and not info["pinned"]:
        what = "bytes of an image of 768 x 576 to boxes, darknet its network alone"
        found = figures.get(f"{info['precision']}, batch 1, times darknet's speed: {what}")
        info["over_predict"] = info["over_predict"] if found is None else found


def _ceilings(section: str) -> dict[str, float]:
    text = section.partition("Measured in the same run: ")[2].partition("\n")[0].partition(". Joined")[0].rstrip(".")
    found = (each.rsplit(" ", 2) for each in text.split(", "))
    return {f"{name} {unit}": float(value.replace(",", "")) for name, value, unit in found}


def _raced(cells: Sequence[str], ceilings: Mapping[str, float]) -> Bench:
    batch, runner, precision, gpu, _, sustained, host, _, _, floors, kernels, error = cells
    arithmetic, memory, _ = (_number(each) or 0.0 for each in floors.split(", "))
    median, least = _pair(gpu)
    info = {
        "kind": "race", "runner": runner, "precision": precision, "batch": int(batch), "pinned": False, "error": float(error),
        "gpu_us": median, "gpu_least_us": least, "sustained_us": _number(sustained), "kernels": _whole(kernels),
        "operations": arithmetic * ceilings[f"{'INT8' if precision == 'FP8' else precision} TOP/s"] * 1e6,
        "moved": memory * ceilings["copy GB/s"] * 1e3,
    }  # fmt: skip
    return _bench("test_race.py::test_latency", f"{runner}, {precision}, batch-{batch}", info, host)


def _pinned(cells: Sequence[str], _: object) -> Bench:
    batch, runner, precision, host, *_rest = cells
    info = {
        "kind": "race", "runner": runner, "precision": precision, "batch": int(batch), "pinned": True, "gpu_us": None,
    }  # fmt: skip
    return _bench("test_race.py::test_latency", f"{runner}, {precision}, pinned, batch-{batch}", info, host)


def _image(cells: Sequence[str], _: object) -> Bench:
    name, network, host, launch, _beyond, darknet, _over, predict = cells
    precision, size, *memory, boxes = name.split(", ")
    info = {
        "kind": "image", "precision": precision, "size": [int(side) for side in size.split(" x ")], "pinned": bool(memory),
        "boxes": _whole(boxes), "network_us": _number(network), "launch_us": _number(launch),
        "darknet_us": _number(darknet), "over_predict": _number(predict),
    }  # fmt: skip
    row = f"{precision.lower()}-{size.replace(' ', '')}-{'pinned' if memory else 'ordinary'}"
    return _bench("test_image.py::test_image_to_boxes", row, info, host)


def _files(cells: Sequence[str], _: object) -> Bench:
    name, by, batch, whole, alone, _share = cells
    precision, size, kilobytes = name.split(", ")
    decode = "gpu" if by == "the GPU" else "cpu"
    seconds = [_FILES / (_number(each) or 1.0) for each in (whole, alone)]
    info = {
        "kind": "files", "precision": precision, "batch": int(batch), "decode": decode, "images": _FILES,
        "size": [int(side) for side in size.split(" x ")], "threads": 0 if decode == "gpu" else _whole(by),
        "bytes": 1e3 * (_number(kilobytes) or 0.0), "decoding_us": 1e6 * seconds[1],
    }  # fmt: skip
    bench = _bench("test_files.py::test_files_to_boxes", f"{batch}-{decode}", info)
    return {**bench, "stats": {"median": seconds[0], "min": seconds[0]}}


def _step(cells: Sequence[str], _: object) -> Bench:
    step, name, time, without, _ratio, kernels, fewer, size, less = cells
    network, _, precision = name.rpartition(", ")
    info = {
        "kind": "step", "step": step.strip("`"), "network": network, "precision": precision, "gpu_us": _number(time),
        "without_us": _number(without), "kernels": _whole(kernels), "without_kernels": _whole(fewer),
        "bytes": 1e6 * (_number(size) or 0.0), "without_bytes": 1e6 * (_number(less) or 0.0),
    }  # fmt: skip
    return _bench("test_steps.py::test_step", f"{step.strip('`')}-{network}-{precision.lower()}", info)


def _zoo(section: str) -> Iterator[Bench]:
    """Rows of the zoo: our FP16 with PyTorch's graph, our INT8, and other peers."""
    failed: dict[tuple[str, int, str, str], str] = {}
    for what, error in _list(section, "Failed:"):
        network, batch, runner = what.split(", ", 2)
        name, _, precision = runner.rpartition(", ")
        failed[network, int(batch.removeprefix("batch ")), name, precision] = error
    missed = {name: (limit, _missed(section, f"FP16, all batches, networks {what}")) for name, what, limit in MOST}
    for part in re.split(r"^### Batch ", section, flags=re.MULTILINE)[1:]:
        size = int(part.partition("\n")[0])
        ((head, rows), *_) = _tables(part)
        slow = _missed(section, f"INT8, batch {size}, networks on which it is")
        for row in (dict(zip(head, cells, strict=True)) for cells in rows if cells[0] != "geometric mean"):
            for bench in _measured(size, row, failed):
                info = bench["extra_info"]
                for name, (limit, networks) in missed.items() if "build_s" in info else ():
                    if (info["network"], size) in networks and name in info:
                        info[name] = max(info[name], math.nextafter(limit, math.inf))  # rounding has met no goal
                if info["precision"] == "INT8" and "peer_us" in info:  # rounding has changed no verdict either
                    fast = (info["network"], 1) not in slow  # whose names have no batch
                    us = info["us"]
                    info["peer_us"] = (
                        max(info["peer_us"], math.nextafter(us, math.inf)) if fast else min(info["peer_us"], us)
                    )
                yield bench


def _missed(section: str, what: str) -> set[tuple[str, int]]:
    """The networks, with their batch, that a goal's row names as missing it."""
    line = next((line for line in section.splitlines() if line.startswith(f"| {what} ")), "")
    names = line.partition("missed: ")[2].rstrip(" |").split(", ") if "missed: " in line else []
    parts = (name.partition(" with batch ") for name in names)
    return {(network, int(batch or 1)) for network, _, batch in parts}


def _measured(batch: int, row: Mapping[str, str], failed: Mapping[tuple[str, int, str, str], str]) -> Iterator[Bench]:
    network = row["network"]
    exact, fp16, int8 = map(_number, row["error FP32, FP16, INT8"].split(", "))
    first, again = map(_number, row["build s: first, again"].split(", "))
    size = _number(row["memory MB"])
    own = {
        "us": _number(row["FP16 µs"]), "peer_us": _number(row.get(f"{TORCH_GRAPH} µs", "–")), "error_fp32": exact, "error": fp16,
        "build_s": first, "again_s": again, "kernels": _whole(row["kernels"]), "steps": _whole(row["steps"]),
        "arrays": _operators(row["by arrays"]), "outside": _operators(row["outside the graph"]),
        "bytes": None if size is None else 1e6 * size,
    }  # fmt: skip
    int8_us, beside = (_number(row.get(name, row["FP16 µs"])) for name in ("INT8 µs", "FP16 beside it µs"))
    peers = [(runner, word, "FP16", {"us": _number(row.get(f"{runner} µs", "–"))}) for runner, word in _WORDS.items()]
    rows: list[tuple[str, str, str, dict[str, Any]]] = [
        (NAME, "FP16", "FP16", own),
        (NAME, "INT8", "INT8", {"us": int8_us, "peer_us": None if int8_us is None else beside, "error": int8}),
        *peers,
    ]
    for runner, word, precision, figures in rows:
        known = {name: value for name, value in figures.items() if value is not None}
        if (failure := failed.get((network, batch, runner, precision))) is not None:
            known["failure"] = failure
        if not known:
            continue
        if "peer_us" in known:
            known["peer"] = TORCH_GRAPH if word == "FP16" else NAME
        info = {"kind": "zoo", "network": network, "batch": batch, "runner": runner, "precision": precision, **known}
        test = "test_peer" if word in _WORDS.values() else f"test_{'network' if word == 'FP16' else 'int8'}"
        yield _bench(f"test_zoo.py::{test}", f"zoo {word}, {network}, batch-{batch}", info)


def _operators(cell: str) -> dict[str, int] | None:
    """How many steps of which operator."""
    if cell in ("–", "0"):
        return None if cell == "–" else {}
    parts = (each.split(" ", 1) for each in cell.partition(": ")[2].split(", "))
    return {name: int(count) for count, name in parts}
