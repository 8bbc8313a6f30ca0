"""Parts of ``samples/train_yolov2.py``: YOLOv2 as a task of the engine in ``samples/training``. One noun a file.

- recipe: the numbers that decide how a run turns out
- data: shapes of boxes, anchors, letterboxed images
- boxes: how many boxes of a photo are learned
- network: the layers, declared once, for PyTorch and for the .cfg
- model: a trained network with its anchors and classes, and its file
- loss: darknet's region decoding, assignment of boxes to predictions, the three losses
- teacher: a network whose features are imitated
- task: the network with its losses, and how a batch becomes its inputs
- run: what a run of YOLOv2 measures and writes
- evaluate: detections and average precision
- export: .cfg, .weights and .names that darknet loads
- darknet: such files read again, to train the network further
"""
