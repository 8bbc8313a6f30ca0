"""The page's files, without a browser."""

import re
import tomllib
from pathlib import Path

import pytest

from pytrtplugins.serving import page

ROOT = Path(__file__).parents[3]
FOLDER = Path(page.__file__).parent
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js", ".svg"))


def test_the_page_is_at_the_root_and_its_files_beside_it(client):
    answer = client.get("/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body == (FOLDER / "index.html").read_bytes()
    assert len(FILES) >= 7
    for name in FILES:
        assert client.get(f"/page/{name}").body == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_a_browser_may_load_from_this_server_alone_and_runs_nothing_written_into_the_page(client, path):
    headers = client.get(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {
        name for name, sources in policy.items() if sources not in ("'none'", "'self'", "blob:", "'self' blob:")
    } == set()
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_a_browser_that_has_a_file_is_told_so_without_sending_it_again(client):
    first = client.get("/page/page.css")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/page.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert client.get("/", headers={"If-None-Match": first.headers["etag"]}).status == 200


def test_the_head_of_a_file_is_there(client):
    head, whole = client.ask("HEAD", "/"), client.get("/")
    assert head.status == 200
    assert head.headers == whole.headers


@pytest.mark.parametrize("name", ["routes.py", "nothing.js", "..%2Froutes.py", "../app.py"])
def test_other_names_lead_nowhere(client, name):
    answer = client.get(f"/page/{name}")
    assert answer.status == 404
    assert answer.json["error"]


def test_the_package_contains_every_file_of_the_page():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "pytrtplugins"
    ]
    packaged = {
        path.name for pattern in patterns for path in (ROOT / "pytrtplugins").glob(pattern) if path.parent == FOLDER
    }
    assert packaged == set(FILES)


def test_the_files_refer_to_each_other_alone():
    for name in FILES:
        text = (FOLDER / name).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"(^|\s)//\s.*", "", text, flags=re.MULTILINE), name
        assert not re.search(r"<script>|<style|\sstyle=|\son\w+=|innerHTML|eval\(", text), name
        named = re.findall(r'(?:src|href)="/page/([^"]+)"|from "\./([^"]+)"', text)
        assert {one or other for one, other in named} <= set(FILES)
