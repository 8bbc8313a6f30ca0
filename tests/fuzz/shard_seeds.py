"""Seeds of the corpus for sets of shards and for labels."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.fuzz.shard_targets import INDEX, TAR, sound

__all__ = ["shards"]

_BOX = "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>6</ymax></bndbox></object>"
_VOC = f"<annotation><filename>a.png</filename><size><width>10</width><height>10</height></size>{_BOX}</annotation>"
_CVAT = """<?xml version="1.0" encoding="utf-8"?><annotations><version>1.1</version>
<meta><task><labels><label><name>cat</name></label></labels></task></meta>
<image id="0" name="a.png" width="10" height="8"><box label="cat" xtl="1.5" ytl="2" xbr="3" ybr="4" rotation="20"/>
<polygon label="cat" points="0,0;1,1;0,1"/></image></annotations>"""


def shards() -> Iterator[tuple[str, bytes | str]]:
    """Files of a sound set, labels of every format, and what was made to be read for long."""
    held = sound()
    yield "shard_manifest/sound", held["shards.json"]
    facts = json.loads(held["shards.json"])
    facts["shards"][0]["file"] = "../x.tar"
    yield "shard_manifest/path", json.dumps(facts)
    yield "shard_index/sound", held[INDEX]
    yield "shard_tar/sound", held[TAR]
    yield (
        "data_yaml/roboflow",
        "train: ../train/images\nval: ../valid/images\nnc: 2\nnames: ['cat', 'dog']\nroboflow:\n  version: 3\n",
    )
    yield (
        "data_yaml/ultralytics",
        "path: .\ntrain: [train/images, list.txt]\nval: valid/images/b.png\nnames:\n  0: cat\n  1: dog\n",
    )
    yield "data_yaml/outside", "path: ../../..\ntrain: /\nval: ../..\nnames: [cat]\n"
    yield "data_yaml/numbers", "names: {0: no, 99999999999999999999: 010}\n"
    yield "voc_labels/box", _VOC
    yield "voc_labels/deep", "<annotation>" + "<a>" * 2000
    yield (
        "voc_labels/bomb",
        '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;">]><annotation>&y;</annotation>',
    )
    yield "voc_labels/file", '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation>&x;</annotation>'
    yield "cvat_labels/shapes", _CVAT
    image = {"id": 1, "file_name": "a.png", "width": 10, "height": 8}
    box = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3.5, 4], "iscrowd": 0}
    lists = {"images": [image], "annotations": [box], "categories": [{"id": 3, "name": "cat"}]}
    yield "coco_labels/box", json.dumps(lists)
    yield "coco_labels/ids", json.dumps({**lists, "images": [{**image, "id": [1]}, {**image, "id": True}]})
    yield "coco_labels/categories", json.dumps({**lists, "categories": [{"id": [1], "name": "cat"}]})
    yield "darknet_labels/boxes", "0 0.5 0.5 0.25 0.5\n1 .1 .2 1e-1 0.2\n"
    yield "darknet_labels/classes", "ccat\n\ndog\n"
