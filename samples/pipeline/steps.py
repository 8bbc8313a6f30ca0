"""The steps of samples/pipeline/pipeline.yaml that are not commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pytrtplugins.mlops.registry import ModelRegistry

CLASSES = ("person", "dog", "cat", "horse", "cow", "sheep")
PHOTOS = {"chelsea": (2, (0, 0, 400, 300)), "astronaut": (0, (20, 15, 360, 512))}
"""Photos of scikit-image: the class of what is on them, and where: left, top, right, bottom in pixels, marked by hand."""
SIDE = 416
HELD_BACK = 3  # every third photo is for evaluation
CALIBRATED = 300  # images, as the step that calibrates takes


def draw_photos(inputs: Sequence[str], outputs: Sequence[str], number: int, seed: int) -> None:
    """Place two photos at random on plain grounds: a set of labelled photos in the YOLO layout that needs no download."""
    import cv2
    import skimage.data  # the full size has photos, and needs neither

    rng = np.random.default_rng(seed)
    folder = Path(outputs[0])
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    lists: dict[str, list[str]] = {"train.txt": [], "val.txt": []}
    for index in range(number):
        name = list(PHOTOS)[index % len(PHOTOS)]
        label, box = PHOTOS[name]
        photo, placed = _place(getattr(skimage.data, name)(), box, rng)
        cv2.imwrite(str(folder / f"images/{index:04}.jpg"), photo[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])
        (folder / f"labels/{index:04}.txt").write_text(
            " ".join([str(label), *(f"{each:.6f}" for each in placed)]) + "\n"
        )
        lists["train.txt" if index // len(PHOTOS) % HELD_BACK else "val.txt"].append(f"images/{index:04}.jpg")
    for file, names in lists.items():
        (folder / file).write_text("".join(f"{each}\n" for each in names))
    (folder / "classes.txt").write_text("".join(f"{each}\n" for each in CLASSES))


def _place(photo: np.ndarray, box: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, tuple[float, ...]]:
    """A photo, smaller and maybe mirrored, on a ground of one colour; and its box as centre and size in 0..1."""
    left, top, right, bottom = box
    import cv2

    if rng.random() < 0.5:
        photo, left, right = photo[:, ::-1], photo.shape[1] - right, photo.shape[1] - left
    scale = rng.uniform(0.6, 0.95) * SIDE / max(photo.shape[:2])
    size = [round(scale * each) for each in photo.shape[1::-1]]
    small = cv2.resize(photo, size, interpolation=cv2.INTER_AREA) * rng.uniform(0.8, 1.15)
    x, y = (int(rng.integers(0, SIDE - each + 1)) for each in size)
    canvas = np.full((SIDE, SIDE, 3), rng.integers(60, 200, 3), np.float64)
    canvas[y : y + size[1], x : x + size[0]] = small
    edges = [x + scale * left, y + scale * top, x + scale * right, y + scale * bottom]
    (x1, y1, x2, y2) = (each / SIDE for each in edges)
    return np.clip(canvas, 0, 255).astype(np.uint8), ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)


def choose(inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Take the calibration algorithm with the highest mAP50: of files that are called like it."""
    found = {Path(path).stem: json.loads(Path(path).read_text())["result"]["figures"] for path in inputs}
    best = max(found, key=lambda algorithm: found[algorithm]["map50"])
    for algorithm, figures in found.items():
        print(f"{algorithm}: mAP50 {figures['map50']:.4f}{', taken' if algorithm == best else ''}")
    Path(outputs[0]).write_text(json.dumps({"algorithm": best, "figures": found[best]}))


def search(inputs: Sequence[str], outputs: Sequence[str], engine: str, setting: str, margin: float) -> None:
    """Search for the layers that stay in float, beginning with the chosen calibration; mAP50 may be lower by the margin."""
    network, names, calibration, photos = inputs
    algorithm = json.loads(Path(calibration).read_text())["algorithm"]
    _pytrt(
        *("precision", "search", network, "--names", names, "--data", photos, "--output", outputs[0]),
        *(
            "--precision",
            "int8",
            "--algorithm",
            algorithm,
            "--calibration",
            str(CALIBRATED),
            "--tolerance",
            f"map50={margin}",
        ),
        *("--engine", engine, "--setting", setting),
    )


def measure_served(inputs: Sequence[str], outputs: Sequence[str], model: str) -> None:
    """Measure what is in production on the photos of today; while nothing is, the figures of the FP32 engine stand for it.

    The figure ``version`` says what was measured: 0 is the FP32 engine. The first input is the engine that is to be compared with it,
    so that each new one is compared with what is served when it comes.
    """
    _, float_figures, photos = inputs
    registry = ModelRegistry()
    known = registry.folder.path.is_dir() and model in registry.names()
    version = registry.history(model).current("production") if known else None
    if version is None:
        print(f"Nothing serves {model} yet: the FP32 engine stands for it.")
        measured = Path(float_figures).read_text()
    else:
        engine = registry.file(registry.get(model, version))
        print(f"{model}:{version} is served.")
        measured = _pytrt("evaluate", str(engine), "--data", photos, "--json", stdout=subprocess.PIPE)
    figures = json.loads(measured)["result"]["figures"]
    Path(outputs[0]).write_text(json.dumps({"version": version or 0, "figures": figures}))


def promote(inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Put the registered version into production. It need not be the newest: the same engine is not registered twice."""
    registered = json.loads(Path(inputs[0]).read_text())["result"]
    change = ModelRegistry().promote(registered["name"], registered["version"], why="samples/pipeline")
    print(f"{registered['name']}:{change.version} is in production.")
    Path(outputs[0]).write_text(json.dumps({"name": registered["name"], **asdict(change)}, indent=1))


def _pytrt(*words: str, stdout: int | None = None) -> str:
    """Run a command of pytrt; what it printed, where it is asked for."""
    command = [sys.executable, "-m", "pytrtplugins", *words]
    return subprocess.run(command, check=True, stdout=stdout, text=True).stdout or ""
