"""A classifier of images, behind pytrt: pytrt serve kserve_after.py:Classifier."""

import base64
import json

import cv2
import numpy as np

import pytrtplugins as ptp
from pytrtplugins.serving import Model

LABELS = ["cat", "dog", "horse"]


def read_image(file):
    """Decode and scale an image; None if it is none."""
    image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        return None
    image = cv2.cvtColor(cv2.resize(image, (32, 32)), cv2.COLOR_BGR2RGB)
    return image.transpose(2, 0, 1)[None].astype(np.float32) / 255


def best_class(scores):
    """Name the best class."""
    best = int(scores.argmax())
    return {"label": LABELS[best], "score": float(scores[best])}


class Classifier(Model):
    """Answer with the best class of each image."""

    def load(self, device):
        """Build the model where the engine is."""
        self.engine = ptp.build("classifier.onnx")
        self.context = self.engine.create_context()

    def preprocess(self, request):
        """Read the images of a request."""
        payload = json.loads(request.body)
        images = [read_image(base64.b64decode(each["b64"])) for each in payload["instances"]]
        return {"data": np.concatenate(images)}

    def predict(self, batch):
        """Compute the scores of all images that wait, together."""
        return self.context.run(batch)

    def postprocess(self, outputs, request):
        """Answer one request."""
        return {"predictions": [best_class(row) for row in outputs["scores"]]}
