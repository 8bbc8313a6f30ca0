"""The record of a run: a JSON file as pytest-benchmark writes it, on the disk after each row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytrtplugins.utils.atomic import write_atomic


class Record:
    """A plugin of pytest; rows that failed, or were cut off, are not in the record.

    Args:
        path: Where it is written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._machine: dict[str, Any] | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        hook, config = item.config.hook, item.config
        rows = config._benchmarksession.benchmarks  # type: ignore[attr-defined]
        rows[:] = [row for row in rows if row.extra_info]  # what a row writes last
        if not rows:
            return
        if self._machine is None:
            self._machine = hook.pytest_benchmark_generate_machine_info(config=config)
        record = hook.pytest_benchmark_generate_json(
            config=config, benchmarks=rows, include_data=False, machine_info=self._machine, commit_info={}
        )
        hook.pytest_benchmark_update_json(config=config, benchmarks=rows, output_json=record)
        write_atomic(self._path, json.dumps(record, indent=1, default=_plain).encode())


def _plain(value: object) -> object:
    """A number of NumPy's, or the name of a parameter."""
    return value.item() if isinstance(value, np.generic) else str(value)
