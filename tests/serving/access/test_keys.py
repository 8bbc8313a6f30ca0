"""Files of keys: what is written, what is read, and what is refused."""

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytrtplugins.errors import FormatError, RequestError, UsageError
from pytrtplugins.serving.access.keys import Key, Keyring, add_key, read_keys
from pytrtplugins.serving.shared.rate_limiter import MOST_KEYS

DIGEST = hashlib.sha256(b"secret").hexdigest()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "keys.toml")


def written(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def test_a_key_is_printed_once_and_its_digest_alone_is_kept(path):
    old = os.umask(0)
    try:
        text = add_key(path, "camera-1", rate=50.0, models=("animals",))
        other = add_key(path, "operator", roles=("admin",))
    finally:
        os.umask(old)
    with open(path, encoding="utf-8") as file:
        found = file.read()
    assert text not in found
    assert len(text) > 40
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert read_keys(path) == [
        Key("camera-1", hashlib.sha256(text.encode()).hexdigest(), rate=50.0, models=("animals",)),
        Key("operator", hashlib.sha256(other.encode()).hexdigest(), roles=("admin",)),
    ]


def test_what_people_wrote_into_the_file_stays(path):
    written(path, f'# of the gate\n[keys.a]\nsha256 = "{DIGEST}" # ours')
    add_key(path, "b")
    with open(path, encoding="utf-8") as file:
        assert file.read().startswith(f'# of the gate\n[keys.a]\nsha256 = "{DIGEST}" # ours\n[keys.b]\n')


def test_keys_that_are_added_at_once_are_all_kept(path):
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda number: add_key(path, f"key{number}"), range(16)))
    assert sorted(key.name for key in read_keys(path)) == sorted(f"key{number}" for number in range(16))
    assert len(set(keys)) == 16


def test_a_name_that_is_taken_and_a_wrong_field_leave_the_file_as_it_was(path):
    add_key(path, "a")
    with open(path, "rb") as file:
        before = file.read()
    with pytest.raises(UsageError, match="has a key 'a' already"):
        add_key(path, "a")
    with pytest.raises(UsageError, match=r"Key.rate: expected a number from 0.001"):
        add_key(path, "b", rate=0.0)
    with pytest.raises(UsageError, match="a key's name has letters"):
        add_key(path, "b]\nroles")
    with open(path, "rb") as file:
        assert file.read() == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[keys.a", "keys.toml: "),
        ("[key.a]", "unknown table 'key'"),
        ("keys = 1", "expected tables"),
        ("[keys]\na = 1", "expected tables"),
        ("[keys.a]\n", "line 1: keys.a: sha256 is missing"),
        ("[keys.a]\nsha256 = 'abc'", "line 1: keys.a: sha256 has 64 digits"),
        (f"[keys.a]\nsha256 = '{DIGEST}'\nrole = 'admin'", r"line 3: keys.a has no field 'role'.\nDo: write roles"),
        (f"[keys.a]\nsha256 = '{DIGEST}'\nroles = ['root']", "line 3: keys.a, roles: expected a list of 'infer' or"),
        (f"[keys.a]\nsha256 = '{DIGEST}'\nrate = -1", "line 3: keys.a, rate: expected a number from 0.001"),
        (f"[keys.a]\nsha256 = '{DIGEST}'\nconcurrent = 1.5", "line 3: keys.a, concurrent: expected a whole number"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_line(path, text, problem):
    with pytest.raises(FormatError, match=problem):
        read_keys(written(path, text))


def test_a_missing_file_names_the_command_that_makes_it(path):
    with pytest.raises(UsageError, match="no such file") as caught:
        Keyring(path)
    assert f"Do: pytrt serve-key NAME --keys {path}" in str(caught.value)


def test_a_request_is_known_by_either_header(path):
    text = add_key(path, "a")
    keys = Keyring(path)
    for headers in ({"authorization": f"Bearer {text}"}, {"authorization": f"bearer  {text}"}, {"x-api-key": text}):
        assert keys.find(headers).name == "a"


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Basic YTpi"}, {"x-api-key": "no"}, {"authorization": "Bearer "}, {"x-api-key": "\xff"}],
)
def test_a_request_without_a_known_key_is_refused(path, headers):
    add_key(path, "a")
    with pytest.raises(RequestError, match="key") as caught:
        Keyring(path).find(headers)
    assert caught.value.status == 401


def test_a_digest_that_begins_as_another_is_not_that_key(path):
    written(path, f'[keys.a]\nsha256 = "{DIGEST[:32] + 32 * "0"}"')
    with pytest.raises(RequestError, match="not known"):
        Keyring(path).find({"x-api-key": "secret"})


def test_keys_are_read_anew_and_a_wrong_file_leaves_those_that_were_read(path):
    first = add_key(path, "a")
    keys = Keyring(path)
    written(path, "[keys.a")
    with pytest.raises(FormatError):
        keys.reload()
    assert keys.find({"x-api-key": first}).name == "a"
    written(path, "")
    second = add_key(path, "b")
    keys.reload()
    assert keys.find({"x-api-key": second}).name == "b"
    with pytest.raises(RequestError):
        keys.find({"x-api-key": first})


def test_a_file_has_as_many_keys_as_the_memory_of_all_processes_and_no_more(path):
    tables = [f'[keys.k{number}]\nsha256 = "{number:064x}"\n' for number in range(MOST_KEYS + 1)]
    assert len(read_keys(written(path, "".join(tables[:-1])))) == MOST_KEYS == 1024
    with pytest.raises(FormatError, match="expected at most 1,024 keys, found 1,025"):
        read_keys(written(path, "".join(tables)))


BURSTS = {(None, None): 1, (0.5, None): 1, (1.0, None): 1, (2.5, None): 3, (50.0, None): 50, (50.0, 2): 2, (1.0, 9): 9}


def test_what_a_key_allows_at_once_is_a_burst_of_its_own_or_a_second_of_its_rate():
    found = {given: Key("a", 64 * "0", rate=given[0], burst=given[1]).most_at_once for given in BURSTS}
    assert found == BURSTS
