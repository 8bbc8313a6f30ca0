"""A model with a kernel that may end its GPU's context, for test_gpu.py."""

from __future__ import annotations

from typing import ClassVar

import pytrtplugins as ptp
from pytrtplugins.serving import Model
from tests.onnx_parts import info, model

REACH = """
__global__ void reach(const float* x, float* y, int total) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const float* from = x[i] < 0 ? (const float*)16 : x + i;
    y[i] = 2 * *from;
}
"""


@ptp.plugin(namespace="serving.tests")
class Reach(ptp.Plugin):
    """Doubles; for a negative value it reads at an address that nobody has."""

    kernel: ClassVar[ptp.CudaKernel] = ptp.CudaKernel.from_source(REACH, "reach")

    def output_dims(self, x):
        return x

    def compute(self, x):
        return 2 * x

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        self.kernel.launch(x, y, x.size, threads=x.size, stream=stream)


class Reaching(Model):
    """The plugin alone as a network, on engine `cuda`."""

    def load(self, device):
        node = Reach().as_node(["x"], ["y"])
        network = model(node, inputs=[info("x", ("N", 2))], outputs=())
        network.graph.output.append(info("y", ("N", 2)))
        network.opset_import.add(domain=node.domain, version=1)
        self.engine = ptp.build(network, engine="cuda", device=device, progress=False)
        self.context = self.engine.create_context()

    def predict(self, batch):
        return self.context.run_async(batch)
