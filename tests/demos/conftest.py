"""Settings for all tests of demos: one made before anything imports Triton, and ranks started once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

# Triton reads it once, at its import, and other libraries import Triton too.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def ranks_start_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All processes of a session share what ranks report."""
    from tests.demos import launches  # noqa: PLC0415 - after the settings above

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "launches"
    folder.mkdir(exist_ok=True)
    with launches.shared(folder):
        yield
