"""Write constraints.txt from the packages of the Python that runs this; with ``--here``, print its URL where it fits."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

FILE = Path(__file__).resolve().with_name("constraints.txt")
TESTED = ((3, 11), "linux-x86_64")
HEAD = f"""\
# The versions that .ci/run installs on CPython 3.11, {TESTED[1]}; elsewhere it takes the newest that pyproject.toml allows.
# Written by `make constraints`, from what .venv has.
"""


def main() -> None:
    """Write or print, as asked."""
    fits = (sys.version_info[:2], sysconfig.get_platform()) == TESTED
    if sys.argv[1:] == ["--here"]:
        print(FILE.as_uri() if fits else "")  # a path with a space would be two files to pip
        return
    if not fits:
        sys.exit(
            f"constraints.txt is for Python 3.11 on {TESTED[1]}: make PYTHON=python3.11 VENV=.venv-3.11 constraints"
        )
    # .ci/run names torch itself, whose version here may be that of a CPU alone
    left_out = [word for name in ("pytrtplugins", "torch") for word in ("--exclude", name)]
    command = [sys.executable, "-m", "pip", "freeze", "--exclude-editable", *left_out]
    FILE.write_text(HEAD + subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
