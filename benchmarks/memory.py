"""Resident memory by Linux's /proc: what a process holds, and the most that it held since a moment."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any


def forget_peak() -> int:
    """Give freed memory back, reset the high-water mark, and return the bytes that are resident now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else the next work would reuse freed memory unseen
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


def resident(field: str) -> int:
    """Return a field of this process's status, in bytes: VmRSS is resident now, VmHWM the most since the mark."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise ValueError(f"/proc/self/status must have {field}, as on Linux, got none: memory is measured there alone.")
    return int(found[1]) * 1024


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process that did nothing yet."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *arguments).result()
