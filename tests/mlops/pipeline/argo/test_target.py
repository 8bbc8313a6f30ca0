"""What Argo does not take is refused, and what a cluster needs before is said."""

import json

import pytest

from pytrtplugins.errors import PipelineError, UsageError
from pytrtplugins.mlops.pipeline.argo import ArgoTarget, argo_yaml
from tests.mlops.pipeline.argo.exports import IMAGE, PIPELINE, exported, template
from tests.mlops.pipeline.argo.strict import texts

pytest.importorskip("hera", reason='pip install "pytrtplugins[pipeline]"')


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
        {"volumes": ("claim",)},
        {"volumes": ("claim:relative",)},
        {"volumes": ("claim:/a b",)},
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


def test_a_folder_is_copied_with_all_that_is_in_it(load):
    text = argo_yaml(
        load(PIPELINE.replace("photos.txt]", "data/photos]")), ArgoTarget(IMAGE, bucket="models", store="gcs")
    )
    assert "# Files: gcloud storage rsync -r data/photos gs://models/animals/inputs/data/photos\n" in text


def test_texts_are_found_everywhere():
    assert list(texts({"a": ["b", {"c": "d"}], "e": 1})) == ["b", "d"]
