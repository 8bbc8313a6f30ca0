"""Measure what FP16 and INT8 cost in mAP50, by calibrator, number of photos and weights; write the tables of docs/accuracy.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from darknet2caffe import read_network, to_onnx
from pytrtplugins.engines import Engine, build
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.models import YoloData, Yolov2, evaluate
from pytrtplugins.passes import Precisions, layer_names, prepare
from pytrtplugins.precision.scales import make_tables
from pytrtplugins.vision import letterbox

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- begin {} -->", "<!-- end {} -->"
MODES = {"minmax": "letterbox", "percentile": "letterbox", "entropy": "stretch"}  # why: calibration.ImageBatches


@dataclass(frozen=True)
class Case:
    """A network and the photos that it is judged on."""

    name: str
    cfg: Path
    names: Path
    data: Path
    mode: str


@dataclass(frozen=True)
class Row:
    """One measured configuration."""

    precision: str
    calibrator: str
    photos: str
    weights: str
    map50: float


def cases(shared: Path) -> dict[str, Case]:
    """The networks by name."""
    models, data = ROOT / "samples" / "models", shared / "data"
    pretrained = data / "pretrained"
    return {
        "yolov2-animals": Case(
            "yolov2-animals", models / "yolov2-animals.cfg", models / "yolov2-animals.names", data / "voc12-animals", "letterbox"
        ),
        "yolo-fastest-xl": Case(
            "yolo-fastest-xl", pretrained / "yolo-fastest-1.1-xl.cfg", pretrained / "coco.names", data / "coco-small", "stretch"
        ),
    }  # fmt: skip


def samples(data: YoloData, count: int, size: tuple[int, int], name: str, mode: str) -> Iterator[dict[str, np.ndarray]]:
    """The first photos of a shuffled training list, one a batch."""
    photos = data.photos("train.txt")
    order = np.random.default_rng(0).permutation(len(photos))[:count]
    for index in order:
        yield {name: np.asarray(letterbox(data.image(photos[index]), size, mode=mode).data, np.float32)[None]}


def measure(case: Case, calibration: YoloData, counts: list[int], limit: int | None, half: int) -> Iterator[Row]:
    """Every configuration of a network, one after the other."""
    model = prepare(to_onnx(read_network(case.cfg, case.cfg.with_suffix(".weights"))))
    data = YoloData(case.data)

    def judged(engine: Engine, photos: int | None = limit) -> float:
        with Yolov2(engine, case.names, mode=case.mode) as detector:
            return evaluate(detector, data, limit=photos, progress=False).map50

    exact = build(model, engine="cpu")
    yield Row("FP32", "–", "–", "–", judged(exact))
    if half:
        yield Row("FP32", "–", "–", f"first {half} photos", judged(exact, half))
        for precision in ("fp16", "bf16"):
            engine = build(model, engine="reference", precision=precision)
            yield Row(precision.upper(), "–", "–", f"first {half} photos", judged(engine, half))
    desc = exact.inputs[0]
    size = (int(desc.dims[3]), int(desc.dims[2]))
    for count in counts:
        tables = {}
        for mode in sorted(set(MODES.values())):
            wanted = [name for name, needs in MODES.items() if needs == mode]
            tables |= make_tables(
                model, samples(calibration, count, size, desc.name, mode), wanted, engine="cpu", progress=False
            )
        for name, table in sorted(tables.items()):
            scales = {tensor: float(scale) for tensor, scale in table.items()}
            for per_tensor in (False, True) if count == 50 else (False,):
                precisions = Precisions(
                    "int8", network_digest(model), layer_names(model), scales=scales, per_tensor=per_tensor
                )
                engine = build(model, engine="cpu", precision=precisions)
                yield Row("INT8", name, str(count), "per tensor" if per_tensor else "per channel", judged(engine))


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    exact = rows[0].map50
    lines = ["| precision | calibrator | photos | weights | mAP50 | against FP32 |", "|---|---|---:|---|---:|---:|"]
    for row in rows:
        if row.precision == "FP32":
            exact = row.map50
        if row.precision == "INT8":
            exact = rows[0].map50
        lines.append(
            f"| {row.precision} | {row.calibrator} | {row.photos} | {row.weights} | {row.map50:.4f} | {row.map50 - exact:+.4f} |"
        )
    return "\n".join(lines)


def write(path: Path, name: str, text: str) -> None:
    """Put a table between its marks."""
    page = path.read_text()
    begin, end = BEGIN.format(name), END.format(name)
    if begin not in page or end not in page:
        raise SystemExit(f"{path}: the marks {begin} and {end} are missing")
    head, tail = page.partition(begin)[0], page.partition(end)[2]
    path.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def main() -> None:
    """Parse arguments, measure, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument(
        "--shared", type=Path, default=ROOT.parent / "shared", help="folder with data/ (default: %(default)s)"
    )
    parser.add_argument("--networks", default="yolov2-animals,yolo-fastest-xl", help="(default: %(default)s)")
    parser.add_argument("--photos", default="5,10,50,200,1000", help="calibration photos (default: %(default)s)")
    parser.add_argument("--limit", type=int, default=None, help="evaluate the first photos only")
    parser.add_argument(
        "--half", type=int, default=40, help="photos for FP16 and BF16 in NumPy; 0: leave out (default: %(default)s)"
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "accuracy.md", help="page with the tables")
    given = parser.parse_args()
    known = cases(given.shared)
    calibration = YoloData(given.shared / "data" / "voc12-animals")
    counts = [int(count) for count in given.photos.split(",")]
    for name in given.networks.split(","):
        started, rows = time.perf_counter(), []
        for row in measure(known[name], calibration, counts, given.limit, given.half):
            rows.append(row)
            print(name, row, f"{time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        number = "all" if given.limit is None else f"the first {given.limit}"
        write(
            given.docs, name, f"{table(rows)}\n\nOn {number} photos of the list; {time.perf_counter() - started:.0f} s."
        )


if __name__ == "__main__":
    main()
