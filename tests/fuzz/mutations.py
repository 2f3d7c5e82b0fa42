"""Ways to change the bytes of a text file."""

import gzip
import random
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]
MOST = 2**20  # bytes in a line


def _cut(data: bytes, generator: random.Random) -> bytes:
    return data[: generator.randrange(1, len(data))]


def _flip(data: bytes, generator: random.Random) -> bytes:
    place = generator.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << generator.randrange(8))]) + data[place + 1 :]


def _insert(*pieces: bytes) -> Mutation:
    def mutate(data: bytes, generator: random.Random) -> bytes:
        place = generator.randrange(len(data) + 1)
        return data[:place] + generator.choice(pieces) + data[place:]

    return mutate


def _encoded(encoding: str) -> Mutation:
    return lambda data, generator: data.decode("utf8").encode(encoding, errors="replace")


def _shuffled(data: bytes, generator: random.Random) -> bytes:
    lines = data.split(b"\n")
    generator.shuffle(lines)
    return b"\n".join(lines)


MUTATIONS: dict[str, Mutation] = {
    "nothing": lambda data, generator: data,
    "upper case": lambda data, generator: data,  # of the file's name
    "zip": lambda data, generator: b"PK\x03\x04\x14\x00" + data,
    "bom": lambda data, generator: b"\xef\xbb\xbf" + data,
    "crlf": lambda data, generator: data.replace(b"\n", b"\r\n"),
    "lone cr": lambda data, generator: data.replace(b"\n", b"\r"),
    "no last newline": lambda data, generator: data.rstrip(b"\n"),
    "blank lines": lambda data, generator: data + b"\n\n",
    "cut": _cut,
    "flip": _flip,
    "flip twice": lambda data, generator: _flip(_flip(data, generator), generator),
    "nul": _insert(b"\0"),
    "field": _insert(b",more", b"\tmore"),
    "quote": _insert(b'"', b"'"),
    "not utf8": _insert(b"\xff", b"\xc3(", b"\xed\xa0\x80"),
    "control": _insert(b"\x07", b"\x1b[0m", b"\x0b", b"\x85"),
    "number": _insert(b"NaN", b"-1", b"1e999", b"9" * 30),
    "utf16": _encoded("utf-16"),
    "utf16le": _encoded("utf-16-le"),
    "utf16be": _encoded("utf-16-be"),
    "utf32": _encoded("utf-32"),
    "latin1": _encoded("latin-1"),
    "shuffled": _shuffled,
    "empty": lambda data, generator: b"",
    "spaces": lambda data, generator: b"  \n \t\n",
    "long line": lambda data, generator: data + b"a" * (MOST + 10) + b"\n",
    "binary": lambda data, generator: generator.randbytes(200),
}
HARMLESS = ("nothing", "upper case", "bom", "crlf", "lone cr", "no last newline", "gzip")
RANDOM = ("cut", "flip", "flip twice", "field", "quote", "nul", "not utf8", "control", "number")
PACKED: dict[str, Mutation] = {
    "gzip": lambda data, generator: gzip.compress(data),
    "gzip cut": lambda data, generator: _cut(gzip.compress(data), generator),
    "gzip flip": lambda data, generator: _flip(gzip.compress(data), generator),
    "gzip of plain": lambda data, generator: data,
    "gzip surplus": lambda data, generator: gzip.compress(data) + b"surplus",
}
