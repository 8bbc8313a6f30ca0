"""The largest |x| of each channel, for cross-layer equalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .minmax import MinMaxCalibrator

__all__ = ["ChannelMaximaCalibrator"]


class ChannelMaximaCalibrator(MinMaxCalibrator):
    """Min-max calibrator that notes the largest magnitude in every channel too.

    `pytrtplugins.engines.equalize` uses it to give `pytrtplugins.passes.CrossLayerEqualization` its ranges.

    Args:
        batches: See `Calibrator`.
        cache: See `Calibrator`.

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

    def reset(self) -> None:
        """Forget what was observed."""
        super().reset()
        self.channels: dict[str, npt.NDArray[np.float32]] = {}

    def _observe(self, name: str, array: npt.NDArray[Any]) -> None:
        super()._observe(name, array)  # refuses what is not finite
        if array.ndim >= 2:
            others = (0, *range(2, array.ndim))
            largest = np.maximum(array.max(axis=others), -array.min(axis=others)).astype(np.float32)
            self.channels[name] = np.maximum(self.channels.get(name, largest), largest)
