"""One setting for all tests of demos, made before anything imports Triton."""

from __future__ import annotations

import os

import torch

# Triton reads it once, at its import, and other libraries import Triton too.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
torch.set_num_threads(1)
