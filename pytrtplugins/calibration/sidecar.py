"""The sidecar file of a calibration cache: JSON that names the network and the data of its scales."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import CalibrationTableError, FormatError
from ..utils.atomic import write_atomic
from ..utils.files import read_regular, sha256_hex
from ..utils.text_formats import read_json, shorten
from .table import MAX_CACHE_BYTES

__all__ = ["Sidecar"]

_FORMAT = "pytrtplugins calibration 1"
_EARLIER = "earlier"  # what belongs to the cache that is being replaced
_MAX_BYTES = 1 << 20
_ATTEMPTS = 3


@dataclass(frozen=True)
class Sidecar:
    """Origin of a calibration cache: network, data and algorithm.

    Attributes:
        network: Digest of the model that was calibrated; "" if unknown.
        data: Digest of the data; "" if unknown.
        algorithm: The algorithm with its parameters, such as ``LegacyCalibration percentile=99.99``.
        tensors: Number of tensors in the table.
        table: SHA-256 of the cache file that this file belongs to, 64 hex digits.
        created_by: Package and version that calibrated.
    """

    network: str
    data: str
    algorithm: str
    tensors: int
    table: str
    created_by: str

    @staticmethod
    def path_of(cache: str | Path) -> Path:
        """Return the path of a cache's sidecar file: ``<cache>.json``."""
        return Path(f"{cache}.json")

    @classmethod
    def read(cls, cache: str | Path, read_cache: Callable[[], bytes]) -> tuple[bytes, Sidecar | None]:
        """Read a cache and its sidecar file; None in place of the sidecar if there is none.

        Raises:
            FileNotFoundError: ``read_cache`` raises it.
            CalibrationTableError: the file beside the cache is damaged, of another format, or belongs to another cache;
                ``.path`` says which.
        """
        path = cls.path_of(cache)
        for _ in range(_ATTEMPTS):  # another process may be writing the two
            data = read_cache()
            try:
                facts = read_json(path, max_bytes=_MAX_BYTES, error=_damaged_error)
            except FileNotFoundError:
                return data, None
            sidecar_of = _parse_sidecars(path, facts)
            digest = sha256_hex(data)
            if digest in sidecar_of:
                return data, sidecar_of[digest]
        raise CalibrationTableError(
            f"{path} belongs to another cache than {cache}, so the network and the data of that cache are unknown.\n"
            f"Causes: (1) {cache} was copied here or changed, without the file beside it; (2) two processes wrote it at a time.\n"
            f"Do: rm {path}    (the cache is then accepted for any network whose tensor names it has), or "
            f"rm {cache} {path} to calibrate again",
            path=path,
        )

    def write(self, cache: str | Path, write_cache: Callable[[], None]) -> None:
        """Write a cache and its sidecar file, so that readers always see a matching pair.

        The file says what belongs to the old cache and to the new one until the new one is there. So whoever reads the
        two in between, or after the writer was killed, has the old ones or the new ones.
        """
        path, new = self.path_of(cache), {"format": _FORMAT, **dataclasses.asdict(self)}
        old = self._present_fields(cache)
        _write(path, {**new, _EARLIER: old} if old else new)
        write_cache()
        if old:
            _write(path, new)

    @classmethod
    def _present_fields(cls, cache: str | Path) -> dict[str, object]:
        """Return the fields of the present cache's sidecar, or its digest alone; empty if there is no cache."""
        try:
            digest = sha256_hex(Path(cache))
        except (OSError, FormatError):
            return {}
        try:
            _, sidecar = cls.read(cache, lambda: read_regular(cache, MAX_CACHE_BYTES))
        except (OSError, FormatError, CalibrationTableError):
            sidecar = None
        return {"table": digest} if sidecar is None else dataclasses.asdict(sidecar)


def _parse_sidecars(path: Path, facts: object) -> dict[str, Sidecar | None]:
    """Parse a sidecar file: digest of a cache → its `Sidecar`, of the current and of the earlier cache."""
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
        actual = shorten(facts.get("format")) if isinstance(facts, dict) else type(facts).__name__
        raise _unexpected_error(path, f"the format {_FORMAT!r}", actual)
    earlier = facts.get(_EARLIER, {})
    if not isinstance(earlier, dict):
        raise _unexpected_error(path, f"{_EARLIER!r}: an object", shorten(earlier))
    sidecar_of: dict[str, Sidecar | None] = {}
    if "table" in earlier:
        sidecar_of[str(earlier["table"])] = None if len(earlier) == 1 else _parse_sidecar(path, earlier)
    current = _parse_sidecar(path, facts)
    return {**sidecar_of, current.table: current}


def _parse_sidecar(path: Path, facts: Mapping[str, object]) -> Sidecar:
    kinds = {field.name: int if field.name == "tensors" else str for field in dataclasses.fields(Sidecar)}
    for name, kind in kinds.items():
        if type(facts.get(name)) is not kind:
            raise _unexpected_error(path, f"{name!r}: {kind.__name__}", shorten(facts.get(name)))
    return Sidecar(**{name: facts[name] for name in kinds})  # type: ignore[arg-type]


def _write(path: Path, facts: Mapping[str, object]) -> None:
    write_atomic(path, f"{json.dumps(facts, indent=2)}\n".encode())


def _unexpected_error(path: Path, expected: str, found: str) -> CalibrationTableError:
    return _damaged_error(f"{path}: expected {expected}, found {found}.", path=path)


def _damaged_error(problem: str, *, path: Path, line: int = 0) -> CalibrationTableError:
    return CalibrationTableError(
        f"{problem}\nDo: rm {path}    (the cache is then accepted for any network whose tensor names it has)",
        path=path,
        line=line,
    )
