"""Exports for Argo Workflows have no unknown key and no place that leads nowhere, and do what the pipeline says."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pytrtplugins.errors import PipelineError, UsageError
from pytrtplugins.pipeline.argo import ArgoTarget, argo_yaml, load_live

yaml = pytest.importorskip("yaml")
models = pytest.importorskip("hera.workflows.models", reason='pip install "pytrtplugins[pipeline]"')

from tests.pipeline.argo.interpreter import Interpreter  # noqa: E402
from tests.pipeline.argo.strict import dangling, texts, unknown_by_hera, unknown_by_schema  # noqa: E402

IMAGE = "registry.example.com/animals:1"
READ: dict = {}
"""Exports that were read back, by the pipeline and the target."""
KINDS = {
    "workflow": ["Workflow"],
    "template": ["WorkflowTemplate"],
    "cron": ["CronWorkflow"],
    "event": ["WorkflowTemplate", "WorkflowEventBinding"],
}
PIPELINE = """
name: animals
schedule: "0 3 * * *"
parameters: {size: smoke, images: {by: size, smoke: 16, full: 500}, note: hello, share: 0.5, strict: true}
steps:
  shards:
    command: sh -c "mkdir shards; cp photos.txt shards/all; echo $0 > shards/count" ${images}
    inputs: [photos.txt]
    outputs: [shards]
    retry: {limit: 3, backoff: 10s}
    resources: {cpu: 1.5, memory: 512MiB}
  evaluate:
    matrix: {precision: [fp32, int8]}
    command: sh -c 'test -s shards/all && echo "{\\"mAP\\":" $0"}"' ${share}
    inputs: [shards/all]
    stdout: metrics/${precision}.json
    metrics: ["metrics/${precision}.json"]
    resources: {gpu: 1}
    time_limit: 90min
    environment: [OMP_NUM_THREADS]
  quality:
    gate: int8.mAP within 0.1 of fp32 and int8.mAP above 0.4
    inputs: [metrics/int8.json, metrics/fp32.json]
    outputs: [gates/int8.json]
  package:
    command: cp shards/all package
    inputs: [shards, gates/int8.json]
    outputs: [package]
    approval: true
    secrets: [REGISTRY_TOKEN]
on_exit:
  command: sh -c "echo $PYTRT_PIPELINE_STATE $0 > told.txt; cat told.txt" ${note}
  outputs: [told.txt]
"""


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Loads a pipeline of this text, each once."""

    @functools.cache
    def load(text=PIPELINE):
        path = tmp_path_factory.mktemp("pipeline") / "pipeline.yaml"
        path.write_text(text)
        return load_live(path)

    return load


def exported(found, **target):
    """The resources of an export, read back."""
    target = ArgoTarget(**{"image": IMAGE, "bucket": "models", **target})
    if (id(found), target) not in READ:  # pipelines stay alive in the fixture
        READ[id(found), target] = list(yaml.safe_load_all(argo_yaml(found, target)))
    return copy.deepcopy(READ[id(found), target])


def specification(resource):
    """The workflow's, of any kind."""
    return resource["spec"].get("workflowSpec", resource["spec"])


def template(resource, name):
    """A template by its name."""
    return next(each for each in specification(resource)["templates"] if each["name"] == name)


def task(resource, name):
    """A task of the DAG by its name."""
    return next(each for each in template(resource, "main")["dag"]["tasks"] if each["name"] == name)


# --- structure ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "store"), [("workflow", "s3"), ("template", "gcs"), ("cron", "oss"), ("event", "s3")])
def test_every_key_is_one_of_argos_and_every_place_leads_somewhere(load, kind, store):
    found = exported(
        load(), kind=kind, store=store, endpoint="store.example.com", store_secret="keys", timezone="Asia/Tokyo"
    )
    assert [each["kind"] for each in found] == KINDS[kind]
    for each in found:
        assert unknown_by_hera(each, models) == []
    assert list(dangling(specification(found[0]))) == []


@pytest.mark.skipif("ARGO_SCHEMA" not in os.environ, reason="ARGO_SCHEMA=FILE names Argo's api/jsonschema/schema.json")
@pytest.mark.parametrize("kind", KINDS)
def test_argos_own_schema_knows_every_key_and_type(load, kind):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(os.environ["ARGO_SCHEMA"]).read_text())
    for each in exported(load(), kind=kind, timezone="Asia/Tokyo", store_secret="keys"):
        assert unknown_by_schema(each, schema) == []
        jsonschema.validate(each, schema)


