"""A classifier of images, behind KServe's Python package: python kserve_before.py."""

import base64

import cv2
import numpy as np
import onnxruntime
from kserve import Model, ModelServer

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

    def __init__(self):
        super().__init__("classifier")
        self.load()

    def load(self):
        """Open the model."""
        self.session = onnxruntime.InferenceSession("classifier.onnx")
        self.ready = True

    async def preprocess(self, payload, headers=None):
        """Read the images of a request."""
        images = [read_image(base64.b64decode(each["b64"])) for each in payload["instances"]]
        return {"data": np.concatenate(images)}

    async def predict(self, payload, headers=None, response_headers=None):
        """Compute the scores of one request."""
        return {"scores": self.session.run(["scores"], payload)[0]}

    async def postprocess(self, result, headers=None, response_headers=None):
        """Answer one request."""
        return {"predictions": [best_class(row) for row in result["scores"]]}


if __name__ == "__main__":
    ModelServer(http_port=8000).start([Classifier()])
