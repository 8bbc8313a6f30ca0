"""Entry point of a step that is a function: ``python -m pytrtplugins.mlops.pipeline.run_function MODULE:NAME JSON``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...errors import UsageError
from ...utils.text_formats import parse_json
from ...utils.user_module import import_user_module

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Call a function with the tuples ``inputs`` and ``outputs``, and with the parameters."""
    name, text = sys.argv[1:] if arguments is None else arguments
    call = parse_json(text, "the step")
    module, _, attribute = name.rpartition(":")
    function = getattr(import_user_module(module), attribute, None)
    if not callable(function):
        raise UsageError(f"{name}: {module} has no function {attribute}")
    function(inputs=tuple(call["inputs"]), outputs=tuple(call["outputs"]), **call["parameters"])


if __name__ == "__main__":
    main()
