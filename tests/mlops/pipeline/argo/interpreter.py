"""A workflow's specification run on this machine, task by task: artifacts are copied, commands run, conditions evaluated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.mlops.pipeline.argo.strict import order_of_tasks

_ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": str(Path(__file__).parents[4]),  # this checkout, wherever the interpreter has the package from
}


class Interpreter:
    """What Argo's controller and executor do with a workflow of one DAG, as far as our exports need it.

    Args:
        spec: The workflow's specification.
        folder: An empty folder.
        given: Contents of the user's files, by the names of the artifacts.
        image: Files and folders that the image has in its working directory.
        environment: Variables of all containers.
        parameters: Values instead of those in the specification.
    """

    def __init__(self, spec, folder, given, image=(), environment=None, **parameters):
        self.spec, self.folder, self.image = spec, folder, image
        self.environment = _ENVIRONMENT | (environment or {})
        self.templates = {each["name"]: each for each in spec["templates"]}
        self.values = {
            f"workflow.parameters.{each['name']}": parameters.get(each["name"], each["value"])
            for each in spec.get("arguments", {}).get("parameters", ())
        }
        self.stored: dict[str, Path] = {}
        for name, text in given.items():
            self.stored[f"inputs.artifacts.{name}"] = folder / "given" / name
            self.stored[f"inputs.artifacts.{name}"].parent.mkdir(exist_ok=True)
            self.stored[f"inputs.artifacts.{name}"].write_text(text)
        self.phases: dict[str, str] = {}
        self.said: dict[str, str] = {}

    def run(self):
        """Run all tasks, then what is to run at the exit; gives the phase of the workflow."""
        dag = self.templates[self.spec["entrypoint"]]["dag"]
        tasks = {task["name"]: task for task in dag["tasks"]}
        for name in order_of_tasks(dag):
            self.phases[name] = self._task(tasks[name])
        phase = "Failed" if "Failed" in self.phases.values() else "Succeeded"
        if end := self.spec.get("onExit"):
            self._pod("exit", self.templates[end], {"=workflow.status == 'Succeeded' ? 'done' : 'failed'": phase}, {})
        return phase

    def _task(self, task):
        if "depends" in task and not all(self._ended(word) for word in task["depends"].split(" && ")):
            return "Omitted"
        if "when" in task and not self._holds(self._filled(task["when"], {})):
            return "Skipped"
        template = self.templates[task["template"]]
        if "suspend" in template:
            return "Succeeded"
        arguments = task.get("arguments", {})
        values = {
            f"inputs.parameters.{each['name']}": self._filled(each["value"], {})
            for each in arguments.get("parameters", ())
        }
        artifacts = {each["name"]: self.stored.get(each["from"][2:-2]) for each in arguments.get("artifacts", ())}
        return self._pod(task["name"], template, values, artifacts)

    def _ended(self, word):
        name, _, wanted = word.rpartition(".")
        return self.phases[name] == wanted

    @staticmethod
    def _holds(text):
        """``A == B && C == D``."""
        return all(left == right for left, right in (part.split(" == ") for part in text.split(" && ")))

    def _pod(self, name, template, values, artifacts):
        work = Path(template["container"].get("workingDir", self.folder / "nowhere"))
        for each in (work, self.folder / "inputs"):  # each pod has files of its own
            shutil.rmtree(each, ignore_errors=True)
        work.mkdir(parents=True)
        for each in self.image:
            (shutil.copytree if each.is_dir() else shutil.copyfile)(each, work / each.name)
        for each in template.get("inputs", {}).get("artifacts", ()):
            if (source := artifacts[each["name"]]) is None:
                return "Error"
            Path(each["path"]).parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, each["path"])
        container = template["container"]
        words = [self._filled(word, values) for word in (*container["command"], *container.get("args", ()))]
        env = {
            each["name"]: self._filled(each["value"], values) for each in container.get("env", ()) if "value" in each
        }
        done = subprocess.run(words, cwd=work, env={**self.environment, **env}, capture_output=True, text=True)
        self.said[name] = done.stdout + done.stderr
        return self._keep(name, template, "Failed" if done.returncode else "Succeeded")

    def _keep(self, name, template, phase):
        outputs = template.get("outputs", {})
        for each in outputs.get("artifacts", ()) if phase == "Succeeded" else ():
            path, kept = Path(each["path"]), self.folder / "stored" / name / each["name"]
            if path.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                path.rename(kept)
                self.stored[f"tasks.{name}.outputs.artifacts.{each['name']}"] = kept
            elif not each.get("optional"):
                return "Error"
        for each in outputs.get("parameters", ()) if phase == "Succeeded" else ():
            text = Path(each["valueFrom"]["path"]).read_text()
            self.values[f"tasks.{name}.outputs.parameters.{each['name']}"] = text
        return phase

    def _filled(self, text, values):
        known = {**self.values, **values}
        return re.sub(r"\{\{(.*?)\}\}", lambda match: known[match[1]], text)
