"""Plugins as users write them, which an export must refuse."""

import numpy as np

import pytrtplugins as ptp
from tests import user_plugins

from .layers import Scale


@ptp.plugin(namespace="test.export")
class NonZero(user_plugins.NonZero):
    kernel = Scale.kernel

    def enqueue(self, inputs, outputs, workspace, stream):
        pass


class _Same(ptp.Plugin):
    """Base of those that enqueue wrongly."""

    kernel = Scale.kernel

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x.copy()

    def _launch(self, x, y, factor=1.0):
        self.kernel.launch(x, y, x.size, factor, False, threads=x.size)


@ptp.plugin(namespace="test.export")
class BranchesOnValues(_Same):
    """Reads a value of its input."""

    def enqueue(self, inputs, outputs, workspace, stream):
        if inputs[0].max() > 0:
            self._launch(inputs[0], outputs[0])


@ptp.plugin(namespace="test.export")
class CallsNumpy(_Same):
    """Computes with NumPy."""

    def enqueue(self, inputs, outputs, workspace, stream):
        np.multiply(inputs[0], 2, out=outputs[0])


@ptp.plugin(namespace="test.export")
class AssignsElements(_Same):
    """Writes through Python."""

    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = 0


@ptp.plugin(namespace="test.export")
class WaitsForTheStream(_Same):
    """Uses the stream itself."""

    def enqueue(self, inputs, outputs, workspace, stream):
        self._launch(inputs[0], outputs[0])
        stream.synchronize()


@ptp.plugin(namespace="test.export")
class CountsCalls(_Same):
    """Does something else each time."""

    _calls = 0

    def enqueue(self, inputs, outputs, workspace, stream):
        self._calls += 1
        self._launch(inputs[0], outputs[0], float(self._calls))


@ptp.plugin(namespace="test.export")
class UsesTheClock(_Same):
    """Asks something else in each run."""

    answers = iter(range(10**6))

    def enqueue(self, inputs, outputs, workspace, stream):
        faster = inputs[0].size > next(self.answers)
        self._launch(inputs[0], outputs[0], 2.0 if faster else 1.0)


@ptp.plugin(namespace="test.export")
class ForgetsAnOutput(_Same):
    """Writes one output of two."""

    def output_dims(self, x):
        return x, x

    def compute(self, x):
        return x.copy(), x.copy()

    def enqueue(self, inputs, outputs, workspace, stream):
        self._launch(inputs[0], outputs[1])


@ptp.plugin(namespace="test.export")
class WrongArgument(_Same):
    """Gives a kernel too little."""

    def enqueue(self, inputs, outputs, workspace, stream):
        self.kernel.launch(inputs[0], outputs[0], threads=1)


@ptp.plugin(namespace="test.export")
class ReadsAScale(_Same):
    """Makes a float of Python of int8's scale, which is known only at run time."""

    int8 = "requantize"

    def enqueue(self, inputs, outputs, workspace, stream):
        self._launch(inputs[0], outputs[0], self._scale)

    def configure(self, inputs, outputs):
        self._scale = float(inputs[0].scale or 1)


@ptp.plugin(namespace="test.export")
class OnlyComputes(ptp.Plugin):
    """Has no kernel."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x.copy()


@ptp.plugin(namespace="test.export")
class AnyNumber(ptp.Plugin):
    """Any number of inputs."""

    def output_dims(self, *inputs):
        return inputs[0]

    def compute(self, *inputs):
        return sum(inputs)

    def enqueue(self, inputs, outputs, workspace, stream):
        Scale.kernel.launch(inputs[0], outputs[0], 1, 1.0, False, threads=1)
