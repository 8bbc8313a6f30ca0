"""PyTorch, without which tests of training are skipped; the samples are on the path."""

import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "samples"
sys.path.insert(0, str(SAMPLES))
torch = pytest.importorskip("torch", reason='training needs torch (pip install "pytrtplugins[train]")')
WITHOUT_RANKS = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
