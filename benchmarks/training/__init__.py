"""The engine of samples/train_yolov2.py: its loaders, its steps, and its ways to share variables, timed beside each other.

``python -m benchmarks.training loaders --help`` lists what can be chosen; `steps` and `modes` likewise.
"""

import sys
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "samples"
if str(SAMPLES) not in sys.path:
    sys.path.insert(0, str(SAMPLES))  # where the engine is
