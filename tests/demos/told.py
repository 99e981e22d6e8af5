"""What a demo on real ranks would tell, had one of them reported something else."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from types import ModuleType

import pytest

from runnable_demos.lab import ranks


@cache
def reports(demo: ModuleType) -> list[ranks.Report]:
    """What real ranks report at the small size."""
    config = demo.PRESETS["small"]
    return ranks.launch(demo.__name__, config.ranks, asdict(config))


def told(demo: ModuleType, change: Callable[[ranks.Report], None]) -> dict[str, object]:
    """The metrics by name, had the last rank reported something else."""
    altered = deepcopy(reports(demo))
    change(altered[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "launch", lambda *_: altered)
        result = demo.run(demo.PRESETS["small"], lambda share, what: None)
    return {m.name: m.value for m in result.metrics}
