import errno
import os

import pytest

from st_extras.files import whole_file


def test_the_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "numbers.txt"
    with whole_file(path) as partial:
        partial.write_text("1 2")
        assert not path.exists()
    assert path.read_text() == "1 2"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_earlier_file_and_leaves_nothing_behind(tmp_path, error):
    path = tmp_path / "numbers.txt"
    path.write_text("earlier")

    def fail() -> None:
        with whole_file(path) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "numbers.txt"):
        pass
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_disk_names_the_file(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as error, whole_file(tmp_path / "n.txt") as partial:
        partial.write_text("half")
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path / "n.txt"))
