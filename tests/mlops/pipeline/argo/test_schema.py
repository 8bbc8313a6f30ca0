"""Every key of an export is one that Argo knows, and every place leads somewhere."""

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pytrtplugins.mlops.pipeline.argo import ArgoTarget, argo_yaml
from tests.mlops.pipeline.argo.exports import IMAGE, KINDS, exported, specification
from tests.mlops.pipeline.argo.strict import dangling, unknown_by_hera, unknown_by_schema

pytest.importorskip("hera", reason='pip install "pytrtplugins[pipeline]"')


@pytest.mark.parametrize(
    ("kind", "store"), [("workflow", "s3"), ("template", "gcs"), ("cron", "oss"), ("event", "s3"), ("data", "s3")]
)
def test_every_key_is_one_of_argos_and_every_place_leads_somewhere(load, kind, store):
    found = exported(
        load(), kind=kind, store=store, endpoint="store.example.com", store_secret="keys", timezone="Asia/Tokyo"
    )
    assert [each["kind"] for each in found] == KINDS[kind]
    for each in found:
        assert unknown_by_hera(each) == []
    assert list(dangling(specification(found[0]))) == []


@pytest.mark.parametrize("variable", ["ARGO_SCHEMA", "ARGO_EVENTS_SCHEMA"])
@pytest.mark.parametrize("kind", KINDS)
def test_argos_own_schema_knows_every_key_and_type(load, kind, variable):
    if variable not in os.environ:
        pytest.skip(f"{variable}=FILE names api/jsonschema/schema.json of Argo Workflows, or of Argo Events")
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(os.environ[variable]).read_text())
    known = {each["$ref"].rpartition(".")[2] for each in schema["oneOf"]}
    for each in exported(load(), kind=kind, timezone="Asia/Tokyo", endpoint="minio:9000", store_secret="keys"):
        if each["kind"] in known:
            assert unknown_by_schema(each, schema) == []
            jsonschema.Draft202012Validator(schema).validate(each)


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
    assert len(unknown_by_hera(resource)) == 1
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
