"""Save results to a file as they come, so that an interrupted measurement continues where it stopped."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .atomic import write_atomic
from .text_formats import read_json

__all__ = ["Journal"]

_log = logging.getLogger(__name__)
_MAX_BYTES = 256 << 20


class Journal:
    """A file of results by key, so that an interrupted command continues where it stopped.

    Without a path nothing is kept. Results depend on the identity, such as network, data and options: a file with another identity
    is begun anew.

    Args:
        path: The file; None: nothing is kept.
        identity: What results depend on, as values for JSON.
    """

    def __init__(self, path: Path | None, identity: Mapping[str, Any]) -> None:
        self.path, self._identity = path, json.loads(json.dumps(dict(identity)))
        self._results: dict[str, Any] = {}
        if path is None:
            return
        try:
            record = read_json(path, max_bytes=_MAX_BYTES, allow_nan=True, within=path.parent)
            if record["identity"] == self._identity:
                self._results = dict(record["results"])
                _log.info("%s: %d results of an interrupted run are used", path, len(self._results))
            else:
                _log.warning("%s belongs to another run; it is begun anew", path)
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError):
            _log.warning("%s is damaged; it is begun anew", path)

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, key: object) -> bool:
        return key in self._results

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        """The result of a key; it is measured, and kept, where it is new. Results are values of JSON."""
        if key not in self._results:
            self._results[key] = json.loads(json.dumps(measure()))
            if self.path is not None:
                text = json.dumps({"identity": self._identity, "results": self._results})
                write_atomic(self.path, text.encode(), within=self.path.parent)
        return self._results[key]

    def forget(self, key: str) -> None:
        """Take out a result that does not hold any more."""
        self._results.pop(key, None)

    def close(self) -> None:
        """Delete the journal when the run has ended."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
