"""What a process of pytest-xdist tells the one that started it."""

from __future__ import annotations

from typing import Any

import pytest


def send_what_is_shown(config: pytest.Config) -> None:
    """Leave out the messages that change nothing in a short report: they take more time than most tests.

    Of each test these are its start, its end, and that what is done before and behind it passed. A test that ends its process
    is found without them. They stay where tests are listed or timed one by one, or a file of results is asked for.
    """
    option = config.option
    if config.get_verbosity() > 0 or option.durations or option.xmlpath:
        return
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):  # xdist's, whose class has no module
            plugin.sendevent = _filtered(plugin.sendevent)


def _filtered(send: Any) -> Any:
    def send_some(name: str, **facts: Any) -> None:
        report = facts.get("data", {})
        passed_around = name == "testreport" and report["when"] != "call" and report["outcome"] == "passed"
        if name not in ("logstart", "logfinish") and not passed_around:
            send(name, **facts)

    return send_some
