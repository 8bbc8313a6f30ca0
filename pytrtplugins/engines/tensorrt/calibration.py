"""Our calibrators as TensorRT 10's: same classes, same batches, same cache file."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...calibration import CalibrationTable, Calibrator
from ...errors import CalibrationError, NoDataError
from ...passes import quantized_tensors, to_ir
from ...utils.optional import onnx
from ..calibrate import fitting_table, float_tensors, network_digest
from ._api import Api
from .collected import guarded
from .device import Device

__all__ = ["CalibrationSource", "make_calibrator"]

_log = logging.getLogger(__name__)


class CalibrationSource:
    """Where TensorRT's calibrator takes tables and batches from.

    Raises:
        CalibrationTableError: a table is broken or was made for another network.
    """

    def __init__(self, calibration: Calibrator | CalibrationTable | str | Path, model: onnx.ModelProto) -> None:
        self.calibrator = calibration if isinstance(calibration, Calibrator) else None
        self._network, required = network_digest(model), quantized_tensors(to_ir(model, checked=True))
        if isinstance(calibration, Calibrator):
            self.table = calibration.cached_table(float_tensors(model), network=self._network, required=required)
            self.algorithm = calibration.get_algorithm() if self.table is None else self.table.algorithm
        else:
            self.table = fitting_table(calibration, model, required)
            self.algorithm = self.table.algorithm

    def images(self) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
        """One image at a time, each input with a batch of 1."""
        if self.calibrator is None:
            raise NoDataError("nothing to calibrate with: only a table was given")
        for batch in self.calibrator.get_batches():
            for index in range(len(next(iter(batch.values())))):
                yield {name: array[index : index + 1] for name, array in batch.items()}

    def keep(self, data: bytes) -> None:
        """Keep the table that TensorRT made."""
        self.table = CalibrationTable.from_bytes(data, path="TensorRT's calibration cache")
        if self.calibrator is not None:
            self.calibrator.store_table(self.table, network=self._network)


def make_calibrator(api: Api, source: CalibrationSource, batch: int, device: Device) -> Any:
    """TensorRT's calibrator object of an algorithm; keep it until the build ends. Images that fill no batch are not used.

    Raises:
        UnavailableError: this TensorRT has no calibrators.
    """
    base = api.calibrator_base(source.algorithm)

    class Bridge(base):  # type: ignore[misc, valid-type]
        """Asks our calibrator."""

        def __init__(self) -> None:
            base.__init__(self)
            self.batches = 0
            self._held: list[Any] = []
            self._images: Iterator[Mapping[str, npt.NDArray[Any]]] | None = None

        def get_batch_size(self) -> int:
            return batch

        @guarded
        def get_batch(self, names: Sequence[str]) -> list[int] | None:
            self._images = source.images() if self._images is None else self._images
            images = list(itertools.islice(self._images, batch))
            if len(images) < batch:
                if images:
                    _log.warning("calibration: the last %d images do not fill a batch of %d", len(images), batch)
                return None
            arrays = [np.concatenate([_image(image, name) for image in images]) for name in names]
            with device.cupy.cuda.Device(device.index):
                self._held = [device.cupy.asarray(np.ascontiguousarray(array)) for array in arrays]
                device.cupy.cuda.get_current_stream().synchronize()  # TensorRT reads on streams of its own
            self.batches += 1
            return [int(array.data.ptr) for array in self._held]

        @guarded
        def read_calibration_cache(self) -> bytes | None:
            if source.table is None:
                return None
            return source.table.with_version(api.cache_version).to_bytes()  # it takes no other version's

        @guarded
        def write_calibration_cache(self, cache: Any) -> None:
            source.keep(bytes(cache))

        def check(self) -> None:
            """Require that there were data."""
            if source.table is None and not self.batches:
                raise NoDataError(
                    f"nothing to calibrate with: the data do not fill one batch of {batch}.\n"
                    'Do: settings={"batch": 1}, or give more images'
                )

    return Bridge()


def _image(image: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    if name not in image:
        raise CalibrationError(f"a calibration batch lacks the input {name!r}; it has {', '.join(image)}")
    return image[name]
