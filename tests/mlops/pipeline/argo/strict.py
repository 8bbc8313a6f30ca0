"""Strict checks of Argo's resources: keys that a schema or hera's models do not know, and places that lead nowhere."""

from __future__ import annotations

import importlib
import re
from typing import Any

REFERENCE = re.compile(r"\{\{(.*?)\}\}")
GLOBAL = {"workflow.name", "workflow.namespace", "workflow.uid", "workflow.status", "workflow.failures", "pod.name"}


def unknown_by_schema(resource, schema):
    """Keys of a resource that Argo's JSON schema, which accepts them, does not have; as paths."""
    kind = next(
        name for name in schema["definitions"] if re.fullmatch(rf"io\.argoproj\.\w+\.\w+\.{resource['kind']}", name)
    )
    return list(_unknown(resource, schema["definitions"][kind], schema["definitions"], ""))


def _unknown(found, schema, definitions, path):
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if isinstance(found, dict):
        free = schema.get("additionalProperties")
        for key, value in found.items():
            known = schema.get("properties", {}).get(key, free)
            if known is not None:
                yield from _unknown(value, known, definitions, f"{path}.{key}")
            elif schema.get("properties"):  # without, anything goes, such as in withItems
                yield f"{path}.{key}"
    elif isinstance(found, list):
        for number, value in enumerate(found):
            yield from _unknown(value, schema.get("items", {}), definitions, f"{path}[{number}]")


def unknown_by_hera(resource):
    """Keys of a resource that hera's models, which are made of Argo's API, leave out; as paths."""
    package = "events" if resource["kind"] in ("EventSource", "Sensor") else "workflows"
    models = importlib.import_module(
        f"hera.{package}.models"
    )  # which takes long, and most processes of tests need neither
    model = getattr(models, resource["kind"])
    held = {key: value for key, value in resource.items() if key in ("metadata", "spec") or key in aliases(model)}
    held = without_resources(held)
    kept = model.model_validate(held).model_dump(by_alias=True, exclude_unset=True)
    return list(_lost(held, kept, ""))


def aliases(model):
    """The keys that a model knows."""
    return {each.alias or name for name, each in model.model_fields.items()}


def without_resources(value):
    """The same without what a Sensor creates: any resource, which hera takes for bytes."""
    if isinstance(value, list):
        return [without_resources(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_resources(each) for key, each in value.items() if not (key == "resource" and "apiVersion" in each)
    }


def _lost(found, kept, path):
    if isinstance(found, dict) and isinstance(kept, dict):
        for key, value in found.items():
            if key in kept:
                yield from _lost(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(found, list) and isinstance(kept, list):
        for number, (value, other) in enumerate(zip(found, kept, strict=True)):
            yield from _lost(value, other, f"{path}[{number}]")


def order_of_tasks(dag):
    """The tasks of a DAG, each after those that it depends on.

    Raises:
        AssertionError: one depends on a task that does not exist, or tasks depend on each other.
    """
    tasks = {task["name"]: task for task in dag["tasks"]}
    assert len(tasks) == len(dag["tasks"]), "two tasks have one name"
    done: list[str] = []
    waiting = {name: needed_tasks(task) for name, task in tasks.items()}
    assert set().union(*waiting.values()) <= set(tasks), "a task depends on one that does not exist"
    while waiting:
        free = [name for name, needed in waiting.items() if needed <= set(done)]
        assert free, f"tasks depend on each other: {waiting}"
        done += free
        for name in free:
            del waiting[name]
    return done


def needed_tasks(task):
    """Names in ``depends``, of which each is ``NAME.RESULT``."""
    words = re.findall(r"[\w.-]+", task.get("depends", ""))
    assert all(re.fullmatch(r"[\w-]+\.(Succeeded|Failed|Skipped)", word) for word in words), words
    return {word.partition(".")[0] for word in words}


def dangling(spec):
    """What a workflow's specification refers to and does not have; as sentences."""
    templates = {template["name"]: template for template in spec["templates"]}
    if len(templates) < len(spec["templates"]):
        yield "two templates have one name"
    arguments = spec.get("arguments", {})
    for name in filter(None, (spec["entrypoint"], spec.get("onExit"))):
        if name not in templates:
            yield f"there is no template {name}"
        else:
            yield from _not_given(f"the workflow to {name}", templates[name], arguments)
    for template in templates.values():
        where = f"template {template['name']}"
        yield from _broken_places(where, template, _known(spec, template))
        if "dag" in template:
            order_of_tasks(template["dag"])
            yield from _broken_tasks(where, template, templates)
    reached = {spec["entrypoint"], spec.get("onExit")} | {
        task["template"] for each in templates.values() for task in each.get("dag", {}).get("tasks", ())
    }
    yield from (f"nothing uses template {name}" for name in templates if name not in reached)


def _broken_tasks(where, template, templates):
    for task in template["dag"]["tasks"]:
        called = templates.get(task["template"])
        if called is None:
            yield f"{where}: task {task['name']}: there is no template {task['template']}"
        else:
            yield from _not_given(f"{where}: task {task['name']}", called, task.get("arguments", {}))
        for text in texts(task):
            for source in re.findall(r"\{\{tasks\.([\w-]+)\.", text):
                if source not in _before(template["dag"], task):
                    yield f"{where}: task {task['name']} takes something of {source}, which may not have run"


def _before(dag, task):
    """All tasks that have come to their end when one begins."""
    tasks = {each["name"]: each for each in dag["tasks"]}
    found, waiting = set(), needed_tasks(task)
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= needed_tasks(tasks[name]) - found
    return found


def _not_given(where, template, arguments):
    for kind in ("artifacts", "parameters"):
        wanted = {each["name"] for each in template.get("inputs", {}).get(kind, ())}
        given = {each["name"] for each in arguments.get(kind, ())}
        yield from (f"{where}: {kind} {name} of {template['name']} is not given" for name in wanted - given)
        if "task" in where:
            yield from (f"{where}: {template['name']} takes no {kind} {name}" for name in given - wanted)


def _known(spec, template):
    """Everything that a place in a template may name."""
    known = set(GLOBAL)
    known |= {f"workflow.parameters.{each['name']}" for each in spec.get("arguments", {}).get("parameters", ())}
    for kind in ("artifacts", "parameters"):
        known |= {f"inputs.{kind}.{each['name']}" for each in template.get("inputs", {}).get(kind, ())}
    made = {each["name"]: each.get("outputs", {}) for each in spec["templates"]}
    for task in template.get("dag", {}).get("tasks", ()):
        for kind in ("artifacts", "parameters"):
            outputs = made.get(task["template"], {}).get(kind, ())
            known |= {f"tasks.{task['name']}.outputs.{kind}.{each['name']}" for each in outputs}
    return known


def _broken_places(where, template, known):
    for text in texts(template):
        for place in REFERENCE.findall(text):
            names = re.findall(r"workflow\.\w+", place) if place.startswith("=") else [place]
            yield from (f"{where}: {{{{{place}}}}} leads nowhere" for name in names if name not in known)


def texts(value: Any):
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
