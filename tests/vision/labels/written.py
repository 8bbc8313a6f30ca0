"""One set of photos with labels, written in every format that is read."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mlops.shards.photos import photo

SIZE = (40, 20)
CLASSES = ("cat", "dog", "person")
BOXES = {
    "a": [("dog", 0, 0, 10, 10), ("cat", 4, 5, 40, 20)],
    "b": [],
    "c": [("person", 8, 2, 16, 12)],
}
"""Class and corners in pixels, from 0 on."""
EXPECTED = {
    "a": [[1, 0.125, 0.25, 0.25, 0.5], [0, 0.55, 0.625, 0.9, 0.75]],
    "b": [],
    "c": [[2, 0.3, 0.35, 0.2, 0.5]],
}
"""The same as rows of class, centre and size, in shares."""


def photos(folder: Path, place: str) -> None:
    """The photos."""
    (folder / place).mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(BOXES):
        (folder / place / f"{name}.jpg").write_bytes(photo(number, SIZE))


def voc_xml(name: str, boxes, size=SIZE, more: str = "") -> str:
    """The XML of a photo; its first pixel is 1."""
    objects = "".join(
        f"<object><name>{label}</name><pose>Left</pose><difficult>0</difficult><bndbox><xmax>{x2}</xmax><xmin>{x1 + 1}</xmin>"
        f"<ymin>{y1 + 1}</ymin><ymax>{y2}</ymax></bndbox><part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin>"
        f"<xmax>2</xmax><ymax>2</ymax></bndbox></part></object>"
        for label, x1, y1, x2, y2 in boxes
    )
    width, height = size
    return (
        f"<annotation><folder>VOC</folder><filename>{name}.jpg</filename><size><width>{width}</width>"
        f"<height>{height}</height><depth>3</depth></size>{objects}{more}</annotation>"
    )


def write_voc(folder: Path) -> Path:
    """Annotations/ and JPEGImages/."""
    photos(folder, "JPEGImages")
    (folder / "Annotations").mkdir()
    for name, boxes in BOXES.items():
        (folder / "Annotations" / f"{name}.xml").write_text(voc_xml(name, boxes))
    return folder


def coco_facts() -> dict:
    """COCO's lists; the numbers of categories have gaps, and CVAT's own keys are there."""
    ids = {"cat": 3, "dog": 17, "person": 90}
    images = [
        {"id": 10 + i, "file_name": f"{name}.jpg", "width": SIZE[0], "height": SIZE[1], "license": 0}
        for i, name in enumerate(BOXES)
    ]
    annotations = [
        {
            "id": 100 * i + j, "image_id": 10 + i, "category_id": ids[label], "bbox": [x1, y1, x2 - x1, y2 - y1], "iscrowd": 0,
            "area": (x2 - x1) * (y2 - y1), "segmentation": [], "attributes": {"occluded": False, "rotation": 0.0},
        }
        for i, boxes in enumerate(BOXES.values()) for j, (label, x1, y1, x2, y2) in enumerate(boxes)
    ]  # fmt: skip
    categories = [{"id": number, "name": name, "supercategory": ""} for name, number in reversed(ids.items())]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


def write_coco(folder: Path) -> Path:
    """images/default/ and annotations/instances_default.json, as CVAT exports them."""
    photos(folder, "images/default")
    (folder / "annotations").mkdir()
    (folder / "annotations" / "instances_default.json").write_text(json.dumps(coco_facts()))
    return folder


def write_darknet(folder: Path) -> Path:
    """images/, labels/ and classes.txt."""
    photos(folder, "images")
    (folder / "labels").mkdir()
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    for name, rows in EXPECTED.items():
        (folder / "labels" / f"{name}.txt").write_text("".join(f"{' '.join(map(str, row))}\n" for row in rows))
    return folder


def cvat_xml(boxes=BOXES, more: str = "", meta: str = "") -> str:
    """CVAT's XML, with labels in an order of its own."""
    labels = "".join(f"<label><name>{name}</name><color>#fff</color><type>any</type></label>" for name in CLASSES)
    images = "".join(
        f'<image id="{i}" name="{name}.jpg" width="{SIZE[0]}" height="{SIZE[1]}">'
        + "".join(
            f'<box label="{label}" source="manual" occluded="0" xtl="{x1}.00" ytl="{y1}.00" xbr="{x2}.00" ybr="{y2}.00" '
            f'z_order="0"><attribute name="age">1</attribute></box>'
            for label, x1, y1, x2, y2 in rows
        )
        + "</image>"
        for i, (name, rows) in enumerate(boxes.items())
    )
    return (
        f'<?xml version="1.0" encoding="utf-8"?><annotations><version>1.1</version><meta><task><id>1</id><labels>{labels}'
        f"</labels>{meta}</task></meta>{images}{more}</annotations>"
    )


def write_cvat(folder: Path) -> Path:
    """annotations.xml and images/."""
    photos(folder, "images")
    (folder / "annotations.xml").write_text(cvat_xml())
    return folder


WRITERS = {"voc": write_voc, "coco": write_coco, "darknet": write_darknet, "cvat": write_cvat}
