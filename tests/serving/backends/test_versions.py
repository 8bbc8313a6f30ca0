"""Several versions of a model: which one answers, and what clients are told of them."""

import numpy as np
import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.backends.versions import check_versions
from tests.serving.conftest import Client, spec
from tests.serving.running import running, triton_row

ROW = np.array([[1, 2]], np.float32)
SPECS = [spec("many", "Triple", version="10"), spec("many", "Double", version="9"), spec("one", "Lists")]
FACTORS = {"": 3, "10": 3, "9": 2}


@pytest.fixture(scope="module")
def server():
    with running(SPECS, Limits(), grpc=True) as made:
        yield made


@pytest.fixture(scope="module", params=["http", "grpc"])
def triton(request, server):
    library = pytest.importorskip(f"tritonclient.{request.param}")
    port = server.port if request.param == "http" else server.grpc_port
    options = {"as_json": True} if request.param == "grpc" else {}
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield library, client, options


@pytest.mark.parametrize("version", FACTORS)
def test_tritonclient_reaches_each_version_and_the_newest_where_it_names_none(triton, version):
    library, client, options = triton
    row = triton_row(library)
    answer = client.infer("many", [row], model_version=version)
    np.testing.assert_array_equal(answer.as_numpy("y"), FACTORS[version] * ROW)
    said = answer.get_response()
    assert (said["model_version"] if isinstance(said, dict) else said.model_version) == (version or "10")
    assert client.is_model_ready("many", version)
    assert client.get_model_metadata("many", version, **options)["versions"] == ["9", "10"]
    stats = client.get_inference_statistics("many", version, **options)["model_stats"]
    assert [each["version"] for each in stats] == ([version] if version else ["10", "9"])


def test_tritonclient_is_told_of_all_versions_and_of_one_that_is_not_there(triton):
    library, client, options = triton
    index = client.get_model_repository_index(**options)
    found = index["models"] if options else index
    assert [(each["name"], each["version"]) for each in found] == [("many", "10"), ("many", "9"), ("one", "1")]
    with pytest.raises(
        library.InferenceServerException, match="Request for unknown model: 'many' version 3 is not found"
    ):
        client.get_model_metadata("many", "3")


@pytest.fixture(scope="module")
def client():
    with Client(SPECS) as made:
        yield made


def test_plain_http_and_metrics_know_versions(client):
    assert client.post("/v1/models/many:predict", b"1 2").json["rows"] == [[3, 6]]
    assert client.post("/v1/models/many/versions/9:predict", b"1 2").json["rows"] == [[2, 4]]
    assert client.post("/v1/models/many/versions/2:predict", b"1 2").status == 404
    text = client.get("/metrics").body.decode()
    for version in ("9", "10"):
        assert f'pytrt_requests_total{{model="many",outcome="succeeded",version="{version}"}} 1.0' in text


def test_all_versions_are_unloaded_and_loaded_together(client):
    index = {"ready": True}
    assert client.post("/v2/repository/models/many/unload").status == 200
    assert [each["name"] for each in client.post("/v2/repository/index", index).json] == ["one"]
    assert client.post("/v2/repository/models/many/load").status == 200
    assert len(client.post("/v2/repository/index", index).json) == 3
    assert client.post("/v2/repository/models/nothing/load").status == 404


@pytest.mark.parametrize("version", ["0", "01", "1.0", "", "v2", "9" * 19])
def test_a_version_that_is_no_whole_number_is_refused(version):
    with pytest.raises(UsageError, match="version: expected a whole number"):
        ModelSpec("a", "x.engine", version=version)


@pytest.mark.parametrize("shares", [(1.0,), (0.25, 0.75), (0.1, 0.2, 0.3, 0.4)])
def test_shares_may_be_all_requests_and_no_more(shares):
    def versions(*shares):
        return [spec("m", "Double", version=str(number), share=share) for number, share in enumerate((0.0, *shares), 1)]

    check_versions(versions(*shares))
    with pytest.raises(UsageError, match="more than 1"):
        check_versions(versions(*shares, 0.01))
