"""An export says what the pipeline says, and holds no secret."""

import re

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.mlops.pipeline.argo import ArgoTarget, argo_yaml
from tests.mlops.pipeline.argo.exports import IMAGE, PIPELINE, exported, template
from tests.mlops.pipeline.argo.strict import dangling, unknown_by_hera

pytest.importorskip("hera", reason='pip install "pytrtplugins[pipeline]"')


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


PHOTOS = {"bucket": "models", "key": "animals/inputs/photos.txt"}


def secrets(*fields):
    return {f"{field}Secret": {"name": "k", "key": field} for field in fields}


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ({"bucket": ""}, {"s3": {"key": "animals/inputs/photos.txt"}}),
        ({"bucket": "", "store": "gcs", "prefix": "a/b"}, {"gcs": {"key": "a/b/inputs/photos.txt"}}),
        (
            {"endpoint": "minio:9000", "insecure": True, "store_secret": "k"},
            {"s3": {**PHOTOS, "endpoint": "minio:9000", "insecure": True, **secrets("accessKey", "secretKey")}},
        ),
        ({"store": "gcs", "store_secret": "k"}, {"gcs": {**PHOTOS, **secrets("serviceAccountKey")}}),
        (
            {"store": "oss", "endpoint": "oss.example.com"},
            {"oss": {**PHOTOS, "endpoint": "oss.example.com", "useSDKCreds": True}},
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


def test_all_steps_see_the_volumes(load):
    (found,) = exported(load(), volumes=("registry:/registry", "cache.a:/var/cache"))
    claims = [each["persistentVolumeClaim"]["claimName"] for each in found["spec"]["volumes"]]
    names = [each["name"] for each in found["spec"]["volumes"]]
    assert claims == ["registry", "cache.a"]
    for step in ("shards", "quality", "on-exit"):
        mounts = template(found, step)["container"]["volumeMounts"]
        assert [(each["name"], each["mountPath"]) for each in mounts] == list(
            zip(names, ("/registry", "/var/cache"), strict=True)
        )
    assert unknown_by_hera(found) == []


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


def test_inputs_are_linked_and_not_mounted_into_folders_that_get_outputs(load):
    text = "name: a\nsteps:\n  s: {command: make it, inputs: [o/in 1.bin, /data/x], outputs: [o/p/out.bin, top]}"
    (found,) = exported(load(text))
    step = template(found, "s")
    places = {each["name"]: each["path"] for each in step["inputs"]["artifacts"]}
    assert places == {"o-in-1-bin": "/inputs/o-in-1-bin", "data-x": "/data/x"}
    assert [each["path"] for each in step["outputs"]["artifacts"]] == ["/work/o/p/out.bin", "/work/top"]
    assert step["container"]["command"] == ["sh", "-ec"]
    assert step["container"]["args"][0].splitlines() == [
        "mkdir -p o o/p",
        "rm -rf 'o/in 1.bin'; ln -s /inputs/o-in-1-bin 'o/in 1.bin'",
        'exec "$0" "$@"',
    ]
    assert step["container"]["args"][1:] == ["make", "it"]


def test_an_input_within_another_comes_with_it(load):
    text = "name: a\nsteps:\n  s: {command: make, inputs: [photos/list.txt, photos], outputs: [o]}"
    (found,) = exported(load(text))
    assert [each["name"] for each in template(found, "s")["inputs"]["artifacts"]] == ["photos"]
    assert template(found, "s")["container"]["args"][0].count("ln -s") == 1
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
    assert unknown_by_hera(found) == []


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


def test_new_data_in_the_bucket_starts_the_template(load):
    place = {"endpoint": "minio:9000", "store_secret": "keys", "insecure": True, "service_account": "runner"}
    made, source, sensor = exported(load(), kind="data", **place)
    ((event, listening),) = source["spec"]["minio"].items()
    assert (listening["bucket"], listening["endpoint"]) == ({"name": "models"}, "minio:9000")
    assert listening["filter"] == {"prefix": "animals/inputs/", "suffix": "_SUCCESS"}
    assert listening["accessKey"] == {"name": "keys", "key": "accessKey"}
    (dependency,) = sensor["spec"]["dependencies"]
    assert (dependency["eventSourceName"], dependency["eventName"]) == (source["metadata"]["name"], event)
    assert sensor["spec"]["template"] == {"serviceAccountName": "runner"}
    started = sensor["spec"]["triggers"][0]["template"]["k8s"]["source"]["resource"]
    assert started["spec"] == {"workflowTemplateRef": {"name": made["metadata"]["name"]}}
    assert unknown_by_hera(started) == []


@pytest.mark.parametrize("missing", [{"endpoint": ""}, {"store_secret": ""}, {"store": "gcs"}])
def test_a_bucket_that_argo_events_cannot_listen_to_is_refused(load, missing):
    with pytest.raises(UsageError, match=r"Argo Events listens(?s:.*)Do: --bucket"):
        exported(load(), kind="data", **{"endpoint": "minio:9000", "store_secret": "keys", **missing})


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
  look: {command: look, outputs: [looked], stateful: true}
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
