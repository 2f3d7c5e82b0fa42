"""Ways to change the bytes of a file, as hypothesis strategies."""

import bz2
import gzip
import lzma
from collections.abc import Callable

from hypothesis import strategies as st

MOST = 10**6  # bytes in a line
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": bytes,
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "no last newline": lambda data: data.rstrip(b"\n"),
}
"""Changes that change nothing of what is read."""
WHOLE: dict[str, Callable[[bytes], bytes]] = {
    "UTF-16": lambda data: data.decode("utf8").encode("utf-16"),
    "UTF-16 without a mark": lambda data: data.decode("utf8").encode("utf-16-le"),
    "Latin-1": lambda data: data.decode("utf8").encode("latin-1", "replace"),
    "empty": lambda data: b"",
    "spaces": lambda data: b"  \n \t\n",
    "blank lines": lambda data: data + b"\n\n",
    "a long line": lambda data: data + b"a" * (MOST + 10) + b"\n",
    "zip": lambda data: b"PK\x03\x04\x14\x00" + data,
    "reversed": lambda data: b"\n".join(data.split(b"\n")[::-1]),
}  # fmt: skip
PIECES = (
    b",more", b"\tmore", b'"', b"'", b"\n", b"\r", b"\0", b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\x07", b"\x0b", b"\x85",
    b"NaN", b"-1", b"1e999", b"9" * 30, b"{", b"}", b"[", b"null", b"true",
)  # fmt: skip


@st.composite
def spliced(draw: st.DrawFn, data: bytes) -> bytes:
    """Data with one to three places cut off, overwritten or inserted at."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=3))
        data = data[:at] + piece + data[at + draw(st.sampled_from([0, 0, 1, len(piece), len(data)])) :]
    return data


def changed(data: bytes) -> st.SearchStrategy[tuple[str, bytes]]:
    """The name of a change, and the changed data."""
    named = {name: change(data) for name, change in (HARMLESS | WHOLE).items()}
    return st.sampled_from(sorted(named.items())) | spliced(data).map(lambda other: ("spliced", other))
