"""Make every table and chart of the benchmarks' pages from benchmarks/results/; it measures nothing and needs no GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .results import DOCS, differences, render_all


def main() -> int:
    """Write the pages, or compare them with the results; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the pages (default: %(default)s)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 if a page or a chart differs from the results"
    )
    arguments = parser.parse_args()
    if arguments.check:
        found = list(differences(arguments.docs))
        print("\n".join(found or ["pages and results agree"]))
        return int(bool(found))
    for page in render_all(arguments.docs):
        print(f"written: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