@pytest.mark.skipif(shutil.which("argo") is None, reason="argo, Argo's command, is not on the PATH")
@pytest.mark.parametrize("kind", ["workflow", "template", "cron"])
def test_argo_lint_accepts_it(load, tmp_path, kind):
    path = tmp_path / "workflow.yaml"
    path.write_text(argo_yaml(load(), ArgoTarget(IMAGE, kind=kind, bucket="models")))
    subprocess.run(["argo", "lint", "--offline", str(path)], check=True)


PLANTED = {
    "spec": lambda spec: spec.update(entryPoint="main"),
    "retry": lambda spec: spec["templates"][1]["retryStrategy"].update(retrypolicy="Always"),
    "container": lambda spec: spec["templates"][1]["container"].update(imagePullpolicy="Always"),
    "resources": lambda spec: spec["templates"][1]["container"]["resources"].update(limit={}),
    "artifact": lambda spec: spec["arguments"]["artifacts"][0]["s3"].update(buckets="x"),
    "task": lambda spec: spec["templates"][0]["dag"]["tasks"][1].update(dependson="shards"),
}


@pytest.mark.parametrize("typo", PLANTED)
def test_a_planted_typo_is_found(load, typo):
    (resource,) = exported(load())
    PLANTED[typo](resource["spec"])
    assert len(unknown_by_hera(resource, models)) == 1
    if "ARGO_SCHEMA" in os.environ:
        assert len(unknown_by_schema(resource, json.loads(Path(os.environ["ARGO_SCHEMA"]).read_text()))) == 1


def test_the_walker_over_a_schema_finds_what_the_schema_lacks():
    schema = {
        "definitions": {
            "io.argoproj.workflow.v1alpha1.Workflow": {"properties": {"kind": {}, "spec": {"$ref": "#/definitions/S"}}},
            "S": {
                "properties": {
                    "labels": {"additionalProperties": {"type": "string"}},
                    "list": {"items": {"properties": {"a": {"type": "string"}}}},
                    "free": {},
                }
            },
        }
    }
    resource = {
        "kind": "Workflow",
        "spec": {"labels": {"x": "y"}, "list": [{"a": "1"}, {"b": 2}], "free": {"z": 1}, "c": 3},
    }
    assert unknown_by_schema(resource, schema) == [".spec.list[1].b", ".spec.c"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda spec: spec.update(entrypoint="begin"), "no template begin"),
        (lambda spec: spec["templates"].pop(1), "no template shards"),
        (lambda spec: spec["templates"][1].update(name="shard"), "no template shards"),
        (
            lambda spec: spec["templates"][1]["outputs"].pop("artifacts"),
            "tasks.shards.outputs.artifacts.shards}} leads nowhere",
        ),
        (
            lambda spec: spec["templates"][0]["dag"]["tasks"][1].pop("arguments"),
            "artifacts shards of evaluate-fp32 is not given",
        ),
        (
            lambda spec: spec["templates"][0]["dag"]["tasks"][1].pop("depends"),
            "takes something of shards, which may not have run",
        ),
        (lambda spec: spec["arguments"].pop("artifacts"), "artifacts photos-txt of main is not given"),
        (lambda spec: spec["arguments"]["parameters"].pop(), "{{workflow.parameters.share}} leads nowhere"),
        (lambda spec: spec["templates"].append(spec["templates"][1]), "two templates have one name"),
        (lambda spec: spec["templates"].append({"name": "x"}), "nothing uses template x"),
    ],
)
def test_the_checker_of_places_finds_what_leads_nowhere(load, change, said):
    (resource,) = exported(load())
    spec = copy.deepcopy(specification(resource))
    change(spec)
    assert any(said in each for each in dangling(spec)), list(dangling(spec))


# --- what it says ------------------------------------------------------------------------------------------------------


