"""Commands whose work is done by stubs, and what several commands read."""

import importlib
import re
from pathlib import Path

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.vision import load_image, save_image

CFG = Path(__file__).parents[2] / "samples" / "models" / "yolov2-animals.cfg"


@pytest.fixture
def asked(monkeypatch):
    """Stubs: ``asked(where, name, answer)`` puts one there; it gives the calls, as positional arguments and options.

    Without an answer the command ends at it.
    """

    def put(where, name, *answer):
        calls = []

        def stub(*given, **options):
            calls.append((given, options))
            if not answer:
                raise UsageError("enough")
            return answer[0]

        monkeypatch.setattr(where, name, stub)
        return calls

    for name in ("calibrate", "check", "evaluate", "export", "precision", "run"):
        setattr(put, name, importlib.import_module(f"pytrtplugins.cli.{name}"))
    return put


@pytest.fixture
def small_cfg(tmp_path):
    """The sample's network on images of a quarter of the size."""
    text, count = re.subn(r"(?m)^(width|height)=416$", r"\1=224", CFG.read_text())
    assert count == 2
    (tmp_path / "small.cfg").write_text(text)
    for suffix in (".weights", ".names"):
        (tmp_path / f"small{suffix}").symlink_to(CFG.with_suffix(suffix))
    return tmp_path / "small.cfg"


@pytest.fixture
def labelled(images, tmp_path):
    """The images as a data set."""
    data = tmp_path / "set"
    (data / "labels").mkdir(parents=True)
    images.rename(data / "images")
    (data / "labels" / "chelsea.txt").write_text("0 0.5 0.5 1 1\n")
    (data / "labels" / "astronaut.txt").write_text("1 0.4 0.5 0.8 1\n")
    (data / "classes.txt").write_text("cat\nperson\n")
    (data / "val.txt").write_text("images/chelsea.png\nimages/astronaut.png\n")
    return data


@pytest.fixture
def images(tmp_path):
    source = Path(pytest.importorskip("skimage").__file__).parent / "data"
    (tmp_path / "photos").mkdir()
    for name in ("chelsea", "astronaut"):
        save_image(load_image(source / f"{name}.png")[::2, ::2], tmp_path / "photos" / f"{name}.png")
    return tmp_path / "photos"
