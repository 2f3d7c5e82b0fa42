"""Which file of a folder is meant: known endings alone, and never one of two."""

import json
from pathlib import Path

import pandas as pd
import pytest

from st_extras.evaluation import load_retrieval, load_sts
from st_extras.search import HybridSearch
from st_extras.text.corpus import read_sentences, stream_sentences
from st_extras.text.documents import read_documents, read_queries
from st_extras.text.folders import find_judgements, find_search_folder
from tests.helpers import write

BESIDE = ("~", ".orig", ".bak", ".bk", ".swp", ".part", ".old", ".tmp")
"""What editors, merges and downloads leave beside a file."""


def texts_by_id(path: Path | str) -> dict[int | str, str]:
    return {one.id: one.full_text for one in read_documents(path)}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CORPUS = lines({"_id": "d1", "title": "Cards", "text": "A lost card."}, {"_id": "d2", "title": "Loans", "text": ""})
QUERIES = lines({"_id": "q1", "text": "my card is lost"}, {"_id": "q2", "text": "what is a loan"})
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n"
BEIR = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS}
DOCUMENTS = ["Cards A lost card.", "Loans"]


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    for name, text in BEIR.items():
        write(tmp_path / name, text)
    return tmp_path


def leave_copies(folder: Path) -> None:
    """Beside each file leave copies with wrong content, as editors and merges do, and hidden ones."""
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        for name in (*(file.name + end for end in BESIDE), *(start + file.name for start in (".", "._"))):
            write(file.with_name(name), "not this")


def test_a_search_collection_is_its_documents_with_titles_and_no_copies(beir):
    task = load_retrieval(beir)
    leave_copies(beir)
    for name in BEIR:
        (beir / name).with_suffix(".csv").mkdir()  # a folder is no file, whatever its name
    assert load_retrieval(beir) == task
    assert read_sentences(beir) == DOCUMENTS
    assert texts_by_id(beir) == dict(zip(["d1", "d2"], DOCUMENTS, strict=True))
    assert read_queries(beir) == {"q1": "my card is lost", "q2": "what is a loan"}
    (beir / "queries.jsonl").unlink()
    assert read_sentences(beir) == DOCUMENTS, "judgements show what the folder is as well"
    with pytest.raises(ValueError, match=rf"^'{beir}' must hold one queries file, got none\.$"):
        read_queries(beir)


def test_a_corpus_alone_makes_no_search_collection(tmp_path):
    for name in ("corpus.jsonl", "more.jsonl"):
        write(tmp_path / name, CORPUS.replace('"d', f'"{name[0]}'))
    assert find_search_folder(tmp_path) is None
    assert find_search_folder(tmp_path / "corpus.jsonl") is None
    assert [*texts_by_id(tmp_path)] == ["c1", "c2", "m1", "m2"]
    (tmp_path / "corpus.jsonl").rename(tmp_path / "queries.jsonl")
    assert [*texts_by_id(tmp_path)] == ["m1", "m2", "c1", "c2"], "nor queries without one"
    write(tmp_path / "corpus.txt", "a text without an id")
    assert find_search_folder(tmp_path) is None, "nor queries beside lines"


def test_judgements_come_by_their_splits_in_the_order_of_names(tmp_path):
    inside = ["test.tsv", "dev.qrels", "all.trec", "train.csv.gz", "few.txt", "Wide.QREL", ".hidden.tsv", "notes.md"]
    inside += ["test.small.tsv"]
    beside = ["qrels.tsv", *(f"qrels.{name}.jsonl" for name in "zbycx"), "qrels.md", "judged.tsv"]
    for name in [*(f"qrels/{name}" for name in inside), *beside]:
        write(tmp_path / name, QRELS)
    found = find_judgements(tmp_path)
    assert [*found] == ["Wide", "all", "dev", "few", "test.small", "test", "train", *"bc", "qrels", *"xyz"]
    assert found["train"] == tmp_path / "qrels/train.csv.gz"


def test_judgements_beside_the_corpus_are_chosen_by_their_split(tmp_path):
    for name, text in BEIR.items():
        write(tmp_path / name.replace("qrels/", "qrels."), text)
    write(tmp_path / "qrels.train.tsv", QRELS.replace("q1\td1", "q1\td2"))
    assert load_retrieval(tmp_path).relevant["q1"] == {"d1": 1.0}
    assert load_retrieval(tmp_path, "train").relevant["q1"] == {"d2": 1.0}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("corpus.jsonl", "corpus.jsonl.gz"),
        ("queries.jsonl", "queries.csv"),
        ("qrels/test.tsv", "qrels/test.txt"),
        ("qrels/test.tsv", "qrels.test.tsv"),
    ],
)
def test_two_files_of_a_search_collection_that_could_be_meant_are_refused(beir, first, second):
    write(beir / second, (beir / first).read_text())
    with pytest.raises(ValueError, match="must hold one") as caught:
        load_retrieval(beir)
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_a_set_of_sentence_pairs_is_one_file(tmp_path):
    text = "score\tsentence1\tsentence2\n1\ta\tb\n2\tc\td\n"
    write(tmp_path / "stsb_test.tsv", text)
    leave_copies(tmp_path)
    assert load_sts("stsb_test", tmp_path).scores == [1.0, 2.0]
    write(tmp_path / "stsb_test.tsv.gz", text.replace("2\tc", "3\tc"))
    with pytest.raises(ValueError, match=r"stsb_test\.tsv and stsb_test\.tsv\.gz"):
        load_sts("stsb_test", tmp_path)