def test_a_step_keeps_what_it_needs(load):
    (found,) = exported(load())
    shards, evaluate = template(found, "shards"), template(found, "evaluate-int8")
    assert shards["retryStrategy"] == {
        "limit": "3",
        "retryPolicy": "Always",
        "backoff": {"duration": "10s", "factor": "2"},
    }
    assert shards["container"]["resources"] == {
        "requests": {"cpu": "1500m", "memory": "512Mi"},
        "limits": {"memory": "512Mi"},
    }
    assert evaluate["activeDeadlineSeconds"] == "5400"
    assert evaluate["container"]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert evaluate["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "retryStrategy" not in evaluate
    assert "activeDeadlineSeconds" not in shards


def test_pods_may_do_little_and_are_removed(load):
    (found,) = exported(load(), service_account="runner", namespace="ml")
    spec = found["spec"]
    assert (found["metadata"]["namespace"], spec["serviceAccountName"]) == ("ml", "runner")
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["podGC"] == {"strategy": "OnPodSuccess"}
    assert set(spec["ttlStrategy"]) == {"secondsAfterSuccess", "secondsAfterFailure"}
    for each in spec["templates"]:
        if "container" in each:
            assert each["container"]["imagePullPolicy"] == "IfNotPresent"
            assert each["container"]["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


def test_no_value_of_a_secret_or_of_the_environment_is_written(load, monkeypatch):
    monkeypatch.setenv("REGISTRY_TOKEN", "planted-secret-4711")
    monkeypatch.setenv("OMP_NUM_THREADS", "471147")
    found = load(PIPELINE + "# read with these in the environment")
    for kind in ("workflow", "event"):
        text = argo_yaml(found, ArgoTarget(IMAGE, kind=kind, bucket="models", store_secret="keys"))
        assert "planted-secret-4711" not in text
        assert "471147" not in text
    (found,) = exported(load(), secret="tokens")
    reference = {"name": "tokens", "key": "REGISTRY_TOKEN"}
    assert template(found, "package")["container"]["env"] == [
        {"name": "REGISTRY_TOKEN", "valueFrom": {"secretKeyRef": reference}}
    ]
    (variable,) = template(found, "evaluate-fp32")["container"]["env"]
    assert variable["valueFrom"] == {"configMapKeyRef": {"name": "animals-environment", "key": "OMP_NUM_THREADS"}}


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ({"bucket": ""}, {"s3": {"key": "animals/inputs/photos.txt"}}),
        ({"bucket": "", "store": "gcs", "prefix": "a/b"}, {"gcs": {"key": "a/b/inputs/photos.txt"}}),
        (
            {"endpoint": "minio:9000", "insecure": True, "store_secret": "k"},
            {
                "s3": {
                    "bucket": "models",
                    "endpoint": "minio:9000",
                    "insecure": True,
                    "key": "animals/inputs/photos.txt",
                    "accessKeySecret": {"name": "k", "key": "accessKey"},
                    "secretKeySecret": {"name": "k", "key": "secretKey"},
                }
            },
        ),
        (
            {"store": "gcs", "store_secret": "k"},
            {
                "gcs": {
                    "bucket": "models",
                    "key": "animals/inputs/photos.txt",
                    "serviceAccountKeySecret": {"name": "k", "key": "serviceAccountKey"},
                }
            },
        ),
        (
            {"store": "oss", "endpoint": "oss.example.com"},
            {
                "oss": {
                    "bucket": "models",
                    "endpoint": "oss.example.com",
                    "key": "animals/inputs/photos.txt",
                    "useSDKCreds": True,
                }
            },
        ),
    ],
)
def test_the_users_files_are_in_the_bucket(load, target, location):
    (found,) = exported(load(), **target)
    (given,) = found["spec"]["arguments"]["artifacts"]
    assert given == {"name": "photos-txt", **location}
    output = template(found, "shards")["outputs"]["artifacts"][0]
    store = next(iter(location))
    assert (store in output) == bool(target.get("bucket", "models"))


def test_logs_are_kept_beside_the_outputs(load):
    (found,) = exported(load())
    assert "archiveLogs" not in found["spec"]
    for each in found["spec"]["templates"]:
        if "container" in each:
            location = each["archiveLocation"]
            assert location["archiveLogs"] is True
            assert (location["s3"]["bucket"], location["s3"]["key"]) == (
                "models",
                "animals/runs/{{workflow.name}}/{{pod.name}}",
            )
    (found,) = exported(load(), bucket="")
    assert found["spec"]["archiveLogs"] is True
    assert not any("archiveLocation" in each for each in found["spec"]["templates"])


def test_files_of_the_image_are_no_artifacts(load):
    text = PIPELINE.replace("inputs: [photos.txt]", "inputs: [photos.txt, code/make.py, nets/a.cfg, nets2/b.cfg]")
    (found,) = exported(load(text), in_image=("nets",))
    assert [each["name"] for each in found["spec"]["arguments"]["artifacts"]] == ["photos-txt", "nets2-b-cfg"]
    assert list(dangling(found["spec"])) == []


def test_paths_that_look_alike_have_names_of_their_own(load):
    text = "name: a\nsteps:\n  s: {command: 'true', inputs: [x/y, x-y, x.y], outputs: [x_y]}"
    (found,) = exported(load(text))
    names = [each["name"] for each in template(found, "s")["inputs"]["artifacts"]]
    names += [each["name"] for each in template(found, "s")["outputs"]["artifacts"]]
    assert len(set(names)) == 4
    assert all(re.fullmatch("[A-Za-z0-9-]+", name) for name in names)


