"""Base classes of calibrators, which observe the tensors of many batches and compute a scale for each."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import CalibrationError, CalibrationTableError, NoDataError, UsageError
from ..utils.atomic import write_atomic
from ..utils.files import read_regular, sha256_hex
from ..utils.listing import first_texts
from ..utils.override import override
from ..version import __version__
from .clipping import MAX_LOST_DB, Clipping, clipping_of
from .histogram import Histogram
from .sidecar import Sidecar
from .table import MAX_CACHE_BYTES, CalibrationTable

__all__ = ["Calibrator", "HistogramCalibrator"]

_log = logging.getLogger(__name__)
_LEVELS = 127
_SHOWN = 5  # tensors that a warning names


class Calibrator(ABC):
    """Base class of calibrators: observes tensors in batches, computes a table of scales, stores it in a cache file.

    An engine asks `cached_table` first. Where that gives None, it runs every batch of `get_batches` in float, hands
    every tensor to `observe`, takes `compute_table`, and keeps it with `store_table`. Memory does not grow with the
    number of batches.

    To override, as in TensorRT: `read_calibration_cache` and `write_calibration_cache` for tables kept elsewhere, and
    `get_batches` for data of your own. Code written for TensorRT may keep its ``get_batch(names)``: `get_batches` then
    calls it until it gives None. It must give arrays there (a mapping by input name, or a list in the order of names),
    not device addresses.

    Args:
        batches: Iterable of batches, each a mapping of input name to float32 array, such as `ImageBatches`; it is
            iterated once per calibration. None for a calibrator that only reads its cache or brings its own batches.
        cache: Path of the calibration cache; beside it stands ``<cache>.json``, which names network, data, algorithm.
            None: nothing is kept.
    """

    algorithm: ClassVar[str]

    def __init__(self, batches: Iterable[Any] | None = None, *, cache: str | Path | None = None) -> None:
        self.batches = batches
        self.cache = None if cache is None else Path(cache)
        self._inputs: dict[str, tuple[object, ...]] = {}
        self.reset()

    # --- what users override -----------------------------------------------------------------------------------------

    def get_algorithm(self) -> str:
        """Return the algorithm's name in the cache's header: the class attribute ``algorithm``."""
        return self.algorithm

    def get_batches(self) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
        """Yield the batches to calibrate with.

        Raises:
            NoDataError: there are none.
        """
        has_get_batch = hasattr(self, "get_batch")
        source: Iterable[Any] | None = self._polled_batches() if has_get_batch else self.batches
        if source is None:
            raise NoDataError(
                f"{type(self).__name__}: nothing to calibrate with: no batches were given"
                + (f", and there is no cache {self.cache}.\n" if self.cache else ".\n")
                + f'Do: {type(self).__name__}(ImageBatches("images/", size=(416, 416)), cache="model.cache")'
            )
        is_empty = True
        for batch in source:
            is_empty = False
            yield self._as_mapping(batch)
        if is_empty:
            raise NoDataError(
                f"{type(self).__name__}: nothing to calibrate with: "
                f"{'get_batch' if has_get_batch else type(source).__name__} gave no batch.\n"
                "Causes: (1) a generator was used up by an earlier calibration; (2) the data set is empty."
            )

    def read_calibration_cache(self) -> bytes | None:
        """Return the bytes that `write_calibration_cache` stored; None if there are none."""
        if self.cache is None:
            return None
        try:
            return read_regular(self.cache, MAX_CACHE_BYTES, error=CalibrationTableError)
        except FileNotFoundError:
            return None

    def write_calibration_cache(self, cache: bytes) -> None:
        """Store the bytes of a cache; by default atomically in the file ``cache``."""
        if self.cache is not None:
            write_atomic(self.cache, bytes(cache))

    # --- what engines call -------------------------------------------------------------------------------------------

    def bind(self, inputs: Mapping[str, Sequence[object]]) -> None:
        """Set the network's inputs: name → dims, where a free dim is anything but an int.

        Gives ``get_batch`` its names and `ImageBatches` without a size the network's. The names that batches of
        `get_batches` carry are added by themselves.
        """
        self._inputs = {name: tuple(dims) for name, dims in inputs.items()}
        set_default = getattr(self.batches, "set_default_input", None)
        if set_default is not None and len(self._inputs) == 1:
            set_default(*next(iter(self._inputs.items())))

    def observe(self, name: str, array: npt.ArrayLike) -> None:
        """Record the values of a tensor in one batch.

        Raises:
            CalibrationError: a value is NaN or infinite; ``.tensor`` says where.
        """
        try:
            self._observe(name, np.asarray(array))
        except CalibrationError as error:
            raise CalibrationError(f"tensor {name!r}: {error}", tensor=name) from error

    def compute_table(self) -> CalibrationTable:
        """Compute the scales of all observed tensors.

        Raises:
            NoDataError: nothing was observed.
        """
        names = self.observed()
        if not names:
            raise NoDataError(f"{type(self).__name__}: no tensor was observed, so there are no scales to compute.")
        return CalibrationTable({name: self.amax_of(name) / _LEVELS for name in names}, self.get_algorithm())

    def cached_table(
        self, tensors: Collection[str], *, network: str = "", required: Collection[str] | None = None
    ) -> CalibrationTable | None:
        """Return the cached table if it fits the network; None if there is none, or it must be computed again.

        It must be computed again when there are batches, and its algorithm or data are not this calibrator's. Without a
        sidecar file, and with overridden `read_calibration_cache`, the names alone decide.

        Args:
            tensors: Names of the network's float tensors.
            network: Digest of the model; "" if unknown.
            required: Names without which the network cannot be quantized; default: all.

        Raises:
            CalibrationTableError: the cache is broken, does not belong to its sidecar file, or was made for another network.
        """
        stored = self._read_stored()
        if stored is None:
            return None
        data, sidecar = stored
        path = self.cache if self.cache is not None else f"{type(self).__name__}'s cache"
        table = CalibrationTable.from_bytes(data, path=path)
        digests = (sidecar.network, network) if sidecar and sidecar.network and network else None
        table.check_fits(tensors, required=required, path=path, digests=digests)
        stale_reason = self._stale_reason(table, sidecar)
        if stale_reason and self._has_batches():
            _log.warning("%s: %s; calibrating again", path, stale_reason)
            return None
        if stale_reason:
            _log.warning("%s: %s; used anyway, since there are no batches to calibrate with", path, stale_reason)
        return table

    def store_table(self, table: CalibrationTable, *, network: str = "") -> None:
        """Store a table in the cache, with a sidecar file if the cache is a file; ``network``: the model's digest, "" if unknown."""
        data = table.to_bytes()
        if self.cache is None:
            self.write_calibration_cache(data)
            return
        Sidecar(
            network=network,
            data=self._data_digest(),
            algorithm=self.signature,
            tensors=len(table),
            table=sha256_hex(data),
            created_by=f"pytrtplugins {__version__}",
        ).write(self.cache, lambda: self.write_calibration_cache(data))

    # --- what the algorithms fill in ---------------------------------------------------------------------------------

    @property
    def signature(self) -> str:
        """The algorithm with its parameters, as written in the sidecar file."""
        return self.get_algorithm()

    @abstractmethod
    def reset(self) -> None:
        """Discard all observations."""

    @abstractmethod
    def observed(self) -> tuple[str, ...]:
        """Return the names of the observed tensors, in the order of first observation."""

    @abstractmethod
    def amax_of(self, name: str) -> float:
        """Return the |x| at which the tensor saturates, in its unit."""

    @abstractmethod
    def _observe(self, name: str, array: npt.NDArray[Any]) -> None: ...

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _polled_batches(self) -> Iterator[Any]:
        """Yield batches of ``get_batch``, TensorRT's interface, until it returns None or an empty list."""
        get_batch = getattr(self, "get_batch")  # noqa: B009  # not declared: only subclasses may have it
        while (batch := get_batch(list(self._inputs))) is not None and len(batch) > 0:
            yield batch

    def _has_batches(self) -> bool:
        overrides_batches = hasattr(self, "get_batch") or type(self).get_batches is not Calibrator.get_batches
        return overrides_batches or self.batches is not None

    def _data_digest(self) -> str:
        digest = getattr(self.batches, "digest", None)
        return str(digest()) if digest is not None else ""

    def _read_stored(self) -> tuple[bytes, Sidecar | None] | None:
        """Return the bytes of the cache and its sidecar data; None if there is no cache."""

        def read() -> bytes:
            data = self.read_calibration_cache()
            if data is None:
                raise FileNotFoundError(self.cache)
            return bytes(data)

        try:
            return (read(), None) if self.cache is None else Sidecar.read(self.cache, read)
        except FileNotFoundError:
            return None

    def _stale_reason(self, table: CalibrationTable, sidecar: Sidecar | None) -> str:
        """Return why the table is out of date for this calibrator; "" if it is not."""
        if sidecar is None:
            differs = table.algorithm != self.get_algorithm()
            return f"made by {table.algorithm}, not {self.get_algorithm()}" if differs else ""
        if sidecar.algorithm != self.signature:
            return f"made by {sidecar.algorithm}, not {self.signature}"
        if sidecar.data and self._data_digest() not in ("", sidecar.data):
            return "made from other data"
        return ""

    def _as_mapping(self, batch: Any) -> Mapping[str, npt.NDArray[Any]]:
        if not isinstance(batch, Mapping):
            arrays = list(batch) if isinstance(batch, (list, tuple)) else [batch]
            if len(arrays) != len(self._inputs):
                raise UsageError(
                    f"{type(self).__name__}: a batch must be a mapping of input name to array, or a list with one array "
                    f"for each of the inputs {list(self._inputs)}; found {len(arrays)} values."
                )
            batch = dict(zip(self._inputs, arrays, strict=True))
        for name, array in batch.items():
            self._inputs.setdefault(name, getattr(array, "shape", ()))
        for name, array in batch.items():
            if isinstance(array, int) or not hasattr(array, "shape"):
                raise UsageError(
                    f"{type(self).__name__}: input {name!r}: expected an array, found {type(array).__name__}.\n"
                    "Causes: (1) get_batch gives device addresses, as TensorRT wants them: give the host arrays here."
                )
        return dict(batch)


