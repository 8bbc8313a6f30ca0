"""Compare faces: the same person? who is it?

    python samples/face.py --model face.onnx A.jpg B.jpg               are these the same person?
    python samples/face.py --model face.onnx --enroll people/ --find photo.jpg
                                                                       who of the people in the folders of people/ is it?
    python samples/face.py --model face.onnx --enroll people/ --index people.npz      keep what was enrolled
    python samples/face.py --model face.onnx --index people.npz --find photo.jpg      and use it again
    python samples/face.py --model face.onnx --measure people/         the threshold for 0.001 false positives, on photos of yours

The model takes aligned faces, usually 112x112 pixels, and gives an embedding. Photos on which the face is not aligned need a detector:
--detector face_detection_yunet_2023mar.onnx, from OpenCV's model zoo, finds the face and its five points.
docs/how-to/faces.md says where to get
a face network, how to repair its export, and how to decide between FP32, FP16 and INT8.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytrtplugins import build
from pytrtplugins.errors import UsageError
from pytrtplugins.mlops.tables import LabelledImages
from pytrtplugins.mlops.tables.verification import cosines, pairs_of, verify
from pytrtplugins.models import exit_on_error
from pytrtplugins.models.faces import FaceEmbedder, FaceIndex
from pytrtplugins.utils.numbers import FloatRange
from pytrtplugins.vision import PIXELS, load_image
from pytrtplugins.vision.faces import FaceFinder

Image = npt.NDArray[np.uint8]


def main() -> None:
    """Run the sample."""
    options = parse()
    engine = build(
        options.model, engine=options.engine, precision=options.precision, calibration=options.cache, progress=False
    )
    embed = FaceEmbedder(engine, options.pixels)
    finder = FaceFinder(options.detector) if options.detector else None
    print(
        f"engine {engine.name}, {engine.arithmetic}; "
        + ("faces are found and aligned" if finder else "photos count as aligned faces")
    )

    def face(image: Image, name: str) -> Image:
        return finder.aligned(image, name, embed.size[0]) if finder else image

    def faces(people: LabelledImages) -> npt.NDArray[np.float32]:
        return embed(face(people.image(name), name) for name in people.names)

    if options.measure:
        people = LabelledImages(options.measure)
        rows = faces(people)
        first, second, same = pairs_of(people.numbers)
        found = verify(cosines(rows, first, second), same)
        print(
            f"{found.pairs:,} pairs, {found.same:,} of the same person; balanced accuracy {found.balanced_accuracy:.4f}"
        )
        print(
            f"true positives at 0.001 false positives: {found.tpr_at_001:.4f}, with --threshold {found.threshold:.3f}"
        )
    elif options.photos:
        one, other = embed(face(load_image(path), str(path)) for path in options.photos)
        cosine = float(one @ other)
        answer = "the same person" if cosine > options.threshold else "different people"
        print(f"{answer}: cosine {cosine:.3f}, threshold {options.threshold:.3f}")
    else:
        if options.enroll:
            people = LabelledImages(options.enroll)
            rows = faces(people)
            index = FaceIndex(people.names, rows)
            print(f"enrolled {len(people.labels)} people with {len(index)} photos")
            if options.index:
                index.save(options.index)
                print(f"saved {options.index}")
        else:
            index = FaceIndex.load(options.index)
        if options.find:
            (wanted,) = embed([face(load_image(options.find), str(options.find))])
            for rank, near in enumerate(index.find(wanted), 1):
                sure = "" if near.cosine > options.threshold else "  (below the threshold)"
                print(f"{rank}. {near.person}: cosine {near.cosine:.3f} with {near.name}{sure}")


def parse() -> argparse.Namespace:
    """Read the command line.

    Raises:
        UsageError: the options do not go together.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="*", type=Path, metavar="PHOTO", help="two photos to compare")
    parser.add_argument("--model", type=Path, required=True, metavar="FILE.onnx", help="the face network")
    parser.add_argument(
        "--pixels", choices=PIXELS, default="0..255", help="values that it takes for pixels; default: %(default)s"
    )
    parser.add_argument(
        "--threshold",
        type=FloatRange(-1.0, 1.0),
        default=0.38,
        metavar="X",
        help=(
            "cosine above which two faces are the same person; default: %(default)s, which --measure gave for one network: measure yours"
        ),
    )
    parser.add_argument("--enroll", type=Path, metavar="DIR", help="a folder with a folder of photos for each person")
    parser.add_argument("--index", type=Path, metavar="FILE.npz", help="where enrolled faces are kept")
    parser.add_argument("--find", type=Path, metavar="PHOTO", help="name the nearest people")
    parser.add_argument("--measure", type=Path, metavar="DIR|FILE.npz", help="measure the threshold on labelled photos")
    parser.add_argument(
        "--detector", type=Path, metavar="FILE.onnx", help="OpenCV's FaceDetectorYN, for photos that are not aligned"
    )
    parser.add_argument(
        "--engine", default="auto", metavar="NAME", help="engine that `pytrt devices` lists; default: %(default)s"
    )
    parser.add_argument("--precision", choices=("fp32", "fp16", "int8"), default="fp32", help="default: %(default)s")
    parser.add_argument(
        "--cache", type=Path, metavar="FILE", help="calibration cache for int8, which `pytrt calibrate` writes"
    )
    options = parser.parse_args()
    if len(options.photos) not in (0, 2):
        raise UsageError(
            f"expected two photos to compare, found {len(options.photos)}\nDo: python samples/face.py --help"
        )
    known = options.enroll or options.index
    asked = [bool(options.photos), bool(options.measure), bool(known)]
    if sum(asked) != 1 or (options.find and not known) or (options.index and not options.enroll and not options.find):
        raise UsageError(
            "expected two photos, or --measure DIR, or --enroll DIR or --index FILE with --find PHOTO\n"
            "Do: python samples/face.py --help"
        )
    if options.precision == "int8" and not options.cache:
        raise UsageError(
            "--precision int8 needs --cache FILE\nDo: pytrt calibrate face.onnx --calibration ARRAYS --cache face.cache"
        )
    return options


if __name__ == "__main__":
    with exit_on_error():
        main()