def test_a_pipeline_of_steps_called_like_our_templates_is_kept_apart(load):
    text = "name: a\nsteps:\n" + "".join(
        f"  {name}: {{command: 'true', outputs: [{name}], approval: true}}\n"
        for name in ("main", "approve", "stop", "approve-main")
    )
    (found,) = exported(load(text))
    assert list(dangling(found["spec"])) == []
    assert unknown_by_hera(found, models) == []


def test_a_schedule_becomes_a_cron_workflow(load):
    (found,) = exported(load(), kind="cron", timezone="Europe/Berlin", concurrency="Replace")
    assert found["metadata"]["name"] == "animals"
    assert found["spec"]["schedules"] == ["0 3 * * *"]
    assert (found["spec"]["timezone"], found["spec"]["concurrencyPolicy"]) == ("Europe/Berlin", "Replace")
    with pytest.raises(UsageError, match=r"animals does not have(?s:.*)Do: add a key such as schedule"):
        exported(load(PIPELINE.replace("schedule:", "#")), kind="cron")


def test_an_event_starts_the_template_with_its_parameters(load):
    made, binding = exported(load(), kind="event")
    assert binding["spec"]["event"] == {"selector": 'discriminator == "animals"'}
    assert binding["spec"]["submit"]["workflowTemplateRef"] == {"name": made["metadata"]["name"]}
    assert {"name": "note", "valueFrom": {"event": 'payload?.note ?? "hello"'}} in binding["spec"]["submit"][
        "arguments"
    ]["parameters"]


def test_a_step_is_memoized_where_its_key_tells_all_that_it_depends_on(load):
    text = """
name: a
parameters: {n: 1}
steps:
  draw: {command: draw, outputs: [drawn]}
  count: {command: "count drawn", inputs: [drawn], outputs: [counted]}
  scale: {command: "scale ${n}", inputs: [drawn], outputs: [scaled]}
  join: {command: join, inputs: [scaled, counted], outputs: [joined]}
  read: {command: read, inputs: [photos], outputs: [seen]}
  ask: {command: ask, outputs: [asked], environment: [HOME]}
"""
    pinned = "registry.example.com/a@sha256:" + "ab" * 32

    def keys(text, image):
        (found,) = exported(load(text), image=image)
        made = {each["name"]: each["memoize"] for each in found["spec"]["templates"] if "memoize" in each}
        assert all(each["cache"] == {"configMap": {"name": "a-cache"}} for each in made.values())
        return {name: each["key"] for name, each in made.items()}

    first = keys(text, pinned)
    assert set(first) == {"draw", "count"}
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in first.values())
    changed = keys(text.replace("command: draw", "command: paint"), pinned)
    assert not set(first.values()) & set(changed.values())
    assert keys(text, pinned) == first
    assert keys(text, "registry.example.com/a:1") == {}


# --- what it does ------------------------------------------------------------------------------------------------------


def run(load, tmp_path, **parameters):
    """An export run by the interpreter."""
    (found,) = exported(load(), folder=str(tmp_path / "work"))
    spec = json.loads(json.dumps(specification(found)).replace("/tmp/passes", f"{tmp_path}/passes"))
    ran = Interpreter(spec, tmp_path, {"photos-txt": "three photos"}, **parameters)
    return ran, ran.run()


def test_the_exported_workflow_does_what_the_pipeline_says(load, tmp_path):
    ran, phase = run(load, tmp_path, images="7", note="bye")
    assert phase == "Succeeded", ran.said
    assert ran.phases.pop("quality-stops") == "Skipped"
    assert set(ran.phases.values()) == {"Succeeded"}
    kept = tmp_path / "stored"
    assert (kept / "package/package").read_text() == "three photos"
    assert (kept / "shards/shards/count").read_text() == "7\n"
    assert json.loads((kept / "evaluate-int8/metrics-int8-json").read_text()) == {"mAP": 0.5}
    assert json.loads((kept / "quality/gates-int8-json").read_text())["passes"] is True
    assert ran.said["exit"].split() == ["Succeeded", "bye"]


def test_a_gate_that_does_not_hold_stops_it_and_says_so(load, tmp_path):
    ran, phase = run(load, tmp_path, share="0.25")
    assert phase == "Failed"
    assert ran.phases["quality"] == "Succeeded"
    assert ran.phases["quality-stops"] == "Failed"
    assert (ran.phases["approve-package"], ran.phases["package"]) == ("Skipped", "Omitted")
    assert "FAILS: int8.mAP above 0.4" in ran.said["quality"]
    assert (
        "Gate quality stops the pipeline: int8.mAP within 0.1 of fp32 and int8.mAP above 0.4"
        in ran.said["quality-stops"]
    )


