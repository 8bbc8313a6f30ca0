"""Exported files: what is in them, that schemas accept them, and that they are written whole or not at all."""

import importlib.resources
import json
import os
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import yaml

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.config import read_limits, read_models
from pytrtplugins.serving.export import KINDS, Deployment, export
from pytrtplugins.serving.export.content import image_files
from pytrtplugins.serving.scale import Scale
from pytrtplugins.utils.toml_file import TomlFile
from tests.serving.export.strict import unknown_keys

KUBERNETES = "1.30"
SCALE = Scale(min_replicas=2, max_replicas=8, cpus=4, gpus=1, memory_mib=6000, target_requests=12)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "double.py"
    path.write_text(Path(__file__).parents[1].joinpath("served.py").read_text("utf-8"), "utf-8")
    return f"{path}:Double"


def deployment(model, **options):
    spec = ModelSpec("double", model, max_batch=16, sizes=(1, 8), max_delay_ms=0.5, queue=99)
    return Deployment(**{"name": "double", "specs": [spec], "scale": SCALE, "secret": "double-keys", **options})


def documents(folder):
    return [
        each for path in sorted(folder.rglob("*.yaml")) for each in yaml.safe_load_all(path.read_text("utf-8")) if each
    ]


def of_kind(folder, kind):
    [found] = [each for each in documents(folder) if each["kind"] == kind]
    return found


def pod(folder):
    return of_kind(folder, "Deployment")["spec"]["template"]["spec"]


# -- schemas -------------------------------------------------------------------------------------------------------------


def problems(document):
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    try:
        validate.validate(document, KUBERNETES, strict=True)
    except validate.ValidationError as error:
        return error.message
    return ""


