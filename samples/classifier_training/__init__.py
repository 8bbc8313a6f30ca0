"""Parts of ``samples/train_classifier.py``: classes of photos as a task of the engine in ``samples/training``.

- recipe: the numbers that decide how a run turns out
- data: photos of one class each, of folders or shards, or drawn
- model: networks of torchvision or of your own, and their file
- task: the network with its loss, and how a batch becomes its inputs
- run: what a run measures and writes
"""
