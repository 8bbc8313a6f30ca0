"""The common command line of the detector samples."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..passes import CODES
from ..utils.atomic import check_target
from ..utils.numbers import SHARE, THREADS
from ..vision import MODES, Sources
from ..vision.targets import plan_targets
from .download import NAMES, download

__all__ = ["Options", "parse_options"]

_PRECISIONS = {
    "fp32": "single precision (default)",
    "fp16": "half precision",
    "int8": "8-bit integers",
    "fp8": "8-bit floats (E4M3)",
}


@dataclass(frozen=True)
class Options:
    """Parsed options of a sample; the existence of every input file is checked.

    Fields:
        sources: Images and videos.
        names: Its class names; None where there is no such file.
        precision: ``"fp32"``, ``"fp16"``, ``"int8"`` or ``"fp8"``.
        engine: Name of the engine, or ``"auto"``.
        threads: CPU threads; None: the engine decides.
        calibration: Folder of images to calibrate with; None: the cache only.
        cache: Calibration cache to read or write.
        threshold: Lowest score, 0..1.
        nms: Highest overlap, 0..1.
        output: Where annotated images and videos go.
        json: File for the results; None: none.
    """

    sources: Sources
    cfg: Path
    weights: Path
    names: Path | None
    precision: str
    engine: str
    threads: int | None
    calibration: Path | None
    cache: Path
    threshold: float
    nms: float
    mode: str
    output: Path
    json: Path | None


def parse_options(description: str, model: str | Path, arguments: Sequence[str] | None = None) -> Options:
    """Read a sample's command line.

    Args:
        description: The sample's docstring, shown by ``--help``.
        model: Stem of the files to use by default: ``<model>.cfg``, ``.weights``, ``.names`` and ``.cache``.
        arguments: The words of the command line; None: the process's.

    Raises:
        ImageError: an image is missing.
        UsageError: a file or folder is missing, or INT8 or FP8 is asked for and there is nothing to take its scales from.
    """
    options = _parser(description).parse_args(arguments)
    download_name = vars(options).pop("download")
    if options.json:
        check_target(options.json, "--save-json")
    options.sources = Sources(vars(options).pop("images"), folders=[Path(model).parents[1]])
    options.output = options.output or _default_output(options.sources)
    plan_targets(options.output, options.sources.found)
    if download_name:
        if options.cfg or options.weights:
            raise UsageError("--download brings the cfg and the weights: leave out --cfg and --weights.")
        files = download(download_name)
        options.cfg, options.weights, options.names = files.cfg, files.weights, options.names or files.names
    options.cfg = options.cfg or Path(f"{model}.cfg")
    options.weights = options.weights or options.cfg.with_suffix(".weights")
    names_file = options.cfg.with_suffix(".names")
    options.names = options.names or (names_file if names_file.is_file() else None)
    for option, path in (("--cfg", options.cfg), ("--weights", options.weights)):
        if not path.is_file():
            raise UsageError(f"{option} {path}: no such file. Looked for: {path.absolute()}", path=path)
    options.cache = options.cache or options.cfg.with_suffix(".cache")
    if options.precision in CODES and not options.calibration and not options.cache.is_file():
        raise UsageError(
            f"--{options.precision} needs the scale of each tensor: there is no calibration cache {options.cache}, and no images to make "
            "one from.\n"
            "Do: add --calibration DIR with a few hundred images like those that the network will see, or --cache FILE",
            cache=options.cache,
        )
    return Options(**vars(options))


def _default_output(sources: Sources) -> Path:
    """Return the default output: a file, or a folder if there are images and videos."""
    kinds = {source.kind == "image" for source in sources.found}
    return Path("predictions" if len(kinds) > 1 else "predictions.png" if True in kinds else "predictions.mp4")


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="images, videos, folders, URLs; chelsea and dog.jpg are found automatically",
    )
    precision = parser.add_mutually_exclusive_group()
    for name, text in _PRECISIONS.items():
        precision.add_argument(
            f"--{name}", dest="precision", action="store_const", const=name, default="fp32", help=text
        )
    add("--engine", default="auto", help="auto, cpu, onnxruntime, reference; see: pytrt devices")
    add("--threads", type=THREADS, metavar="N", help="CPU threads")
    add("--cfg", type=Path, metavar="FILE", help="darknet's network; default: the model that comes with the samples")
    add("--weights", type=Path, metavar="FILE", help="its weights; default: beside the cfg")
    add("--names", type=Path, metavar="FILE", help="its class names, one per line; default: beside the cfg")
    add("--download", choices=NAMES, metavar="NAME", help=f"fetch a published network: {', '.join(NAMES)}")
    add("--calibration", type=Path, metavar="DIR", help="images to calibrate INT8 or FP8 with")
    add(
        "--cache",
        type=Path,
        metavar="FILE",
        help="calibration cache; read if it fits, or else written; default: beside the cfg",
    )
    add("--threshold", type=SHARE, default=0.5, metavar="X", help="lowest score, default 0.5")
    add("--nms", type=SHARE, default=0.45, metavar="X", help="highest overlap of boxes of a class, default 0.45")
    add("--fit", dest="mode", choices=MODES, default="letterbox", help="how images are fitted into the network's input")
    add(
        "--output",
        type=Path,
        metavar="FILE|DIR",
        help="annotated images and videos; default predictions.png, predictions.mp4",
    )
    add("--save-json", dest="json", type=Path, metavar="FILE", help="write the detections as JSON")
    add("--json", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # their old names
    add("--mode", choices=MODES, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser
