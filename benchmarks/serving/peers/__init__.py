"""Other servers with the same trivial model, each in an environment of its own."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..load import Exchange
from ..servers import Command, post

APPS = Path(__file__).parent / "apps"


@dataclass(frozen=True)
class Peer:
    """Another server.

    Attributes:
        name: In tables.
        folder: Of its environment, below the folder of all.
        packages: That pip installs there; the first is the server, whose version tables show.
        arguments: Start it, for its environment and a port.
        form: What its requests and answers look like: ``bytes``, ``v2`` (bytes, as Triton takes them), ``v2 json`` or ``json``.
        address: Where requests go.
        raw: Whether it is asked with 519,168 bytes too: only where these need not become JSON.
        without_dependencies: Packages that are installed alone.
    """

    name: str
    folder: str
    packages: Sequence[str]
    arguments: Callable[[Path, int], Sequence[object]]
    form: str = "bytes"
    address: str = "/infer"
    raw: bool = True
    without_dependencies: Sequence[str] = ()

    def version(self, peers: Path) -> str | None:
        """Of the server that is installed; None where it is not."""
        package = (*self.without_dependencies, *self.packages)[0].partition("[")[0].replace("-", "_")
        for path in sorted((peers / self.folder).glob(f"lib/python*/site-packages/{package}-*.dist-info")):
            return path.name.removesuffix(".dist-info").partition("-")[2]
        return None

    def command(self, peers: Path) -> Command:
        """How it is started from the folder of all environments."""
        home = (peers / self.folder).resolve()
        environment = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "PYTHONPATH": ""}
        libraries = next(home.glob("lib/python*/site-packages/nvidia_pytriton.libs"), None)
        if libraries is not None:
            environment["LD_LIBRARY_PATH"] = str(libraries)
        return Command(self.name, lambda port: [*map(str, self.arguments(home, port))], environment, APPS)

    def exchange(self, body: bytes, values: Sequence[float]) -> Exchange:
        """A request with a body of 64 or 519,168 bytes; what is answered is not said."""
        name = "tiny" if len(body) == 64 else "raw"
        if self.form == "v2":
            return Exchange(post(f"/v2/models/{name}/infer", body, Inference_Header_Content_Length=0))
        if self.form == "bytes":
            return Exchange(post(self.address, body, Content_Type="application/octet-stream"))
        said: dict[str, object] = {"x": list(values)}
        if self.form == "v2 json":
            tensor = {"name": "x", "shape": [1, len(values)], "datatype": "FP32", "data": list(values)}
            said = {"id": "1", "inputs": [tensor]}
        return Exchange(post(self.address, json.dumps(said).encode(), Content_Type="application/json"))

    def result(self, answer: bytes) -> float:
        """The sum that an answer says."""
        if self.form in ("bytes", "v2"):
            return float(struct.unpack("<f", answer[-4:])[0])
        found = json.loads(answer)
        return float(found["outputs"][0]["data"][0] if self.form == "v2 json" else found["y"])


def _python(*arguments: object) -> Callable[[Path, int], Sequence[object]]:
    return lambda home, port: [home / "bin" / "python", *(port if each is PORT else each for each in arguments)]


PORT = object()
_UVICORN = ("numpy", "httptools", "uvloop")
PEERS = (
    Peer("Triton's core, Python backend", "triton", ("numpy<2",), _python("triton.py", PORT), "v2",
         without_dependencies=("nvidia-pytriton",)),
    Peer("mosec", "mosec", ("mosec", "numpy"), _python("mosec_app.py", "--port", PORT), address="/inference"),
    Peer("granian, bare ASGI", "granian", ("granian", "numpy", "uvloop"),
         _python("-m", "granian", "--interface", "asgi", "--no-ws", "--port", PORT, "asgi_app:app")),
    Peer("uvicorn, bare ASGI", "asgi", ("uvicorn", *_UVICORN),
         _python("-m", "uvicorn", "--no-access-log", "--port", PORT, "asgi_app:app")),
    Peer("FastAPI", "fastapi", ("fastapi", "uvicorn", *_UVICORN),
         _python("-m", "uvicorn", "--no-access-log", "--port", PORT, "fastapi_app:app")),
    Peer("Flask, one process", "flask", ("flask", "numpy"), _python("flask_app.py", PORT)),
    Peer("MLServer", "mlserver", ("mlserver",), _python("mlserver_app.py", PORT), "v2 json", "/v2/models/tiny/infer",
         raw=False),
    Peer("LitServe", "litserve", ("litserve", "numpy"), _python("litserve_app.py", PORT), "json", "/predict", raw=False),
    Peer("BentoML", "bentoml", ("bentoml", "numpy"),
         _python("-m", "bentoml", "serve", "bentoml_app:Sum", "--port", PORT), "json", "/infer", raw=False),
    Peer("Ray Serve", "ray", ("ray[serve]", "numpy"), _python("ray_app.py", PORT)),
)  # fmt: skip
"""In the order of tables."""