class HistogramCalibrator(Calibrator):
    """Base class of calibrators that compute thresholds from a histogram of |x|: 16 KiB per tensor for any amount of data.

    The network's inputs are never clipped. They are bounded already, and have no long tail to gain from: pixels are
    k/255, and the grey around letterboxed images is a spike at 0.5, behind which KL divergence would cut.

    A threshold is meant to gain more by finer steps than it costs by clipping. `compute_table` warns of the tensors where
    it does not: those whose expected signal to noise (`pytrtplugins.calibration.clipping.expected_sqnr`) is more than
    1 dB below what the largest |x| as threshold would give.
    """

    @override
    def reset(self) -> None:
        self.histograms: dict[str, Histogram] = {}

    @override
    def observed(self) -> tuple[str, ...]:
        return tuple(self.histograms)

    @override
    def amax_of(self, name: str) -> float:
        histogram = self.histograms[name]
        return histogram.maximum if name in self._inputs else self._histogram_amax(histogram)

    def compute_table(self) -> CalibrationTable:
        """Compute the scales of all observed tensors; warn about thresholds that clip too much."""
        table = super().compute_table()
        clippings = self.clippings()
        if clippings:
            lines = first_texts([f"\n  {clipping}" for clipping in clippings], _SHOWN, "", "\n  and ")
            _log.warning(
                "%s: the thresholds of %d of %d tensors clip more than they should: they cost more than %g dB of signal to "
                "noise. Worst first:%s\nDo: MinMaxCalibrator(...), or pytrt calibrate MODEL --calibration IMAGES "
                "--algorithm minmax; then compare both on data with known results",
                *(type(self).__name__, len(clippings), len(table), MAX_LOST_DB, lines),
            )
        return table

    def clippings(self) -> tuple[Clipping, ...]:
        """Return the tensors whose thresholds clip too much, worst first."""
        clippings = [clipping_of(name, histogram, self.amax_of(name)) for name, histogram in self.histograms.items()]
        return tuple(
            sorted((clipping for clipping in clippings if clipping is not None), key=lambda clipping: -clipping.lost)
        )

    @abstractmethod
    def _histogram_amax(self, histogram: Histogram) -> float: ...

    def _observe(self, name: str, array: npt.NDArray[Any]) -> None:
        self.histograms.setdefault(name, Histogram()).add(array)
