"""Hyperparameters of a run, in one frozen record; each task adds its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.numbers import SHARE, FloatRange, IntList, IntRange

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Recipe", "add_recipe", "option"]


def option(default: Any, limits: IntRange | FloatRange | IntList, text: str) -> Any:
    """A field of a recipe, which becomes an option of the command line."""
    return field(default=default, metadata={"help": text, "limits": limits})


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a run; two runs with equal recipes and data follow the same schedule.

    The schedule is counted in steps and never in seconds, so a run that is stopped and resumed ends where an
    uninterrupted one ends.
    """

    steps: int = option(90_000, IntRange(1, 100_000_000), "optimizer steps of the whole schedule")
    batch: int = option(64, IntRange(1, 65_536), "images a step, of all ranks together")
    learning_rate: float = option(
        2e-3, FloatRange(1e-9, 100), "peak; warmed up over the first 3 %%, then a cosine to 1 %%"
    )
    weight_decay: float = option(0.0, FloatRange(0, 100), "decay of weights (not of biases and norms)")
    ema: float = option(0.9995, SHARE, "decay of the averaged weights, which are evaluated and exported")
    smoothing: float = option(0.0, SHARE, "label smoothing of the class loss")
    seed: int = option(
        0, IntRange(0, (1 << 32) - 1), "of weights, augmentation and sampling; step n draws from (seed, n)"
    )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build the recipe from a checkpoint's or command line's values; lists become tuples."""
        names = {f.name for f in fields(cls)}
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in names})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint that is read without unpickling objects."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def check(self, ranks: int, accumulate: int) -> None:
        """Compare the numbers with each other.

        Raises:
            UsageError: the batch cannot be split.
        """
        if self.batch % (ranks * accumulate):
            raise UsageError(
                f"--batch {self.batch}: {ranks} rank{'s' * (ranks > 1)} with --accumulate {accumulate} cannot split it equally.\n"
                f"Do: give a multiple of {ranks * accumulate}"
            )


def add_recipe(group: Any, recipe: type[Recipe]) -> None:
    """Add an option for each field of a recipe to a group of a parser."""
    for item in fields(recipe):
        many = isinstance(item.default, tuple)
        shown = ",".join(map(str, item.default)) if many else item.default
        group.add_argument(
            f"--{item.name.replace('_', '-')}",
            type=item.metadata["limits"],
            default=item.default,
            metavar="N,N,..." if many else "N",
            help=f"{item.metadata['help']} ({shown})",
        )
