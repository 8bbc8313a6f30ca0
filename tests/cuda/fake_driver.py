"""A driver without a GPU: it notes the calls, and answers as CUDA does."""

from types import SimpleNamespace


class Code(int):
    """A result, with its name as NVIDIA's bindings give it."""

    @property
    def name(self):
        return "CUDA_ERROR_INVALID_VALUE" if self else "CUDA_SUCCESS"


class FakeDriver:
    """What `Driver` takes.

    Args:
        fails: Functions that give an error.
        types: Where CUDA's types come from: ``cuda.bindings.driver``, which has them without a GPU too.

    Attributes:
        calls: Each call: the function's name and its arguments.
        current: The thread's context.
    """

    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED=14
    )

    def __init__(self, fails=(), types=None):
        self.fails, self.types, self.calls, self.current = set(fails), types, [], 7

    def __getattr__(self, name):
        if not name.startswith("cu") or name.startswith("cuuint"):
            return getattr(self.types, name)

        def call(*arguments):
            self.calls.append((name, *arguments))
            gives = {
                "cuCtxGetCurrent": self.current,
                "cuGetErrorString": b"invalid argument",
                "cuOccupancyMaxActiveClusters": 3,
            }
            made = name in ("cuModuleLoadData", "cuModuleGetFunction")
            values = [len(self.calls)] if made else [gives[name]] if name in gives else []
            return (Code(name in self.fails), *values)

        return call

    def called(self, *names):
        """The calls of some functions, in order."""
        return [call for call in self.calls if call[0] in names]
