"""What is taken from the hub, by a hub of names and answers: what is planned, and the data folder that is written."""

from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub.errors import RepositoryNotFoundError

from benchmarks import hub
from benchmarks.hub import Download
from benchmarks.studies import Mistake
from st_extras.evaluation import load_sts
from tests.helpers import write


def file(name: str, size: int | None, *, cached: bool) -> Any:
    return SimpleNamespace(filename=name, file_size=size, will_download=not cached)


@pytest.fixture
def online(monkeypatch):
    """The hub's files by repository; a repository that is not there raises as the hub does."""
    files: dict[str, list[Any]] = {}
    asked: list[Any] = []

    def snapshot_download(name: str, **given: Any) -> Any:
        asked.append((name, given))
        if name not in files:
            raise RepositoryNotFoundError("404", response=SimpleNamespace(headers={}, request=None))  # type: ignore[arg-type]
        return files[name]

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    return files, asked


def test_a_download_is_in_the_cache_if_all_of_its_files_are(online):
    files, asked = online
    files["all"] = [file("a", 10, cached=True), file("b", None, cached=True)]
    files["part"] = [file("a", 10, cached=True), file("b", 5, cached=False)]
    assert hub.planned_download("all", ["*.json"]) == Download("all", 10, is_cached=True)
    assert hub.planned_download("part", "b", kind="dataset") == Download("part, b", 15, is_cached=False)
    assert asked == [
        ("all", {"repo_type": "model", "allow_patterns": ["*.json"], "dry_run": True}),
        ("part", {"repo_type": "dataset", "allow_patterns": ["b"], "dry_run": True}),
    ]
    with pytest.raises(Mistake, match=r"^'none' must be a dataset on the hub, or a folder, got neither\.$"):
        hub.planned_download("none", "b", kind="dataset")


def test_without_a_network_the_cache_is_asked(tmp_path, monkeypatch):
    held = {"model": tmp_path / "model", "empty": tmp_path / "empty"}
    (held["model"] / "sub").mkdir(parents=True)
    held["empty"].mkdir()
    for name in ("config.json", "sub/config.json", "vocab.txt", "other.bin"):
        (held["model"] / name).write_text("x" * 7)

    def snapshot_download(name: str, *, local_files_only: bool = False, **_: Any) -> str:
        if not local_files_only or name not in held:
            raise OSError("no network")
        return str(held[name])

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert hub.planned_download("model", ["*.json", "*/config.json", "*.txt"]) == Download("model", 21, is_cached=True)
    assert hub.planned_download("model", "vocab.txt") == Download("model, vocab.txt", 7, is_cached=True)
    assert hub.check_encoder("model") == [Download("model", 21, is_cached=True)]
    with pytest.raises(Mistake, match=r"^'none' must be in the cache of the hub if there is no network"):
        hub.planned_download("none", "a")
    with pytest.raises(Mistake, match=r"^'empty' must have a, b in the cache of the hub"):
        hub.planned_download("empty", ["a", "b"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["config.json", "vocab.txt"], None),
        (["modules.json", "part/tokenizer.json"], None),
        (["vocab.txt", "other.json"], r"^guide must be an encoder's folder, with config.json, got '.*' without\.$"),
        (["config.json", "weights.bin"], r"^guide must be an encoder with a tokenizer, got '.*' without"),
    ],
)
def test_a_folder_of_an_encoder_needs_no_download(tmp_path, files, message):
    for name in files:
        write(tmp_path / "mine" / name, "{}")
    if message is None:
        assert hub.check_encoder(str(tmp_path / "mine"), "guide") == []
    else:
        with pytest.raises(Mistake, match=message):
            hub.check_encoder(str(tmp_path / "mine"), "guide")


def test_an_encoder_of_the_hub_is_downloaded_if_it_has_a_tokenizer(online):
    files, _ = online
    files["a/b"] = [file("config.json", 3, cached=False), file("spiece.model", 4, cached=True)]
    files["a/c"] = [file("config.json", 3, cached=False)]
    assert hub.check_encoder("a/b") == [Download("a/b", 7, is_cached=False)]
    with pytest.raises(Mistake, match=r"^--encoder must be an encoder with a tokenizer, got 'a/c' without"):
        hub.check_encoder("a/c")


def test_the_data_of_each_language_is_planned(online):
    files, _ = online
    chinese = {name for name, _ in hub.CHINESE.values()}
    for size, name in enumerate(sorted({hub.DATA, *chinese})):
        files[name] = [file("a", size, cached=False)]
    names = {is_chinese: [one.name for one in hub.data_downloads(chinese=is_chinese)] for is_chinese in (True, False)}
    english = [f"{hub.DATA}, wiki1m_for_simcse.txt", f"{hub.DATA}, senteval.tar"]
    assert names == {True: ["C-MTEB/ATEC", "C-MTEB/BQ", "C-MTEB/LCQMC", "C-MTEB/PAWSX", "C-MTEB/STSB"], False: english}


def test_a_set_has_the_pairs_with_a_score_and_the_text_all_sentences(tmp_path, monkeypatch):
    """A score of 0 is one; the Chinese sets come from the splits that the table names, each data set from its own."""
    rows = {
        (repository, split): [
            {"score": score, "sentence1": f"{name}  one\t{score}", "sentence2": f"{name} two {score}"}
            for score in (0, 3)
        ]
        for name, (repository, split) in hub.CHINESE.items()
    }
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **_: name)
    monkeypatch.setattr("datasets.load_dataset", lambda folder, split, streaming: rows[folder, split])
    folder = hub.data_folder(tmp_path / "data", chinese=True)
    for name in hub.CHINESE:
        found = load_sts(name, folder / f"{name}.tsv")
        assert (found.scores, found.subsets) == ([0.0, 3.0], [name, name])
        assert found.sentences1 == [f"{name} one {score}" for score in (0, 3)]
        assert found.sentences2 == [f"{name} two {score}" for score in (0, 3)]
    text = (folder / "zh_unlabeled.txt").read_text(encoding="utf8").splitlines()
    assert text == [f"{name} {side} {score}" for name in hub.CHINESE for score in (0, 3) for side in ("one", "two")]
    rows.clear()
    assert hub.data_folder(folder, chinese=True) == folder, "it is complete"


def test_a_data_folder_that_was_interrupted_is_made_again(tmp_path, monkeypatch):
    pairs = [("s", "", "new", "pair"), ("s", "0.0", "a", "b")]
    monkeypatch.setattr(hub, "_senteval_sets", lambda file: iter([("sts12", pairs)]))
    wiki = write(tmp_path / "cache" / "wiki", "one\ntwo\n")
    monkeypatch.setattr(hub, "hf_hub_download", lambda data, name, **_: str(wiki))
    folder = tmp_path / "data"
    for _ in range(2):
        hub.data_folder(folder, chinese=False)
        assert (folder / hub.WIKIPEDIA).read_text() == "one\ntwo\n"
        assert (folder / "sts12.tsv").read_text().splitlines()[1:] == ["s\t0.0\ta\tb"]
        assert (folder / "sts_unlabeled.txt").read_text() == "new\npair\na\nb\n"
        (folder / "complete").unlink()
        (folder / "sts12.tsv").write_text("half")


def test_an_archive_without_a_file_is_refused(tmp_path):
    import tarfile

    with tarfile.open(tmp_path / "senteval.tar", "w"):
        pass
    with pytest.raises(ValueError, match=r"senteval\.tar must hold STS/STS12-en-test/STS\.input\.MSRpar\.txt"):
        dict(hub._senteval_sets(str(tmp_path / "senteval.tar")))