def test_copies_in_a_folder_or_pattern_of_texts_are_not_read(tmp_path):
    write(tmp_path / "corpus.txt", "one")  # no table: texts like any other
    write(tmp_path / "queries.txt", "two")
    assert read_sentences(tmp_path) == ["one", "two"]
    (tmp_path / "queries.txt").unlink()
    leave_copies(tmp_path)
    for source in (str(tmp_path), f"{tmp_path}/*", f"{tmp_path}/**/co*"):
        assert read_sentences(source) == ["one"]
    write(tmp_path / "corpus.txt.gz", "one")
    for source in (str(tmp_path), f"{tmp_path}/*"):
        with pytest.raises(ValueError, match=r"corpus\.txt and .*corpus\.txt\.gz"):
            read_sentences(source)


def test_other_files_are_read_as_text(tmp_path):
    for name in ("a.en", "a.txt.bz2", "b"):
        assert read_sentences(write(tmp_path / name, "one")) == ["one"]


@pytest.mark.parametrize("end", BESIDE)
def test_a_copy_is_no_text_file_by_its_name_or_pattern_either(tmp_path, end):
    path = write(tmp_path / f"corpus.jsonl{end.upper()}", CORPUS)
    for source in (path, f"{tmp_path}/*"):
        with pytest.raises(ValueError, match=r"corpus\.jsonl.* must not be a copy .*: rename it to read it\.$"):
            read_sentences(source)
    with pytest.raises(ValueError, match="is a folder without"):
        read_sentences(tmp_path)


# --- folders as people have them ---

FAQ = {
    "_index.md": "---\ntitle: Questions\n---\nAll questions.",
    "_posts/2024-01-01-cards.md": "---\ntitle: Cards\ntags: [card]\n---\nA lost card.",
    "_questions/en/_loans.markdown": "# Loans\nA loan.",
    ".git/notes.md": "hidden",
    "_posts/.draft.md": "hidden",
    "_posts/cards.md.bk": "a copy",
}
"""A site of Jekyll or Hugo."""


def test_names_that_begin_with_an_underscore_are_read(tmp_path):
    for name, text in FAQ.items():
        write(tmp_path / name, text)
    wanted = ["Questions All questions.", "Cards A lost card.", "Loans A loan."]
    assert read_sentences(tmp_path) == wanted
    assert read_sentences(f"{tmp_path}/**/*") == wanted
    assert [(one.title, one.text) for one in read_documents(tmp_path)] == [
        ("Questions", "All questions."), ("Cards", "A lost card."), ("Loans", "A loan.")
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["requirements.txt", "deep/robots.txt", "data.csv", "README.txt.gz"])
@pytest.mark.parametrize("read", [read_sentences, read_documents, stream_sentences])
def test_markdown_beside_another_kind_is_never_left_out_without_a_word(tmp_path, name, read):
    for file, text in FAQ.items():
        write(tmp_path / file, text)
    write(tmp_path / name, "text\none\n")
    kind = ".csv" if "csv" in name else ".txt"
    for source in (tmp_path, f"{tmp_path}/**/*"):
        message = (
            rf"must stand for files of one kind, got 3 \.md \(such as .*_index\.md\) and 1 \{kind} \(such as .*{name}\)"
        )
        with pytest.raises(ValueError, match=message) as caught:
            read(source)
        patterns = [f"{tmp_path}/**/*{ending}" for ending in (".markdown", ".md")]
        assert str(caught.value).endswith(f"such as {' and '.join(map(repr, patterns))}.")
    assert len([*read(patterns)]) == 3


def test_a_readme_beside_one_file_of_data_is_not_what_is_advised(tmp_path):
    folder = tmp_path / "texts [2024]"  # whose brackets are no pattern
    write(folder / "README.md", "about the data")
    write(folder / "data/train.csv", "text\none\n")
    with pytest.raises(ValueError, match=r"got 1 \.csv .* and 1 \.md .*, such as '/.*/\*\*/\*\.csv'\.$") as caught:
        read_sentences(folder)
    assert read_sentences(str(caught.value).split("'")[-2]) == ["one"]


def test_packed_files_beside_another_kind_are_advised_with_both_endings(tmp_path):
    for name in ("a.csv.gz", "b.2024.csv.gz", "c.jsonl"):
        write(tmp_path / name, "text\none\n")
    with pytest.raises(ValueError, match=r"got 2 \.csv .* and 1 \.jsonl .*, such as '[^']*/\*\*/\*\.csv\.gz'\.$"):
        read_sentences(tmp_path)


