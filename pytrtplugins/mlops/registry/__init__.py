"""A registry of models: engine files with their origin, their stages, and the history of both.

Example::

    registry = ModelRegistry(".pytrt/models")
    version = registry.add("animals.engine", name="animals", figures={"map50": 0.657}, licence="Apache-2.0")
    registry.promote("animals", version.version, why="0.6 points more than version 2")
    engine = load_engine(registry.file(registry.get("animals", stage="production")))
"""

from .comparison import Comparison, TensorChange
from .history import Change, History, Stage
from .integrity import Problem, RegistryCheck
from .lineage import Lineage
from .manifest import ModelVersion, StoredFile
from .reference import Reference
from .registry import ModelRegistry, default_folder

__all__ = [
    "Change",
    "Comparison",
    "History",
    "Lineage",
    "ModelRegistry",
    "ModelVersion",
    "Problem",
    "Reference",
    "RegistryCheck",
    "Stage",
    "StoredFile",
    "TensorChange",
    "default_folder",
]
