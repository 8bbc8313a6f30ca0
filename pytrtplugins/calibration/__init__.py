"""INT8 calibration: batches in, a table of scales out. NumPy only; knows no engine."""

from __future__ import annotations

from .batches import ImageBatches
from .calibrator import Calibrator
from .channels import ChannelMaximaCalibrator
from .entropy import EntropyCalibrator
from .histogram import Histogram
from .minmax import MinMaxCalibrator
from .percentile import PercentileCalibrator
from .table import CalibrationTable

__all__ = [
    "CalibrationTable",
    "Calibrator",
    "ChannelMaximaCalibrator",
    "EntropyCalibrator",
    "Histogram",
    "ImageBatches",
    "MinMaxCalibrator",
    "PercentileCalibrator",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
