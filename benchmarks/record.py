"""The record of a run of pytest-benchmark's rows, on the disk after each row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from .gpu.rows import row_of
from .pages.results import write_json


class Record:
    """A plugin of pytest; rows that failed, or were cut off, are not in the record."""

    def __init__(self, path: Path, facts: Mapping[str, Any] | None = None) -> None:
        self._path, self._facts = path, facts or {}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        rows = item.config._benchmarksession.benchmarks  # type: ignore[attr-defined]
        rows[:] = [row for row in rows if row.extra_info]  # what a row writes last
        if not rows:
            return
        record = {**self._facts, "rows": [_plain(row) for row in rows]}
        item.config.hook.pytest_benchmark_update_json(config=item.config, benchmarks=rows, output_json=record)
        write_json(self._path, record)


def _plain(row: Any) -> dict[str, Any]:
    times = {"host_us": 1e6 * row.stats.median, "host_least_us": 1e6 * row.stats.min}
    return {"row": row_of(row.fullname), **row.extra_info, **times}
