"""End with one's parent: for processes that have no purpose once it is dead.

Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>


def end_with(parent: int) -> None:
    """Have the kernel kill this process as soon as ``parent``, its parent, is dead.

    Linux alone has that; elsewhere whoever started both looks after them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before this could be asked for
            os.kill(os.getpid(), signal.SIGKILL)
