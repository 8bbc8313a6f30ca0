"""schemathesis over the published description of the Open Inference Protocol, and over the server's own.

It lives in an environment of its own: ``SCHEMATHESIS=/path/to/bin/schemathesis``. The published description is
specification/protocol/open_inference_rest.yaml of github.com/kserve/open-inference-protocol: ``OPEN_INFERENCE_REST=/path/to/it``.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from pytrtplugins.serving import Limits
from tests.serving.conftest import spec
from tests.serving.running import running

PROGRAM, PUBLISHED = os.environ.get("SCHEMATHESIS"), os.environ.get("OPEN_INFERENCE_REST")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PROGRAM,
        reason="SCHEMATHESIS names no program. Do: python -m venv st && st/bin/pip install schemathesis && "
        "export SCHEMATHESIS=st/bin/schemathesis",
    ),
]
FITTING = "positive_data_acceptance"  # a schema cannot say that a tensor has as many elements as its dims need


@pytest.fixture(scope="module")
def url():
    with running([spec("double", "Double"), spec("lists", "Lists"), spec("shout", "Shout")], Limits()) as server:
        yield f"http://127.0.0.1:{server.port}"


def check(folder, url, schema, *options):
    """Run the program; fails with what it found."""
    words = [PROGRAM, "run", str(schema), "--url", url, "--seed", "1", "--max-examples", "60", "--no-color", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"Tested: +[1-9]", done.stdout)


def test_the_server_answers_as_its_own_description_says(tmp_path, url):
    mine = ":predict$"  # whose bodies are the model's own
    check(
        tmp_path,
        url,
        f"{url}/openapi.json",
        "--exclude-path-regex",
        f"{mine}|/load$|/unload$",
        "--exclude-checks",
        FITTING,
    )


@pytest.mark.skipif(not PUBLISHED, reason="OPEN_INFERENCE_REST names no open_inference_rest.yaml")
def test_the_server_answers_as_the_published_description_says(tmp_path, url):
    text = Path(PUBLISHED).read_text("utf-8").replace("${", "{")  # as OpenAPI writes what varies
    for name, known in (("MODEL_NAME", "double, lists, shout, nothing"), ("MODEL_VERSION", "'1', '9'")):
        text = re.sub(rf"(type: string)(\n\s+)(name: {name})", rf"\1\2  enum: [{known}]\2\3", text)
    (tmp_path / "rest.yaml").write_text(text, "utf-8")
    undocumented = "status_code_conformance"  # it has no 404, and no error for health
    check(tmp_path, url, "rest.yaml", "--exclude-checks", f"{FITTING},{undocumented}")