def test_kubernetes_accepts_each_object_and_no_key_is_unknown(model, tmp_path):
    export("k8s", deployment(model), tmp_path / "out")
    found = documents(tmp_path / "out")
    assert [each["kind"] for each in found] == [
        "HorizontalPodAutoscaler",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
    ]
    assert [problems(each) for each in found] == 4 * [""]
    found[1]["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    assert "redinessProbe" in problems(found[1])


def test_compose_accepts_the_project_and_no_key_is_unknown(model, tmp_path):
    package = pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    jsonschema = pytest.importorskip("jsonschema")
    place = importlib.resources.files(package) / "builtin_schemas" / "vendor" / "compose-spec.json"
    checker = jsonschema.Draft202012Validator(json.loads(place.read_text("utf-8")))
    export("compose", deployment(model), tmp_path / "out")
    [project] = documents(tmp_path / "out")
    assert [error.message for error in checker.iter_errors(project)] == []
    project["services"]["server"]["stop_grace_perod"] = "1s"
    assert any("stop_grace_perod" in error.message for error in checker.iter_errors(project))


@pytest.mark.skipif("KSERVE_CRDS" not in os.environ, reason="KSERVE_CRDS=FOLDER names KServe's config/crd/full")
def test_kserve_accepts_both_objects_and_no_key_is_unknown(model, tmp_path):
    export("kserve", deployment(model), tmp_path / "out")
    found = documents(tmp_path / "out")
    for each, kind in zip(found, ("servingruntimes", "inferenceservices"), strict=True):
        file = Path(os.environ["KSERVE_CRDS"], f"serving.kserve.io_{kind}.yaml")
        versions = yaml.safe_load(file.read_text("utf-8"))["spec"]["versions"]
        [schema] = [
            one["schema"]["openAPIV3Schema"] for one in versions if each["apiVersion"].endswith("/" + one["name"])
        ]
        assert list(unknown_keys(each, schema)) == []
        each["spec"]["predictr"] = {}
        assert list(unknown_keys(each, schema)) == [".spec.predictr: unknown"]


def test_ray_accepts_the_configuration(model, tmp_path):
    schema = pytest.importorskip("ray.serve.schema", reason='pip install "pytrtplugins[serve-ray]"')
    export("ray", deployment(model, secret=None), tmp_path / "out")
    found = schema.ServeDeploySchema.model_validate(documents(tmp_path / "out")[0])
    assert found.applications[0].import_path == "pytrtplugins.serving.ray:build"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": 1}, []),
        ({"a": "1"}, [".a: expected integer, found '1'"]),
        ({"a": 1, "b": [{"c": "x"}, {"d": "x"}]}, [".b[1].d: unknown", ".b[1].c: missing"]),
        ({"b": []}, [".a: missing"]),
    ],
)
def test_the_strict_comparison_finds_what_schemas_let_pass(value, said):
    inner = {"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]}
    properties = {"a": {"type": "integer"}, "b": {"type": "array", "items": inner}}
    assert list(unknown_keys(value, {"type": "object", "properties": properties, "required": ["a"]})) == said


# -- contents ------------------------------------------------------------------------------------------------------------


def test_a_pod_has_time_to_drain_and_no_rights_that_it_does_not_need(model, tmp_path):
    export("k8s", deployment(model), tmp_path / "out")
    found = pod(tmp_path / "out")
    [server] = found["containers"]
    delay = int(server["lifecycle"]["preStop"]["exec"]["command"][1])
    assert found["terminationGracePeriodSeconds"] > delay + SCALE.drain_seconds
    security = server["securityContext"]
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
    assert (security["capabilities"], security["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)
    assert server["resources"]["limits"] == {"memory": "6000Mi", "nvidia.com/gpu": 1}
    assert {name for name in server if name.endswith("Probe")} == {"startupProbe", "readinessProbe", "livenessProbe"}
    startup = server["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 10 * 60
    assert startup["periodSeconds"] <= 10


def test_keys_are_a_reference_to_a_secret_and_never_in_a_file(model, tmp_path):
    export("k8s", deployment(model), tmp_path / "out")
    volumes = pod(tmp_path / "out")["volumes"]
    assert {"name": "keys", "secret": {"secretName": "double-keys"}} in volumes
    export("k8s", deployment(model, secret=None), tmp_path / "open")
    assert [each["name"] for each in pod(tmp_path / "open")["volumes"]] == ["tmp"]
    assert "--keys" not in pod(tmp_path / "open")["containers"][0]["args"]


def test_the_autoscaler_follows_a_metric_that_the_server_has(model, tmp_path):
    from tests.serving.conftest import Client, spec

    export("k8s", deployment(model), tmp_path / "out")
    found = of_kind(tmp_path / "out", "HorizontalPodAutoscaler")["spec"]
    [metric] = found["metrics"]
    with Client([spec("double", "Double")]) as client:
        assert f"\n{metric['pods']['metric']['name']}{{" in client.get("/metrics").body.decode()
    assert metric["pods"]["target"]["averageValue"] == "12"
    assert "replicas" not in of_kind(tmp_path / "out", "Deployment")["spec"]


def test_a_fixed_number_of_replicas_has_no_autoscaler(model, tmp_path):
    export("k8s", deployment(model, scale=Scale(min_replicas=3)), tmp_path / "out")
    assert [each["kind"] for each in documents(tmp_path / "out")] == ["Deployment", "PodDisruptionBudget", "Service"]
    assert of_kind(tmp_path / "out", "Deployment")["spec"]["replicas"] == 3


def test_the_image_serves_the_same_models_within_the_same_limits(model, tmp_path):
    limits = Limits(image_bytes=1 << 20)
    options = Limits(body_bytes=1 << 20, shared_memory_regions=3, urls=("https://example.org",))  # of the command
    extra = tmp_path / "net.engine"
    extra.write_bytes(b"x")
    export(
        "compose",
        deployment(model, limits=replace(options, image_bytes=1 << 20), options={"gpu": 2}, files=[extra]),
        tmp_path / "out",
    )
    file = TomlFile.read(tmp_path / "out" / "serving.toml")
    [found] = read_models(file, {})
    assert Path(found.target.rpartition(":")[0]).read_text() == Path(model.rpartition(":")[0]).read_text()
    assert (found.name, found.max_batch, found.sizes, found.max_delay_ms, found.queue) == (
        "double",
        16,
        (1, 8),
        0.5,
        99,
    )
    assert read_limits(file, {}) == limits
    assert file.data["serve"] == {"host": "0.0.0.0", "port": 8000, "cpu": 2, "gpu": 2}
    docker = (tmp_path / "out" / "Dockerfile").read_text()
    assert "USER 10001:10001" in docker
    assert "HEALTHCHECK" in docker
    assert "COPY --chown=root:root files/ ./" in docker
    assert (tmp_path / "out" / "files" / "net.engine").read_bytes() == b"x"


def test_several_versions_of_a_model_stay_versions(model, tmp_path):
    specs = [ModelSpec("double", model, version=version) for version in ("1", "2")]
    export("compose", deployment(model, specs=specs), tmp_path / "out")
    file = TomlFile.read(tmp_path / "out" / "serving.toml")
    assert [(each.name, each.version) for each in read_models(file, {})] == [("double", "1"), ("double", "2")]


def test_a_wheel_is_copied_and_installed(model, tmp_path):
    wheel = tmp_path / "pytrtplugins-0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    export("compose", deployment(model, wheel=wheel, scale=Scale()), tmp_path / "out")
    assert f'pip install --no-cache-dir "/tmp/{wheel.name}[cpu,' in (tmp_path / "out" / "Dockerfile").read_text()
    assert (tmp_path / "out" / wheel.name).read_bytes() == b"wheel"


def test_ray_gets_the_models_at_absolute_paths(model, tmp_path):
    export("ray", deployment(model, secret=None), tmp_path / "out")
    [document] = documents(tmp_path / "out")
    [application] = document["applications"]
    assert ModelSpec(**application["args"]["models"][0]) == deployment(model).specs[0]
    assert Scale(**application["args"]["scale"]) == SCALE
    assert "RAY_SERVE_ENABLE_HA_PROXY=1\n" in (tmp_path / "out" / "ray.env").read_text()


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_there_stay_unless_forced(kind, model, tmp_path, request):
    if kind == "triton":
        pytest.skip("Triton's repository: tests/export/test_triton.py")
    made = export(kind, deployment(model, secret=None), tmp_path / "out")
    made[-1].write_text("mine")
    before = {path: path.read_bytes() for path in made}
    with pytest.raises(UsageError, match="is there already") as caught:
        export(kind, deployment(model, secret=None), tmp_path / "out")
    assert "--force" in str(caught.value)
    assert {path: path.read_bytes() for path in made} == before
    export(kind, deployment(model, secret=None), tmp_path / "out", force=True)
    assert made[-1].read_text() != "mine"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_folder_in_the_place_of_a_file_stays_and_nothing_is_replaced(model, tmp_path):
    first, *_, last = export("compose", deployment(model), tmp_path / "out")
    last.unlink()
    last.mkdir()
    first.write_text("mine")
    with pytest.raises(UsageError, match=r"found a folder\.\nDo: name another folder, or rm -r "):
        export("compose", deployment(model), tmp_path / "out", force=True)
    assert first.read_text() == "mine"


@pytest.mark.parametrize("name", ["Double", "a_b", "-a", "a.b", 64 * "a", ""])
def test_a_name_that_is_no_label_is_refused_with_one_that_is(name, model):
    with pytest.raises(UsageError, match=r"RFC 1123") as caught:
        deployment(model, name=name)
    close = str(caught.value).rpartition("Do: --name ")[2]
    assert deployment(model, name=close).name == close


@pytest.mark.parametrize("image", ["a b", "A/b", "a:", "a;b", "a//b", "a\nb", "../a"])
def test_a_name_that_is_no_image_is_refused(image, model):
    with pytest.raises(UsageError, match="--image"):
        deployment(model, image=image)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        *((kind, {"scale": Scale(gpus=0.5)}, "can only be had on Ray") for kind in ("k8s", "kserve", "compose")),
        *((kind, {"scale": Scale(cpu_replicas=2)}, "only be had on Ray") for kind in ("k8s", "kserve", "compose")),
        *((kind, {}, r"--secret: .* has no place for it") for kind in ("ray", "triton")),
        (
            "triton",
            {"secret": None},
            r"Triton cannot run the class(?s:.*)Do: pytrt serve-export triton double=FILE\.engine",
        ),
        ("helm", {}, "ray, kserve, triton, k8s, compose"),
        ("k8s", {"files": [Path("gone")]}, "no such file"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_is_written(kind, options, message, model, tmp_path):
    with pytest.raises(UsageError, match=message):
        export(kind, deployment(model, **options), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_files_of_one_name_are_refused(model, tmp_path):
    other = tmp_path / "other" / "double.py"
    other.parent.mkdir()
    other.write_text("")
    specs = [ModelSpec("a", model), ModelSpec("b", f"{other}:Double")]
    with pytest.raises(UsageError, match="have the same name"):
        export("compose", deployment(model, specs=specs), tmp_path / "out")


def test_triton_gets_the_batch_and_the_delay_of_each_model(tmp_path):
    file = tmp_path / "relu.onnx"
    text = '<ir_version: 10, opset_import: ["": 18]> relu (float[N, 2] x) => (float[N, 2] y) { y = Relu (x) }'
    onnx.save(onnx.parser.parse_model(text), file)
    specs = [ModelSpec("day", str(file), max_batch=4, max_delay_ms=1.5), ModelSpec("night", str(file))]
    made = export("triton", Deployment("both", specs), tmp_path / "out")
    names = ["day/1/model.onnx", "day/config.pbtxt", "night/1/model.onnx", "night/config.pbtxt"]
    assert [path.relative_to(tmp_path / "out").as_posix() for path in made] == names
    text = made[1].read_text()
    assert "max_batch_size: 4" in text
    assert "max_queue_delay_microseconds: 1500" in text


@pytest.mark.parametrize(
    ("cpus", "request_cpu", "workers"),
    [(0.1, "100m", 0), (2, "2000m", 0), (2.5, "2500m", 1), (3, "3000m", 1), (4, "4000m", 2), (9, "9000m", 4)],
)
def test_cores_are_asked_for_in_thousandths_and_half_of_them_are_cpu_processes(
    model, tmp_path, cpus, request_cpu, workers
):
    made = deployment(model, scale=Scale(cpus=cpus, memory_mib=6000))
    export("k8s", made, tmp_path / "out")
    [container] = pod(tmp_path / "out")["containers"]
    assert container["resources"]["requests"] == {"cpu": request_cpu, "memory": "6000Mi"}
    assert f"\ncpu = {workers}\n" in image_files(made)["serving.toml"]
