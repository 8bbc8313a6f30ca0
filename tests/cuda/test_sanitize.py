"""What compute-sanitizer is run on."""

import re
from pathlib import Path

import pytest

from .sanitize import SUBJECTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_subjects_are_tests_that_there_are(subject):
    file, option, words = SUBJECTS[subject]
    names = "\n".join(re.findall(r"^def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))
    assert option == "-k"
    wanted = [word for word in re.split(r"\bnot \w+|\band\b|\bor\b", words) if word.strip()]
    missing = {word.strip() for word in wanted if word.strip() not in names}
    assert missing <= {"simt", "float32", "tactics", "dilation"}  # parameters' names
