"""The JSON file beside a calibration cache that says which network and data the scales came from."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from .._files import write_atomic
from ..errors import CalibrationTableError

__all__ = ["Sidecar"]

_FORMAT = "pytrtplugins calibration 1"


@dataclass(frozen=True)
class Sidecar:
    """What a calibration cache itself cannot say.

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
        """Path of the file that belongs to a cache: ``<cache>.json``."""
        return Path(f"{cache}.json")

    def write(self, cache: str | Path) -> None:
        """Write the file beside its cache, whole or not at all."""
        text = json.dumps({"format": _FORMAT, **dataclasses.asdict(self)}, indent=2)
        write_atomic(self.path_of(cache), f"{text}\n".encode())

    @classmethod
    def read(cls, cache: str | Path) -> Sidecar | None:
        """Read the file beside a cache; None if there is none.

        Raises:
            CalibrationTableError: the file is damaged or of another format; ``.path`` says which.
        """
        path = cls.path_of(cache)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            facts = json.loads(data)
        except ValueError as error:
            raise _bad(path, "JSON", str(error)) from error
        if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
            found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
            raise _bad(path, f"the format {_FORMAT!r}", repr(found))
        kinds = {field.name: int if field.name == "tensors" else str for field in dataclasses.fields(cls)}
        for name, kind in kinds.items():
            if type(facts.get(name)) is not kind:
                raise _bad(path, f"{name!r}: {kind.__name__}", repr(facts.get(name)))
        return cls(**{name: facts[name] for name in kinds})


def _bad(path: Path, expected: str, found: str) -> CalibrationTableError:
    return CalibrationTableError(
        f"{path}: expected {expected}, found {found}.\n"
        f"Do: rm {path}    (the cache is then accepted for any network whose tensor names it has)",
        path=path,
    )