def test_a_step_that_fails_leaves_out_what_is_behind_it(load, tmp_path):
    (found,) = exported(load(PIPELINE.replace("mkdir shards;", "false &&")), folder=str(tmp_path / "work"))
    ran = Interpreter(specification(found), tmp_path, {"photos-txt": ""})
    assert ran.run() == "Failed"
    assert ran.phases.pop("shards") == "Failed"
    assert set(ran.phases.values()) == {"Omitted"}


# --- errors ------------------------------------------------------------------------------------------------------------


def test_places_of_argos_in_a_command_are_refused(load):
    text = "name: a\nsteps:\n  s: {command: ['echo', '{{workflow.name}}'], outputs: [x]}"
    with pytest.raises(PipelineError, match=r"step s: '\{\{workflow.name\}\}'(?s:.*)Do: "):
        exported(load(text))


def test_an_exit_that_takes_what_a_step_makes_is_refused(load):
    with pytest.raises(PipelineError, match="on_exit takes package, which step package makes"):
        exported(load(PIPELINE + "  inputs: [package]\n"))


@pytest.mark.parametrize(("kind", "most"), [("workflow", 57), ("cron", 52)])
def test_a_name_that_leaves_no_room_for_what_argo_adds_is_refused(load, kind, most):
    text = 'name: {}\nschedule: "0 3 * * *"\nsteps:\n  s: {{command: "true", outputs: [x]}}'
    assert exported(load(text.format("a" * most)), kind=kind)
    with pytest.raises(PipelineError, match=f"at most {most} characters here, found {most + 1}"):
        exported(load(text.format("a" * (most + 1))), kind=kind)


def test_a_step_that_begins_with_a_digit_is_refused(load):
    with pytest.raises(PipelineError, match=r"step 3d: a task of Argo may not begin with a digit(?s:.*)Do: "):
        exported(load("name: a\nsteps:\n  3d: {command: 'true', outputs: [x]}"))


def test_words_that_look_like_numbers_are_texts_for_every_reader(load):
    ruamel = pytest.importorskip("ruamel.yaml")
    words = [
        "1e-4",
        "0.5",
        "7",
        "y",
        "on",
        "0o17",
        "0x1F",
        "1_000",
        "null",
        "12:30:45",
        "2026-01-01",
        "~",
        "",
        "-3",
        ".5",
        "=",
        "a: b",
    ]
    text = f"name: a\nsteps:\n  s: {{command: {json.dumps(['train', *words])}, outputs: [x]}}"
    written = argo_yaml(load(text), ArgoTarget(IMAGE))
    for version in ("1.1", "1.2"):
        reader = ruamel.YAML(typ="safe", pure=True)
        reader.version = version
        assert template(reader.load(written), "s")["container"]["args"] == words


def test_containers_are_kubernetes(load):
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    (found,) = exported(load())
    for each in found["spec"]["templates"]:
        if "container" in each:
            container = {"name": "main", **each["container"]}
            pod = {
                "containers": [container],
                "tolerations": each.get("tolerations", []),
                "securityContext": found["spec"]["securityContext"],
            }
            validate.validate(
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod}, "1.30", strict=True
            )


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": ""},
        {"image": "a b"},
        {"bucket": "{{x}}"},
        {"store": "oss"},
        {"store": "azure"},
        {"kind": "job"},
        {"bucket": "", "endpoint": "x"},
        {"bucket": "", "store_secret": "x"},
        {"prefix": "/a"},
        {"prefix": "a/{{x}}"},
        {"folder": "work"},
        {"namespace": "A"},
        {"timezone": "a; b"},
        {"concurrency": "Never"},
        {"secret": 3},
    ],
)
def test_a_target_that_no_cluster_takes_is_refused(wrong):
    with pytest.raises(UsageError):
        ArgoTarget(**{"image": IMAGE, "bucket": "models", **wrong})


def test_the_comment_says_what_a_cluster_needs_before(load):
    lines = [
        line for line in argo_yaml(load(), ArgoTarget(IMAGE, bucket="models"), "w.yaml").splitlines() if line[0] == "#"
    ]
    text = "\n".join(lines)
    assert "kubectl create secret generic animals-secrets --from-literal=REGISTRY_TOKEN=..." in text
    assert "aws s3 cp photos.txt s3://models/animals/inputs/photos.txt" in text
    assert lines[-1] == "# Do: argo submit w.yaml"


def test_texts_are_found_everywhere():
    assert list(texts({"a": ["b", {"c": "d"}], "e": 1})) == ["b", "d"]
