"""YOLOv2's latency on every engine, beside darknet, onnxruntime, OpenVINO and OpenCV.

``python -m benchmarks`` (or ``make bench``) runs everything and writes the table and the chart into docs/.
``pytest benchmarks`` runs the same tests without writing. Each run is paired: right before every timed round the
baseline is timed too, so that the ratio holds when the machine's speed drifts.
"""
