"""The command ``pytrt serve-key``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ...serving.access.keys import Key, add_key
from ...utils.declared import field_limits
from ..app import app
from ..shared.number import number
from ..shared.option import choice, option, typer
from ..shared.results import Result

__all__ = ["command"]


@dataclass(frozen=True)
class MadeKey:
    """The new key of a client.

    Attributes:
        name: In logs.
        key: For the client; the file has its digest alone.
        file: Where the digest is.
    """

    name: str
    key: str
    file: str


@app.command("serve-key")  # type: ignore[untyped-decorator]
def command(
    name: Annotated[str, typer.Argument(help="Name of the key, for logs.")],
    keys: Annotated[Path, option("FILE", "Keys of clients: the file, which is created if it does not exist.")],
    role: Annotated[
        Literal["infer", "admin"], choice("infer: inference and model metadata; admin: everything.")
    ] = "infer",
    rate: Annotated[float | None, number(field_limits(Key, "rate"), "Requests per second; default: no limit.")] = None,
    burst: Annotated[
        int | None,
        number(field_limits(Key, "burst"), "Burst: requests that may come at once; default: those of one second."),
    ] = None,
    concurrent: Annotated[
        int | None, number(field_limits(Key, "concurrent"), "Concurrent requests; default: no limit.")
    ] = None,
    model: Annotated[
        list[str] | None, option("NAME", "A model that it may use; may be repeated. Default: all.", "--allow-model")
    ] = None,
) -> Result[MadeKey]:
    """Make a key for a client of `pytrt serve --keys`, and print it once: the file has its digest alone.

    A server that runs reads the file anew within a second. To take a key back, remove its table from the file.

    Examples: pytrt serve-key camera-1 --keys keys.toml --rate 50 --allow-model animals

    pytrt serve-key operator --keys keys.toml --role admin
    """
    key_text = add_key(
        str(keys),
        name,
        roles=(role,),
        rate=rate,
        burst=burst,
        concurrent=concurrent,
        models=tuple(model or ()),
    )
    return Result(MadeKey(name, key_text, str(keys)), _print_made)


def _print_made(key: MadeKey) -> None:
    print(key.key)
