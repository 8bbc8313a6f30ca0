"""Which models each row of OpenVINO's known errors is for: ``python -m tests.engines.openvino.known_rows`` lists them.

known_rows.txt has a line for each row: how many nodes it applies to in models of all versions, types and attributes of ONNX's
operators, a checksum of which these are, the operators, and where.
"""

from __future__ import annotations

import warnings
import zlib
from collections import defaultdict
from pathlib import Path

import onnx

from benchmarks.forms.form import draw_forms
from pytrtplugins.engines.openvino.fallback import facts_of
from pytrtplugins.engines.openvino.known_errors import KNOWN_ERRORS
from pytrtplugins.engines.openvino.usage import Usage
from pytrtplugins.errors import ModelError
from pytrtplugins.passes import prepare
from pytrtplugins.validation.dataflow import walk

LIST = Path(__file__).with_suffix(".txt")
LEAST, MOST = 2, 8
"""Models of each version of an operator."""


def lines() -> list[str]:
    """The version of ONNX, which has the operators, and the lines."""
    found = defaultdict[int, list[str]](list)
    warnings.simplefilter("ignore")
    for form in draw_forms(least=LEAST, most=MOST):
        try:
            model = prepare(form.model)
        except ModelError:
            continue
        facts = facts_of(model)
        for node in walk(model.graph.node):
            usage = Usage(node, facts)
            for number, row in enumerate(KNOWN_ERRORS):
                if not row.operators or node.op_type in row.operators:
                    try:
                        applies = str(row.applies(usage))
                    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # as the engine
                        applies = type(error).__name__
                    if applies != "False":
                        found[number].append(f"{form.name} {node.op_type} {applies}")
    return [onnx.__version__] + [
        f"{len(found[number])} {zlib.crc32(' '.join(found[number]).encode()):08x} {' '.join(row.operators)}: {row.where}"
        for number, row in enumerate(KNOWN_ERRORS)
    ]


if __name__ == "__main__":
    LIST.write_text("\n".join(lines()) + "\n")
