"""The environment of a pytest that a test starts."""

from __future__ import annotations

import os

__all__ = ["nested_environment"]


def nested_environment(*plugins: str, **variables: str) -> dict[str, str]:
    """This process's variables without what it tells its own pytest, and with these plugins alone: all take a second to import.

    Args:
        *plugins: Modules, such as ``"pytest_timeout"``.
        **variables: Other variables.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HYPOTHESIS_"))}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": ",".join(plugins), **variables}
