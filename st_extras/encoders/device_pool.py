"""One pool of processes for many calls of ``encode``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sentence_transformers import SentenceTransformer


@contextmanager
def device_pool(encoder: SentenceTransformer, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the options of ``encode`` with a pool, one process a device, in place of a list of devices.

    The pool is stopped at the end. Other options, and a pool that is given, are passed on as they are.
    """
    options = dict(options)
    devices = options.get("device")
    if not isinstance(devices, list | tuple) or options.get("pool") is not None:
        yield options
        return
    del options["device"]
    pool = encoder.start_multi_process_pool([str(device) for device in devices])
    try:
        yield options | {"pool": pool}
    finally:
        encoder.stop_multi_process_pool(pool)
