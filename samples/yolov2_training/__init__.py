"""Parts of ``samples/train_yolov2.py``: one noun a file, in the order in which data flows through them.

What does not depend on the network, such as the augmentation, is in ``samples/training``.

- recipe: every number that decides how a run turns out
- data: images and boxes, from a folder or from tars, to uint8 tensors on the device
- network: the layers, declared once, for PyTorch and for the .cfg
- loss: darknet's region decoding, assignment of boxes to predictions, the three losses
- trainer: one step, the schedule, the checkpoint
- evaluate: detections and average precision
- export: .cfg, .weights and .names that darknet loads
- curve: the learning curve
"""
