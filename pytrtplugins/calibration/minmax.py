"""Thresholds that never saturate: the largest |x| seen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .calibrator import Calibrator
from .histogram import absolute_maximum

__all__ = ["MinMaxCalibrator"]


class MinMaxCalibrator(Calibrator):
    """Calibrator that takes the largest |x| seen: nothing seen in calibration saturates.

    TensorRT's ``IInt8MinMaxCalibrator``, and the one to begin with: it is the default of ``pytrt``, and the only one of the
    three that loses nothing where rare large values carry meaning.

    Args:
        batches: See `Calibrator`.
        cache: See `Calibrator`.

    Example:
        >>> import numpy as np
        >>> calibrator = MinMaxCalibrator()
        >>> calibrator.observe("x", np.array([-127.0, 3.0]))
        >>> float(calibrator.compute_table()["x"])
        1.0
    """

    algorithm = "MinMaxCalibration"

    def reset(self) -> None:
        """Forget what was observed."""
        self._maxima: dict[str, float] = {}

    def amax_of(self, name: str) -> float:
        """Give the largest |x| of a tensor."""
        return self._maxima[name]

    def observed(self) -> tuple[str, ...]:
        """Names of the tensors seen, in the order of their first batch."""
        return tuple(self._maxima)

    def _observe(self, name: str, array: npt.NDArray[np.float32]) -> None:
        self._maxima[name] = max(self._maxima.get(name, 0.0), absolute_maximum(array))
