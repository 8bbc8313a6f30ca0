"""Helpers for the tests of plugins and engines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from .check import Report, check_names, check_plugin
from .check.cases import random_array
from .check.compare import difference
from .plugin.base import Plugin
from .tensor import Array, DType

if TYPE_CHECKING:
    from .engines import Engine

__all__ = ["assert_same", "engine_contract", "plugin_test", "random_tensor"]


def plugin_test(plugin: type[Plugin] | Plugin, **options: Any) -> Callable[..., None]:
    """Return a pytest test of a plugin, with an item for each check.

    In a test file, ``test_shuffle = plugin_test(ChannelShuffle)`` is all that is needed; ``pytest -k "shuffle and memory"`` shows
    one check. The options are those of `pytrtplugins.check_plugin`, which runs once, for the first item. An item is skipped where
    its check is, and raises `ConformanceError` where it fails. Where pytest does not run, the test is one function of all checks.
    """
    cls = plugin if isinstance(plugin, type) else type(plugin)
    reports: list[Report] = []

    def report() -> Report:
        reports[:] = reports or [check_plugin(plugin, **options)]
        return reports[0]

    def test_all() -> None:
        __tracebackhide__ = True
        report().raise_if_failed()

    def test_one(check: str) -> None:
        __tracebackhide__ = True
        entries = tuple(entry for entry in report().entries if entry.name == check)
        if not entries or entries[0].skipped:
            sys.modules["pytest"].skip(entries[0].detail if entries else "not reached")
        Report(report().plugin, entries).raise_if_failed()

    test: Callable[..., None] = test_all
    if "pytest" in sys.modules:
        names = check_names(
            options.get("engines", "available"), bool(options.get("sanitize")), options.get("reference")
        )
        test = sys.modules["pytest"].mark.parametrize("check", names)(test_one)
    test.__name__ = test.__qualname__ = f"test_{cls.__name__}"
    test.__doc__ = f"{cls.__name__} keeps the contract of plugins."
    return test


def engine_contract(engine: str | type[Engine]) -> Callable[..., None]:
    """Return a pytest test of another package's engine, with an item for each check of the contract of engines.

    In a test file, ``test_contract = engine_contract("onnx_reference")`` is all that is needed: numbers, memory of inputs and outputs,
    what is refused, threads, engine files, unknown operators. Where pytest does not run, the test is one function of all checks.

    Args:
        engine: Its name, which an entry point makes known, or its class; without an entry point ``files`` fails.
    """
    from .engines.contract import CHECKS

    def test_all() -> None:
        for check in CHECKS.values():
            check(engine)

    def test_one(check: str) -> None:
        CHECKS[check](engine)

    test: Callable[..., None] = test_all
    if "pytest" in sys.modules:
        test = sys.modules["pytest"].mark.parametrize("check", list(CHECKS))(test_one)
    return test


def assert_same(actual: Array, expected: Array, rtol: float | None = None, atol: float | None = None) -> None:
    """Require two arrays to have the same shape, element type and values.

    Tolerances are by default those that fit the expected element type, 0 for integers.

    Raises:
        AssertionError: they differ; the message names the worst elements with their indices.
    """
    __tracebackhide__ = True
    difference_text = difference(actual, expected, rtol, atol)
    if difference_text:
        raise AssertionError(difference_text)


def random_tensor(dims: Sequence[int], dtype: DType | str = DType.FLOAT32, seed: int = 0) -> npt.NDArray[Any]:
    """Return random data for a seed: normally distributed numbers, or integers from -100 to 100 (0 to 100 for uint8)."""
    return random_array(tuple(dims), DType.of(dtype), seed)  # type: ignore[no-any-return]
