"""No combination of extras installs two packages that own one module: pip would write the files of one over those of the other."""

import re
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
CV2 = {"opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"}
ASKS_FOR_CV2 = {"trackers": "opencv-python"}
"""What packages that may not be installed here depend on, by their metadata of 2026-11."""


def name_of(requirement):
    return re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def is_optional(requirement):
    return "extra ==" in requirement.partition(";")[2]


def installed_with(names):
    """The names, and those of all packages that they depend on, as far as they are installed here."""
    found, left = set(), [name_of(name) for name in names]
    while left:
        name = left.pop()
        if name in found or name == PROJECT["name"]:
            continue
        found.add(name)
        if name in ASKS_FOR_CV2:
            left.append(ASKS_FOR_CV2[name])
        with suppress(PackageNotFoundError):
            left += [name_of(each) for each in requires(name) or () if not is_optional(each)]
    return found


def test_all_extras_together_install_one_owner_of_cv2():
    extras = PROJECT["optional-dependencies"]
    everything = [*PROJECT["dependencies"], *(line for lines in extras.values() for line in lines)]
    assert installed_with(everything) & CV2 == {"opencv-python-headless"}


@pytest.mark.parametrize("second", ["opencv-python", "trackers>=2.6"])
def test_a_second_owner_would_be_found(second):
    assert len(installed_with(["opencv-python-headless>=4", second]) & CV2) == 2


def test_the_extra_for_tracking_has_what_its_library_needs():
    """It is installed with --no-deps."""
    try:
        needed = {name_of(each) for each in requires("trackers") if not is_optional(each)}
    except PackageNotFoundError:
        pytest.skip("pip install --no-deps trackers")
    assert needed - installed_with(PROJECT["optional-dependencies"]["track"]) <= {"opencv-python"} | installed_with(
        PROJECT["dependencies"]
    )
