"""Small networks of darknet for TensorRT for RTX, with a residual, a depthwise convolution, branches, and fully connected layers."""

from pathlib import Path

MODELS = Path(__file__).parents[3] / "samples" / "models"
HEAD = "[net]\nwidth=32\nheight=32\nchannels=3\n"
NETWORKS = {
    "residual": """
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky
        [convolutional] filters=32 size=1 stride=1 batch_normalize=1 activation=linear
        [shortcut] from=-3 activation=leaky
        [convolutional] filters=16 size=3 stride=2 pad=1 activation=leaky
        [convolutional] filters=8 size=1 stride=1 activation=linear""",
    "residual behind a pool": """
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky
        [maxpool] size=2 stride=2
        [convolutional] filters=32 size=1 stride=1 batch_normalize=1 activation=leaky
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=linear
        [shortcut] from=-3 activation=leaky
        [convolutional] filters=8 size=1 stride=1 activation=linear""",
    "partial residual behind a pool": """
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky
        [maxpool] size=2 stride=2
        [convolutional] filters=32 size=1 stride=1 batch_normalize=1 activation=leaky
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky
        [convolutional] filters=64 size=1 stride=1 batch_normalize=1 activation=linear
        [shortcut] from=-4 activation=leaky
        [convolutional] filters=32 size=1 stride=1 batch_normalize=1 activation=leaky
        [convolutional] filters=8 size=1 stride=1 activation=linear""",
    "depthwise": """
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=relu
        [convolutional] filters=32 groups=32 size=3 stride=1 pad=1 batch_normalize=1 activation=relu
        [convolutional] filters=64 size=1 stride=1 batch_normalize=1 activation=relu
        [convolutional] filters=8 size=1 stride=1 activation=linear""",
    "branches": """
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky
        [maxpool] size=2 stride=2
        [convolutional] filters=32 size=3 stride=1 pad=1 batch_normalize=1 activation=leaky
        [route] layers=-1,-2
        [convolutional] filters=32 size=1 stride=1 batch_normalize=1 activation=leaky
        [reorg] stride=2
        [convolutional] filters=16 size=1 stride=1 activation=leaky
        [upsample] stride=2
        [convolutional] filters=8 size=1 stride=1 activation=linear""",
    "connected": """
        [convolutional] filters=16 size=3 stride=1 pad=1 activation=relu
        [maxpool] size=2 stride=2
        [connected] output=64 activation=relu
        [connected] output=32 activation=relu
        [connected] output=8 activation=linear""",
}


def path_of(name, folder):
    if name not in NETWORKS:
        return MODELS / f"{name}.cfg"
    lines = [line.strip().replace("] ", "]\n").replace(" ", "\n") for line in NETWORKS[name].strip().splitlines()]
    path = folder / f"{name.replace(' ', '-')}.cfg"
    path.write_text(HEAD + "\n".join(lines) + "\n")
    return path
