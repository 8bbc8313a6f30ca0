"""Notebooks of docs/ as pages of the site: each is executed, and shown with what its cells print and draw.

In git they have no outputs, so a page shows what this version of the package does; a cell that fails ends the build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

SECONDS = 120  # for one cell


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and keep the notebook itself to be downloaded."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = _page(Path(file.abs_src_path or ""))
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def _page(path: Path) -> str:
    """The cells of a notebook, executed beside it as Jupyter would, in Markdown."""
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, timeout=SECONDS, resources=place, extra_arguments=["--log-level=ERROR"]).execute()
    title, *cells = notebook.cells
    download = f"[Download this notebook]({path.name})"
    return "\n\n".join([title.source, download, *(part for cell in cells for part in _parts(cell))]) + "\n"


def _parts(cell: Any) -> list[str]:
    if cell.cell_type == "markdown":
        return [cell.source]
    return [f"```python\n{cell.source}\n```", *(shown for output in cell.outputs if (shown := _shown(output)))]


def _shown(output: Any) -> str:
    """The richest form of an output that a page can show; nothing of what libraries write to the standard error."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```" if output.name == "stdout" else ""
    if "text/html" in output.data:
        return f"<div>{' '.join(output.data['text/html'].split())}</div>"
    if "image/png" in output.data:
        return f'<img alt="figure" src="data:image/png;base64,{output.data["image/png"].strip()}"/>'
    return f"```text\n{output.data['text/plain']}\n```"
