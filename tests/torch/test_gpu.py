"""PyTorch's tensors on a GPU: an engine as a module, plugins as operators."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.layers import Region, Reorg
from tests.engines.networks import conv_net, image
from tests.torch.operators import Doubled, SumAndHalf

torch = pytest.importorskip("torch", reason='PyTorch is not installed (pip install "pytrtplugins[torch]")')

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def gpu_of_torch(gpu):
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_an_operator_runs_the_plugins_kernel_on_the_current_stream(dtype):
    reorg = ptp.torch.register(Reorg)
    x = torch.arange(2 * 16 * 8 * 8).remainder(100).reshape(2, 16, 8, 8).to(dtype)
    late, given = x.cuda(), torch.zeros_like(x, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        torch.cuda._sleep(50_000_000)  # cycles
        given.copy_(late)
        y = reorg(given, stride=2) + 0
        torch.cuda.current_stream().synchronize()
    np.testing.assert_array_equal(y.cpu().numpy(), Reorg(stride=2).compute(x.numpy()))


@pytest.mark.parametrize(("plugin", "fields"), [(Region(classes=1), {"classes": 1}), (Doubled(), {})])
def test_operators_with_and_without_a_workspace_give_the_hosts_numbers(plugin, fields):
    operator = ptp.torch.register(type(plugin))
    x = torch.rand(2, 6, 4, 4)
    for _ in range(2):
        found = operator(x.cuda(), **fields).cpu()
        torch.testing.assert_close(found, operator(x, **fields), rtol=1e-5, atol=1e-6)


def test_a_plugin_without_enqueue_computes_on_cupy_arrays():
    operator = ptp.torch.register(SumAndHalf, outputs=2)
    x = torch.rand(2, 4)
    for found, wanted in zip(operator([x.cuda(), x.cuda()]), operator([x, x]), strict=True):
        torch.testing.assert_close(found.cpu(), wanted)


def test_an_operator_of_a_gpu_passes_pytorchs_own_checks():
    operator = ptp.torch.register(Reorg)
    torch.library.opcheck(operator.default, (torch.rand(1, 16, 4, 4, device="cuda"),), {"stride": 2})


def test_a_module_keeps_tensors_on_the_gpu_and_gives_the_bits_of_run():
    engine = ptp.build(conv_net(batch="N"), engine="cuda", settings={"disable": ["tactics"]})
    module = ptp.torch.as_module(engine)
    with engine.create_context() as context:
        for batch in (1, 2):
            x = image(batch)
            wanted = context.run({"data": x})["y"]
            found = module(torch.from_numpy(x).cuda())
            assert found.is_cuda
            np.testing.assert_array_equal(found.cpu().numpy(), wanted)
            np.testing.assert_array_equal(module(torch.from_numpy(x)).numpy(), wanted)
