"""Prevents core files of a process that holds passwords, and access to its memory by its own user.

Two measures are needed, because each leaves a gap: a limit of 0 bytes has no effect where the
kernel pipes core files to a program (core(5), "Piping core dumps to a program"), and a process that
is not dumpable (prctl(2), PR_SET_DUMPABLE) becomes so again in a program that it executes, which
inherits the limit.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import sys

log = logging.getLogger(__name__)
_PR_SET_DUMPABLE = 4  # linux/prctl.h


def forbid_core_files() -> None:
    """Forbid core files from now on. If the kernel refuses, log a warning; nothing else fails."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            kernel = ctypes.CDLL(None, use_errno=True)
            if kernel.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (OSError, ValueError) as error:
        log.warning("core files cannot be forbidden: %s", error)