def test_a_copy_of_a_file_of_unknown_kind_is_left_out_of_a_pattern(tmp_path):
    for name in ("a.en", "a.en~", "b.en.bak"):
        write(tmp_path / name, "one")
    assert read_sentences(f"{tmp_path}/*") == ["one"]


def test_files_of_other_kinds_in_a_folder_are_counted(tmp_path, caplog):
    for name in ("a.rst", "b.rst", "c.png", ".hidden", "d.rst~"):
        write(tmp_path / name, "one")
    write(tmp_path / "a.txt", "one")
    for source in (str(tmp_path), f"{tmp_path}/*"):
        caplog.clear()
        assert read_sentences(source) == ["one"]
        assert caplog.messages == [f"{source}: files read: 1, not read: 4, such as {tmp_path / 'a.rst'}."]


def test_a_description_of_the_data_in_json_is_no_text_of_a_folder(tmp_path, caplog):
    write(tmp_path / "dataset_infos.json", '{"description": "one"}')
    write(tmp_path / "a.txt", "one")
    assert read_sentences(tmp_path) == ["one"]
    assert caplog.messages == [f"{tmp_path}: files read: 1, not read: 1, such as {tmp_path / 'dataset_infos.json'}."]


def test_files_of_one_name_in_several_folders_are_all_read(tmp_path):
    for name in ("a.txt", "de/a.txt", "en/a.txt.gz"):
        write(tmp_path / name, name)
    for source in (tmp_path, f"{tmp_path}/**/*"):
        assert read_sentences(source) == ["a.txt", "de/a.txt", "en/a.txt.gz"]


def test_a_damaged_table_in_a_folder_is_named(tmp_path):
    pd.DataFrame({"text": ["one"]}).to_parquet(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", "PAR1 but nothing else PAR1")
    for source in (tmp_path, f"{tmp_path}/*"):
        with pytest.raises(ValueError, match=r"b\.parquet, row 0: could not be read"):
            read_sentences(source)


def test_a_markdown_file_is_one_document_and_its_path_the_id(tmp_path):
    pages = {"a.md": "# A\n\nabout *a*\n", "b/B.MD": "# B\n", "c.md": "\n"}
    for name, text in pages.items():
        write(tmp_path / name, text)
    wanted = [str(tmp_path / "a.md"), str(tmp_path / "b/B.MD")], ["A about *a*", "B"]
    for source in (str(tmp_path), f"{tmp_path}/**/*.[mM][dD]"):
        assert texts_by_id(source) == dict(zip(*wanted, strict=True))
        assert read_sentences(source) == wanted[1]


def test_folders_that_are_links_are_read_once(tmp_path):
    write(tmp_path / "elsewhere/b.txt", "two")
    write(tmp_path / "texts/a.txt", "one")
    (tmp_path / "texts/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "texts/again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "texts")
    (tmp_path / "texts/gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(tmp_path / "texts")
    for name in "fecd":
        (tmp_path / f"texts/more/{name}").parent.mkdir(exist_ok=True)
        (tmp_path / f"texts/more/{name}").symlink_to(tmp_path / "elsewhere")
    for name in ("texts", "link"):
        assert read_sentences(tmp_path / name) == ["one", "two"]
        paths = [tmp_path / name / "a.txt", tmp_path / name / "again/b.txt"]
        found = [one.id for one in read_documents(tmp_path / name, whole_files=True)]
        assert found == [str(path) for path in paths], "by the first of its names"


@pytest.mark.parametrize("beside", ["a.md", "b/c.md"])
def test_an_encoder_beside_the_texts_is_no_text(tmp_path, beside, caplog):
    write(tmp_path / beside, "one")
    for name in (
        "modules.json",
        "config_sentence_transformers.json",
        "README.md",
        "searches.md",
        "0_Transformer/README.md",
    ):
        write(tmp_path / "my-encoder" / name, "no text")
    assert read_sentences(tmp_path) == ["one"]
    assert caplog.messages == [f"{tmp_path / 'my-encoder'} holds an encoder, and is not read as text."]
    assert read_sentences(tmp_path / "my-encoder/README.md") == ["no text"]
    (tmp_path / "my-encoder/config_sentence_transformers.json").unlink()  # modules.json alone may be of any program
    assert sorted(read_sentences(tmp_path)) == ["no text"] * 3 + ["one"]


@pytest.mark.parametrize("beside", ["a.md", "a.parquet"])
def test_the_file_of_a_search_beside_the_documents_is_none_of_them(still_encoder, tmp_path, beside, caplog):
    """As where ``--index`` names a file in the folder that is searched."""
    if beside == "a.md":
        write(tmp_path / beside, "one")
    else:
        pd.DataFrame({"id": ["x"], "text": ["one"]}).to_parquet(tmp_path / beside)
    index = tmp_path / "my-index.parquet"
    HybridSearch(still_encoder, {"x": "one"}, bm25_weight=0).save(index)
    assert [document.text for document in read_documents(tmp_path)] == ["one"]
    assert [document.text for document in read_documents(str(tmp_path / "*.[mp]*"))] == ["one"]
    assert caplog.messages == [f"{index} holds a search, and is not read as text."] * 2
    assert [document.text for document in read_documents(index)] == ["one"]
