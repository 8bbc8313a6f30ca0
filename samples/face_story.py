"""From MXNet's files of a face network to the table that decides its precision, in one run.

    python samples/face_story.py model-symbol.json model-0000.params --faces faces.npz -o story

Every command is printed before it runs, so that it can be repeated by hand; docs/how-to/faces.md explains each of
them. The folder of -o gets
face.onnx, fused.svg (what the engine makes of the network), and table.md, table.html and table.json.

--export broken.onnx, a file that MXNet's own exporter wrote, is looked through and repaired too; its numbers are compared with those of
MXNet's files.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

from pytrtplugins import build
from pytrtplugins.errors import UsageError
from pytrtplugins.mlops.tables import LabelledImages
from pytrtplugins.mlops.tables.tasks import VerificationTask
from pytrtplugins.models import exit_on_error
from pytrtplugins.utils.numbers import IntList, IntRange
from pytrtplugins.vision import PIXELS


def main() -> None:
    """Run the story."""
    given = parse()
    given.output.mkdir(parents=True, exist_ok=True)
    face, broken = given.output / "face.onnx", given.export
    import_mxnet(given, face, given.shape)
    if not given.shape and (shape := shape_of_faces(given, face)):
        print(f"{given.symbol.name} leaves height and width free: here they are those of the faces.", flush=True)
        import_mxnet(given, face, shape)
    if broken:
        repaired = given.output / "repaired.onnx"
        pytrt("repair", broken, allowed=(0, 1))  # what it would change
        pytrt("repair", broken, "-o", repaired)
        print(
            f"largest difference between the repaired export and MXNet's files: {difference(given, face, repaired):.2g}"
        )
    pytrt("inspect", face, "--fused", "--engine", given.engines.split(",")[0], "--graph", given.output / "fused.svg")
    options = ["--task", "verification", "--data", given.faces, "--pixels", given.pixels, "--engine", given.engines]
    options += [
        "--precision",
        given.precisions,
        "--algorithm",
        given.algorithms,
        "--batch",
        ",".join(map(str, given.batches)),
    ]
    options += ["--calibration-size", ",".join(map(str, given.samples))]
    for suffix in ("md", "html", "json"):
        options += ["-o", given.output / f"table.{suffix}"]
    pytrt("table", face, *options)
    sample = Path(__file__).with_name("face.py")
    run(sys.executable, sample, "--model", face, "--pixels", given.pixels, "--measure", given.faces)


def import_mxnet(given: argparse.Namespace, face: Path, shape: str) -> None:
    """Write MXNet's network as an ONNX file, with an input of this shape where one is given."""
    pytrt("import", "mxnet", given.symbol, given.params, *(("--shape", shape) if shape else ()), "-o", face)


def shape_of_faces(given: argparse.Namespace, face: Path) -> str:
    """What --shape says for the size of the first face, or nothing if the network has a size of its own or several inputs."""
    inputs = onnx.load(face).graph.input
    if len(inputs) != 1 or all(axis.dim_value for axis in inputs[0].type.tensor_type.shape.dim[1:]):
        return ""
    faces = LabelledImages(given.faces)
    height, width, channels = faces.image(faces.names[0]).shape
    return f"{inputs[0].name}={channels}x{height}x{width}"


def pytrt(*words: object, allowed: tuple[int, ...] = (0,)) -> None:
    """Print and run a command of pytrt."""
    run(sys.executable, "-m", "pytrtplugins", *words, shown="pytrt", allowed=allowed)


def run(*words: object, shown: str = "", allowed: tuple[int, ...] = (0,)) -> None:
    """Print and run a command; what fails ends the story.

    Raises:
        UsageError: it ended with another code than those that are allowed.
    """
    command = list(map(str, words))
    text = shlex.join([shown, *command[3:]] if shown else ["python", *command[1:]])
    print(f"\n$ {text}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code not in allowed:
        raise UsageError(f"the command above ended with code {code}.\nDo: mend what it says, then run the story again")


def difference(given: argparse.Namespace, *files: Path) -> float:
    """The largest difference between the embeddings of two networks, on eight of the faces."""
    found = []
    for file in files:
        engine = build(file, engine="onnxruntime", progress=False)
        with engine.create_context() as context:
            inputs = VerificationTask(LabelledImages(given.faces), pixels=given.pixels).inputs(engine.inputs, 8)
            (values,) = context.run(inputs).values()
            found.append(np.array(values))
    return float(np.abs(found[0] - found[1]).max())


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("symbol", type=Path, help="MXNet's symbol.json")
    add("params", type=Path, help="MXNet's .params")
    add(
        "--faces",
        type=Path,
        required=True,
        help="aligned faces: a folder for each person, or an .npz file of person/photo",
    )
    add("--export", type=Path, metavar="ONNX", help="what MXNet's exporter wrote, to be repaired")
    add(
        "--shape",
        default="",
        metavar="NAME=CxHxW",
        help="of the input (default: what symbol.json says, else the size of the first face)",
    )
    add("--pixels", choices=list(PIXELS), default="0..255", help="what the network takes (default: %(default)s)")
    add("--engine", dest="engines", default="cpu,onnxruntime", help="(default: %(default)s)")
    add("--precision", dest="precisions", default="fp32,int8", help="(default: %(default)s)")
    add("--algorithm", dest="algorithms", default="minmax,entropy", help="of calibration (default: %(default)s)")
    add(
        "--calibration-size",
        dest="samples",
        type=IntList(IntRange(1, 1_000_000)),
        default=(50, 200),
        help="faces that calibrate (50,200)",
    )
    add("--batch", dest="batches", type=IntList(IntRange(1, 4096)), default=(1, 8), help="faces of a run (1,8)")
    add("-o", "--output", type=Path, default=Path("face_story"), help="folder for what is made (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    with exit_on_error():
        main()
