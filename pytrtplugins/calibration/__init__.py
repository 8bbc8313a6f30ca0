"""INT8 calibration: compute a table of scales from batches of inputs. NumPy only, independent of engines."""

from __future__ import annotations

from .batches import ImageBatches
from .calibrator import Calibrator
from .entropy import EntropyCalibrator
from .histogram import Histogram
from .minmax import ChannelMaximaCalibrator, MinMaxCalibrator
from .percentile import PercentileCalibrator
from .table import CalibrationTable

__all__ = [
    "CALIBRATORS",
    "CalibrationTable",
    "Calibrator",
    "ChannelMaximaCalibrator",
    "EntropyCalibrator",
    "Histogram",
    "ImageBatches",
    "MinMaxCalibrator",
    "PercentileCalibrator",
]

CALIBRATORS: dict[str, type[Calibrator]] = {
    "minmax": MinMaxCalibrator,
    "entropy": EntropyCalibrator,
    "percentile": PercentileCalibrator,
}
"""Name of an algorithm → its calibrator."""

for _name in set(__all__) - {"CALIBRATORS"}:
    globals()[_name].__module__ = __name__
del _name
