"""Print what each extra of the package takes on disk, with all that it needs, as a table of Markdown.

The sizes are those of the packages that are installed beside the Python that runs this; extras that are not installed are left out.
Every row has NumPy and the package itself in it; of a checkout that is installed in place nothing is counted. Compiled Python
files are not counted.
"""

from __future__ import annotations

import platform
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

NAME = "pytrtplugins"


def needed(text: str, found: set[str]) -> set[str]:
    """Add the names of a requirement and of all that it needs to ``found``.

    Raises:
        PackageNotFoundError: one of them is not installed.
    """
    requirement = Requirement(text)
    for extra in ("", *requirement.extras):
        key = f"{requirement.name}[{extra}]".lower()
        if key in found:
            continue
        found.add(key)
        for line in distribution(requirement.name).requires or ():
            other = Requirement(line)
            if other.marker is None or other.marker.evaluate({"extra": extra}):
                needed(line.partition(";")[0], found)
    return {key.partition("[")[0].replace("_", "-") for key in found}


def size(package: Distribution) -> int:
    """The bytes of a package's files."""
    paths = [package.locate_file(file) for file in package.files or () if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())  # type: ignore[attr-defined]


def main() -> None:
    """Print the table."""
    extras = ["", *(distribution(NAME).metadata.get_all("Provides-Extra") or ())]
    rows, absent = [], []
    for extra in extras:
        try:
            names = needed(f"{NAME}[{extra}]" if extra else NAME, set())
        except PackageNotFoundError as error:
            absent.append(f"{extra} ({error.name})")
            continue
        sizes = {name: size(distribution(name)) for name in names}
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        shown = ", ".join(f"{name} {sizes[name] / 1e6:.0f}" for name in largest)
        rows.append(
            f"| `{NAME}{f'[{extra}]' if extra else ''}` | {sum(sizes.values()) / 1e6:.0f} | {len(names)} | {shown} |"
        )
    print(f"Python {platform.python_version()}, {sys.platform} {platform.machine()}; MB are 10⁶ bytes.\n")
    print("| | MB | packages | the largest |\n|---|---|---|---|", *rows, sep="\n")
    if absent:
        print(f"\nNot installed here: {', '.join(absent)}.")


if __name__ == "__main__":
    main()
