"""The GPU race: YOLOv2 on engine `cuda` in every precision, beside PyTorch, darknet and onnxruntime on the same GPU.

``python -m benchmarks --gpu`` runs everything and writes the tables and the chart into docs/. Heads and boxes are compared
before anything is timed. Every round is paired: right before it the baseline runs, so that ratios hold when clocks drift.
"""
