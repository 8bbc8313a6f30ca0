"""Find animals and people on images: darknet's files → ONNX → an engine → boxes.

    python samples/yolov2.py dog.jpg                                   in float32
    python samples/yolov2.py --int8 dog.jpg chelsea                    in INT8, with the scales that come with the model
    python samples/yolov2.py --fp8 dog.jpg chelsea                     in FP8, with the same scales
    python samples/yolov2.py --int8 --calibration photos/ --cache my.cache dog.jpg
    python samples/yolov2.py --cfg yolov2-voc.cfg --weights yolov2-voc.weights --names voc.names holidays/ film.mp4

The network's reorg and region layers are classes of Python: see pytrtplugins/layers.
"""

from __future__ import annotations

from pathlib import Path

from darknet2caffe import read_network, to_onnx
from pytrtplugins import build
from pytrtplugins.calibration import ImageBatches, MinMaxCalibrator
from pytrtplugins.models import Summary, Yolov2, exit_on_error, parse_options
from pytrtplugins.vision import Outputs

SHIPPED = Path(__file__).parent / "models" / "yolov2-animals"


def main() -> None:
    """Run the sample; the four steps are the whole way from darknet to boxes."""
    options = parse_options(__doc__, SHIPPED)

    # 1. darknet's cfg and weights become an ONNX model; reorg and region stay nodes of their own.
    model = to_onnx(read_network(options.cfg, options.weights))

    # 2. INT8 and FP8 need the scale of each tensor: from a cache, or measured on images and kept in the cache.
    scales: Path | MinMaxCalibrator | None = None
    if options.precision in ("int8", "fp8"):
        scales = options.cache
        if options.calibration:
            images = ImageBatches(options.calibration, mode=options.mode)
            scales = MinMaxCalibrator(images, cache=options.cache)

    # 3. An engine runs the model on this machine. engine.save("yolov2.engine") would keep it for the next time.
    engine = build(
        model, engine=options.engine, precision=options.precision, calibration=scales, threads=options.threads
    )

    # 4. The detector fits an image into the network's input, runs it, and turns what comes out into boxes.
    detector = Yolov2(engine, names=options.names, mode=options.mode)
    detector.warm_up()  # so that the times below are those of every further image
    print(f"engine {engine.name}, {engine.arithmetic}, input {detector.size[0]}x{detector.size[1]}")
    summary, score, iou = Summary(), options.threshold, options.nms
    with Outputs(options.sources, output=options.output, json=options.json) as outputs:
        for frame, found in detector.stream(options.sources, score_threshold=score, iou_threshold=iou):
            print(f"{frame.name}: {detector.timings}")
            for box in found:
                print(box)  # dog: 82%
            outputs.write(frame, found)
            summary.add(found, detector.timings)
    print("saved", *outputs.saved())
    print(summary)


if __name__ == "__main__":
    with exit_on_error():
        main()
