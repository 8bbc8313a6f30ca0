"""The command ``pytrt download``: models that this project publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..models import fetch_model, find_model, published_models
from .app import app
from .facts import Downloaded, Offered, Offers, WrittenFile
from .shared import tables
from .shared.option import argument, option
from .shared.results import Result

__all__ = ["command"]


@app.command("download")  # type: ignore[untyped-decorator]
def command(
    name: Annotated[str | None, argument("[NAME]", "The model; without it, all models are listed.")] = None,
    output: Annotated[
        Path | None, option("DIR", "Write the files into this folder; default: the user's cache.", "--output", "-o")
    ] = None,
    url: Annotated[
        str | None,
        option(
            "URL",
            "URL of the files: a mirror, or a folder as file:///…; default: PYTRT_MODELS_URL, or the release page.",
            "--url",
        ),
    ] = None,
) -> Result[Downloaded] | Result[Offers]:
    """Fetch a model that this project publishes, and check its digest; `pytrt run NAME` then finds it.

    If a transfer breaks off, run the command again: it continues where it stopped.

    Examples: pytrt download

    pytrt download yolov2-animals

    pytrt download yolov2-animals --url file:///checkout/samples/models
    """
    if name is None:
        models = published_models()
        return Result(
            Offers(tuple(Offered(models[model_name], _text(find_model(model_name, output))) for model_name in models)),
            tables.print_offers,
        )
    paths = fetch_model(name, output, url=url)
    files = tuple(WrittenFile(str(path), path.stat().st_size) for path in paths)
    return Result(Downloaded(name, str(paths[0]), files), _print)


def _print(downloaded: Downloaded) -> None:
    for file in downloaded.files:
        tables.print_file(file)
    is_cached = find_model(downloaded.name) == Path(downloaded.file)
    print(f"Do: pytrt run {downloaded.name if is_cached else downloaded.file} IMAGE")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
