"""Min-max calibration: thresholds are the largest |x| observed, of a tensor and of each of its channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.override import override
from .calibrator import Calibrator
from .histogram import absolute_maximum

__all__ = ["ChannelMaximaCalibrator", "MinMaxCalibrator"]


class MinMaxCalibrator(Calibrator):
    """Calibrator whose threshold is the largest |x| observed: no value of the calibration data saturates.

    TensorRT's ``IInt8MinMaxCalibrator``, and the one to begin with: it is the default of ``pytrt``, and the only one of the
    three that loses nothing where rare large values carry meaning.

    Example:
        >>> import numpy as np
        >>> calibrator = MinMaxCalibrator()
        >>> calibrator.observe("x", np.array([-127.0, 3.0]))
        >>> float(calibrator.compute_table()["x"])
        1.0
    """

    algorithm = "MinMaxCalibration"

    @override
    def reset(self) -> None:
        self._maxima: dict[str, float] = {}

    def amax_of(self, name: str) -> float:
        """Return the largest |x| of a tensor."""
        return self._maxima[name]

    @override
    def observed(self) -> tuple[str, ...]:
        return tuple(self._maxima)

    def _observe(self, name: str, array: npt.NDArray[np.float32]) -> None:
        self._maxima[name] = max(self._maxima.get(name, 0.0), absolute_maximum(array))


class ChannelMaximaCalibrator(MinMaxCalibrator):
    """Min-max calibrator that also records the largest magnitude in each channel.

    `pytrtplugins.engines.equalize` uses it to give `pytrtplugins.passes.CrossLayerEqualization` its ranges.

    Attributes:
        channels: Tensor → float32 (C,), the largest magnitude in each channel, in the tensor's unit; tensors of two and
            more axes only, whose axis 1 is taken for the channels.

    Example:
        >>> import numpy as np
        >>> calibrator = ChannelMaximaCalibrator()
        >>> calibrator.observe("x", np.array([[[[1.0, -4.0]], [[0.5, 0.25]]]]))
        >>> calibrator.channels["x"].tolist()
        [4.0, 0.5]
    """

    @override
    def reset(self) -> None:
        super().reset()
        self.channels: dict[str, npt.NDArray[np.float32]] = {}

    def _observe(self, name: str, array: npt.NDArray[Any]) -> None:
        super()._observe(name, array)  # refuses what is not finite
        if array.ndim >= 2:
            axes = (0, *range(2, array.ndim))
            largest = np.maximum(array.max(axis=axes), -array.min(axis=axes)).astype(np.float32)
            self.channels[name] = np.maximum(self.channels.get(name, largest), largest)
