"""``st-extras search``: what it prints, where queries come from, and what its index keeps."""

import io
import json
import sys
from datetime import date, datetime
from pathlib import Path

import pandas as pd
import pytest
from rich.cells import cell_len

from st_extras.cli import search as command
from st_extras.encoders import load_encoder
from st_extras.search import Hit, HybridSearch
from st_extras.text.documents import Document, read_documents
from tests.cli.conftest import shown
from tests.fixtures import SENTENCES
from tests.helpers import Recorder, write

QUERIES = [f"{sentence} {number}" for number in range(3) for sentence in SENTENCES]
FEW = [*QUERIES[:19], QUERIES[0]]
TEXTS = [f"Title {i} {text}" for i, text in enumerate(SENTENCES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in BEIR's layout."""
    folder = tmp_path_factory.mktemp("faq")
    rows = [{"_id": f"doc-{i}", "title": f"Title {i}", "text": text} for i, text in enumerate(SENTENCES)]
    write(folder / "corpus.jsonl.gz", "".join(f"{json.dumps(row)}\n" for row in rows))
    write(folder / "queries.jsonl", "".join(f'{{"_id": "{i}", "text": "{q}"}}\n' for i, q in enumerate(QUERIES)))
    write(folder / "few.txt", "\n".join(FEW))
    return folder


@pytest.mark.parametrize(
    ("documents", "file", "queries", "weight_from"),
    [
        ("corpus.jsonl.gz", "queries.jsonl", QUERIES, QUERIES),
        ("corpus.jsonl.gz", "few.txt", FEW, None),
        ("", "few.txt", FEW, QUERIES),
        ("", "", QUERIES, QUERIES),
    ],
    ids=["queries", "too few", "too few, and the folder's", "the folder's"],
)
def test_json_is_what_python_finds(run, inputs, folder, documents, file, queries, weight_from):
    words = ("--queries", folder / file, "--top-k", "3", "--json")
    code, out, err = run("search", "ENC", folder / documents, *words)
    assert code == 0, err
    search = HybridSearch(load_encoder(inputs / "encoder", device="cpu"), TEXTS, queries=weight_from)
    report = json.loads(out)
    assert (report["documents"], report["bm25_weight"]) == (len(TEXTS), pytest.approx(search.bm25_weight))
    assert [found["query"] for found in report["searches"]] == queries
    for found, hits in zip(report["searches"], search.search(queries, 3), strict=True):
        for rank, (row, hit) in enumerate(zip(found["hits"], hits, strict=True), start=1):
            number = int(hit["corpus_id"])
            expected = {"title": f"Title {number}", "text": SENTENCES[number], "metadata": {}}
            scores = {key: pytest.approx(hit[key], abs=1e-5) for key in ("score", "dense", "bm25")}
            matches = [*map(list, row["matches"])]
            assert row == {"rank": rank, "id": f"doc-{number}", **expected, **scores, "matches": matches}


def test_the_table(run, folder):
    code, out, err = run("search", "ENC", folder, "the old mat", "", "--top-k", "2", "--bm25-weight", "3", "--quiet")
    assert code == 0, err
    assert "8 documents. Score: cosine + 3 x BM25." in out
    assert out.count("A query without text finds nothing.") == 1
    rows = [line.split() for line in out.splitlines() if "doc-" in line]
    assert [(row[0], row[3]) for row in rows] == [("1", "doc-0"), ("2", "doc-3")]
    assert "Title 0 a cat sat on the *mat*" in out
    assert "Title 3 the *old* man read a red book" in out


def test_queries_are_read_line_by_line(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a cat\n\n  the rain \n"))
    code, out, err = run("search", "ENC", folder, "--top-k", "1", "--json")
    assert (code, "query>" in err) == (0, False), err
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["query"], len(one["hits"])) for one in found] == [("a cat", 1), ("the rain", 1)]


def test_on_a_terminal_it_asks_for_each_query(run, folder, monkeypatch):
    stdin = io.StringIO("a cat\n\nthe rain\n")
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", stdin)
    code, out, err = run("search", "ENC", folder, "--top-k", "1", "--quiet")
    assert (code, [line.strip() for line in out.splitlines() if line.strip() in ("a cat", "the rain")]) == (
        0,
        ["a cat", "the rain"],
    ), err
    assert err.endswith("A query a line; Ctrl-D ends.\n" + "query> " * 4)


def hit_of(key: str, text: str, *words: str) -> Hit:
    spans = [(text.index(word), text.index(word) + len(word)) for word in words]
    return Hit(corpus_id=key, score=123.45678, dense=0.5, bm25=1.0, title="", passage=(0, len(text)), text=text,
               matches=spans, metadata={})  # fmt: skip


def test_long_texts_are_cut_at_matching_words_and_long_ids_folded(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    number = "document-000000000000000000000017"
    text = "no word " * 30 + "of the mat \x1b[31m短い文書です" + " and so on" * 20
    command._print_hits("the [old] mat", [hit_of(number, text, "mat")], "cosine")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert max(map(cell_len, lines)) <= 80
    assert lines[0].strip() == "the [old] mat"
    assert lines[1].split() == ["#", "score", "cosine", "id", "text"]
    assert lines[-2].split()[:4] == ["1", "123.4568", "0.500", number[:24]]
    assert "…rd of the *mat*  [31m短" in lines[-2]
    assert lines[-1].split() == [number[24:]]


def test_a_document_cannot_reorder_or_colour_the_line(capsys):
    text = "a \u202ecat\u202c \u2067mat\u2069 \x9b31m שלום\u200f"
    hit = Hit(**hit_of("doc\u202e", text, "cat") | {"title": "A \u2067title\x9b"})
    command._print_hits("cat\u202e", [hit], "dot")
    out = capsys.readouterr().out
    assert not {*out} & {*"\u202e\u202c\u2067\u2069\x9b"}
    assert ("*cat*" in out, "A  title " in out) == (True, True)
    assert "שלום\u200f" in out, "marks alone reorder nothing"


def test_matching_words_are_marked():
    hit = hit_of("a", "  The X-ray of Straße, a CAT.\nCats", "ray", "Straße", "CAT")
    marked = command._marked(hit, terminal=True)
    words = [marked.plain[span.start : span.end] for span in marked.spans if span.style == "bold green"]
    assert words == ["ray", "Straße", "CAT"]
    assert command._marked(hit, terminal=False).plain == "The X-*ray* of *Straße*, a *CAT*. Cats"
    assert command._marked(hit_of("a", "no match"), terminal=False).plain == "no match"
    late = command._marked(hit_of("a", "no word " * 30 + "of a cat on a mat", "cat", "mat"), terminal=False)
    assert late.plain.endswith("of a *cat* on a *mat*")
    assert late.plain.startswith("…")
    assert len(late.plain) < 40


@pytest.mark.parametrize("content", ["a table", "damaged", "a link"])
def test_a_wrong_index_is_named_by_its_option(run, tmp_path, content):
    place, text = tmp_path / "index", write(tmp_path / "mine.txt", "a cat\n")
    if content == "a table":
        pd.DataFrame({"id": ["a"]}).to_parquet(place)
    elif content == "damaged":
        assert run("search", "ENC", text, "cat", "--index", place, "--json")[0] == 0
        place.write_bytes(place.read_bytes()[:-9])
    else:
        place.symlink_to(tmp_path / "nowhere" / "index")
    code, _, err = run("search", "ENC", text, "cat", "--index", place, "--quiet")
    assert (code, shown(err)[-1].startswith("Error: --index must be ")) == (2, True), err


def test_a_file_in_place_of_a_query_is_refused(run, tmp_path):
    """As where the shell has put all names in the place of a pattern."""
    first, second, plain = (write(tmp_path / name, "a cat\n") for name in ("a.txt", "b.txt", "cat"))
    code, _, err = run("search", "ENC", first, second)
    expected = f"QUERY must be a text, got the file '{second}': put a pattern in quotes, and give more documents by "
    assert (code, expected in " ".join(shown(err))) == (2, True), err
    for query in ("c.txt", plain, "a.cat", write(tmp_path / "b.md", "a cat\n"), tmp_path):
        assert run("search", "ENC", first, query, "--json")[0] == 0


def test_an_index_that_another_command_has_saved_meanwhile_is_named_by_its_option(run, tmp_path, monkeypatch):
    text, index = write(tmp_path / "mine.txt", "a cat\n"), tmp_path / "index"
    save = HybridSearch.save

    def save_later(self, path):
        monkeypatch.setattr(HybridSearch, "save", save)
        assert run("search", "ENC", text, "cat", "--index", index, "--json")[0] == 0
        save(self, path)

    monkeypatch.setattr(HybridSearch, "save", save_later)
    code, _, err = run("search", "ENC", text, "cat", "--index", index, "--quiet")
    assert (code, shown(err)[-1].startswith("Error: --index must ")) == (2, True), err
    assert "overwrite" not in err


def test_where_searches_among_documents_with_these_values(run, tmp_path):
    rows = [
        {"id": "a", "text": "a cat", "product": "card", "year": 2025, "open": True},
        {"id": "b", "text": "a cat too", "product": "card", "year": 2024.0},
        {"id": "c", "text": "a dog", "product": "loan", "url": "/loans?all=yes"},
    ]
    write(tmp_path / "mine.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    words = ("search", "ENC", tmp_path / "mine.jsonl", "a cat", "--index", tmp_path / "index", "--json")
    for more, ids in (
        (("--where", "product=card"), {"a", "b"}),
        (("--where", "product=card", "--where", "year=2024"), {"b"}),
        (("--where", "open=true"), {"a"}),
        (("--where", "url=/loans?all=yes"), {"c"}),
        (("--where", "product="), set()),
    ):
        code, out, err = run(*words, *more)
        assert code == 0, err
        hits = json.loads(out)["searches"][0]["hits"]
        assert {hit["id"] for hit in hits} == ids
        assert {hit["metadata"]["product"] for hit in hits} <= {"loan" if "c" in ids else "card"}
    for condition, there in (
        ("product=", "'card', 'loan'"),
        ("product=Card", "'card', 'loan'"),
        ("year=2024.0", "'2024', '2025'"),
        ("open=True", "'true'"),
    ):
        code, _, err = run(*words, "--where", condition)
        assert (code, shown(err)) == (0, [f"--where {condition}: no document has this value, but {there}."])
    code, _, err = run(*words, "--where", "product=loan", "--where", "year=2024")
    assert (code, shown(err)) == (0, ["--where: no document meets all conditions."])
    for wrong in ("colour=red", "product"):
        code, _, err = run(*words, "--where", wrong)
        expected = f"--where must be FIELD=VALUE with one of the fields open, product, url, year, got '{wrong}'."
        assert (code, expected in " ".join(shown(err))) == (2, True), err
    code, _, err = run("search", "ENC", write(tmp_path / "mine.txt", "a cat\n"), "a", "--where", "a=b")
    assert (code, "with a field, and there is none, got 'a=b'." in " ".join(shown(err))) == (2, True), err


@pytest.mark.parametrize(("count", "more"), [(10, ""), (11, " and 1 others"), (1300, " and 1,290 others")])
def test_of_many_values_ten_are_shown(capsys, count, more):
    documents = [Document(f"{number}", "", "a cat", {"number": number}) for number in range(1000, 1000 + count)]
    assert not any(map(command._among(["number=3"], documents), documents))
    listed = ", ".join(f"'{number}'" for number in range(1000, 1010))
    assert capsys.readouterr().err == f"--where number=3: no document has this value, but {listed}{more}.\n"


def test_dates_are_written_as_in_conditions(run, tmp_path):
    row = {"id": "a", "text": "a cat", "day": date(2025, 1, 31), "at": datetime(2025, 1, 31, 9, 30)}
    pd.DataFrame([row, {"id": "b", "text": "a dog"}]).to_parquet(tmp_path / "mine.parquet")
    words = ("--where", "day=2025-01-31", "--where", "at=2025-01-31T09:30:00", "--json")
    code, out, err = run("search", "ENC", tmp_path / "mine.parquet", "a cat", *words)
    assert code == 0, err
    (hit,) = json.loads(out)["searches"][0]["hits"]
    assert (hit["id"], hit["metadata"]) == ("a", {"day": "2025-01-31", "at": "2025-01-31T09:30:00"})


def test_the_index_is_used_again_for_its_encoder(run, folder, tmp_path, make_encoder, monkeypatch):
    words = ("a cat", "--index", "index", "--json")
    write(Path("index"), "")  # as a program does that takes a name first
    first = run("search", "ENC", folder, *words)
    assert first[0] == 0, first[2]
    for _ in range(2):
        code, _, err = run("search", "ENC", folder, "a cat", "--index", "whole", "--passages", "0", "--json")
        assert code == 0, err
    monkeypatch.setattr(HybridSearch, "_encode_new", lambda *_, **__: pytest.fail("encoded"))
    assert run("search", "ENC", folder, *words)[1] == first[1]
    make_encoder(seed=1).save(str(tmp_path / "other"))
    code, _, err = run("search", tmp_path / "other", folder, *words)
    assert (code, shown(err)[0].startswith("Error: model must be the encoder")) == (2, True), err
    code, _, err = run("search", "ENC", folder, *words, "--passages", "30")
    assert (code, "--passages must be 110" in " ".join(shown(err))) == (2, True), err


def test_a_new_index_says_what_few_unrelated_documents_reach(run, inputs, folder, tmp_path):
    """Once, if there are enough pairs, and only with an index."""
    lines = [f"{number} {SENTENCES[number % len(SENTENCES)]}" for number in range(102)]
    write(tmp_path / "many.txt", "\n".join(lines))
    words = ("search", "ENC", tmp_path / "many.txt", "a cat", "--index", "many.parquet")
    out = " ".join(shown(run(*words)[1]))
    search = HybridSearch.open("many.parquet", load_encoder(inputs / "encoder", device="cpu"))
    assert f"an unrelated document have a cosine above {search.unrelated_similarity():.3f}" in out
    assert "unrelated" not in run(*words)[1]
    assert "unrelated" not in run("search", "ENC", folder, "a cat", "--index", "few.parquet")[1]
    assert "unrelated" not in run(*words[:4])[1]


def test_the_language_stays_with_the_index(run, tmp_path):
    write(tmp_path / "mine.txt", "he runs a red shop\nthe mat is old\na cat\n")
    words = ("search", "ENC", tmp_path / "mine.txt", "running shops", "--bm25-weight", "5", "--json")

    def first(*more):
        code, out, err = run(*words, *more)
        assert code == 0, err
        return json.loads(out)["searches"][0]["hits"][0]

    stemmed = first("--language", "english", "--index", "index")
    assert (stemmed["id"], stemmed["score"] > first()["score"] + 1) == ("0", True)
    assert first("--index", "index") == first("--index", "index", "--language", "english") == stemmed
    code, _, err = run(*words, "--index", "index", "--language", "german")
    assert (code, "--language must be 'english'" in " ".join(shown(err))) == (2, True), err


def test_python_opens_what_the_command_line_indexed(run, inputs, tmp_path):
    """The same documents, ids and titles, with ids and without, blank ones among them."""
    encoder = load_encoder(inputs / "encoder", device="cpu")
    rows = [{"title": "Cats", "text": " a cat "}, {"text": ""}, {"title": None, "text": "the mat"}, {"text": "a dog"}]
    named = [{"_id": key, **row} for key, row in zip("dbca", rows, strict=True)]
    for name, content, ids in (("plain", rows, ["0", "2", "3"]), ("named", named, ["d", "c", "a"])):
        file = write(tmp_path / f"{name}.jsonl", "".join(f"{json.dumps(row)}\n" for row in content))
        code, out, err = run("search", "ENC", file, "the mat", "--index", tmp_path / name, "--json")
        assert code == 0, err
        read = read_documents(file)
        found = HybridSearch.open(tmp_path / name, encoder)
        assert found.documents == read
        assert (found.ids, [one.title for one in read]) == (ids, ["Cats", "", ""])
        hits = json.loads(out)["searches"][0]["hits"]
        assert [hit["id"] for hit in hits] == [hit["corpus_id"] for hit in found.search("the mat")[0]]
        assert {hit["id"]: hit["title"] for hit in hits} == {one.id: one.title for one in read}
        listed = HybridSearch(encoder, ["Cats a cat", "", "the mat", "a dog"], bm25_weight=1)
        assert name == "named" or list(map(str, listed.ids)) == ids


def test_the_index_follows_the_documents(run, inputs, tmp_path):
    rows = [{"_id": f"doc-{i}", "text": text} for i, text in enumerate(SENTENCES)]

    def search(rows):
        write(tmp_path / "mine.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
        code, out, err = run("search", "ENC", tmp_path / "mine.jsonl", "a cat", "--index", tmp_path / "index", "--json")
        assert code == 0, err
        return json.loads(out), err

    first, err = search(rows)
    assert "encoded" not in err
    changed, err = search([*rows[1:], {"_id": "new", "text": "a cat that is new"}])
    assert "1 document encoded (new or changed), 7 kept, 1 earlier one dropped" in " ".join(err.split())
    assert changed["searches"][0]["hits"] != first["searches"][0]["hits"]
    assert changed["bm25_weight"] == first["bm25_weight"]
    again, err = search([*rows[1:], {"_id": "new", "text": "a cat that is new"}])
    assert (again, "encoded" in err) == (changed, False)
    more = [*rows[1:], {"_id": "new", "text": "a cat that is new"}, {"_id": "newer", "text": "another cat"}]
    changed, err = search(more)
    assert "1 document encoded (new or changed), 8 kept, 0 earlier ones dropped" in " ".join(err.split())
    documents = {row["_id"]: row["text"] for row in more}
    encoder = load_encoder(inputs / "encoder", device="cpu")
    found = HybridSearch.open(tmp_path / "index", encoder)
    assert {document.id: document.text for document in found.documents} == documents
    assert [hit["corpus_id"] for hit in found.search("a cat")[0]] == [
        hit["id"] for hit in changed["searches"][0]["hits"]
    ]
    _, err = search(more[1:])
    assert "0 documents encoded (new or changed), 8 kept, 1 earlier one dropped" in " ".join(err.split())


def test_the_weight_of_an_index(run, folder):
    """--bm25-weight is kept; --queries find another, unless it was given."""
    words = ("search", "ENC", folder / "corpus.jsonl.gz", "--index", "index", "--json")

    def weight(*more):
        code, out, err = run(*words, *more)
        assert code == 0, err
        return json.loads(out)["bm25_weight"], " ".join(err.split())

    made, _ = weight("a cat")
    of_queries, _ = weight("--queries", folder / "queries.jsonl")
    assert of_queries != made
    assert weight("a cat")[0] == of_queries
    assert weight("--queries", folder / "queries.jsonl", "--bm25-weight", "7")[0] == 7
    assert weight("a cat")[0] == 7
    found, err = weight("--queries", folder / "queries.jsonl")
    assert (found, "The weight 7 of an earlier --bm25-weight stays." in err) == (7, True)


def test_settings_reach_the_index_that_follows(run, tmp_path, monkeypatch):
    words = ("search", "ENC", tmp_path / "mine.txt", "a cat", "--index", tmp_path / "index", "--batch-size", "5")
    write(tmp_path / "mine.txt", "a cat\nthe mat\n")
    assert run(*words)[0] == 0
    write(tmp_path / "mine.txt", "a cat\nthe mat\nan old dog\n")
    recorder = Recorder(monkeypatch)
    recorder.on("st_extras.search.hybrid:HybridSearch.update", "st_extras.search.encoder:SearchEncoder.embed")
    for more in (["--quiet"], []):
        code, _, err = run(*words, *more)
        assert code == 0, err
    assert [call["show_progress_bar"] for call in recorder.calls["HybridSearch.update"]] == [False, True]
    assert {call["self"].batch_size for call in recorder.calls["SearchEncoder.embed"]} == {5}


def test_a_file_that_is_no_index_is_refused_before_anything_is_read(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("st_extras.modules.load", lambda *_: pytest.fail("loaded"))
    for name in ("corpus.jsonl.gz", "queries.jsonl", "few.txt"):
        before = (folder / name).read_bytes()
        code, _, err = run("search", "ENC", folder, "a cat", "--index", folder / name)
        assert (code, "--index must be a new file or the Parquet file of a search, got " in " ".join(shown(err))) == (
            2,
            True,
        ), err
        assert (folder / name).read_bytes() == before
    code, _, err = run("search", "ENC", folder, "a cat", "--index", tmp_path)
    assert (code, "--index must be a new file or the Parquet file of a search, got " in " ".join(shown(err))) == (
        2,
        True,
    ), err


def test_documents_that_stay_whole_are_warned_of_once(run, tmp_path, caplog):
    write(tmp_path / "long.txt", f"{'old red car ' * 50}\na cat\n")
    for words, expected in ((("--passages", "0"), 1), ((), 0)):
        caplog.clear()
        code, _, err = run("search", "ENC", tmp_path / "long.txt", "a cat", "--json", *words)
        assert code == 0, err
        assert caplog.text.count("1 of 2 documents are longer than the 16 tokens") == expected


def test_a_long_document_shows_its_best_passage(run, folder, tmp_path):
    filler = " ".join(f"word{i}" for i in range(200))
    write(tmp_path / "long.txt", f"{filler} he cooks soup with carrots {filler}\na cat\n")
    code, out, err = run("search", "ENC", tmp_path / "long.txt", "soup carrots", "--json", "--bm25-weight", "1")
    assert code == 0, err
    hit = json.loads(out)["searches"][0]["hits"][0]
    assert "soup with carrots" in hit["text"]
    assert len(hit["text"].split()) <= 110
    assert [hit["text"][begin:end] for begin, end in hit["matches"]] == ["soup", "carrots"]


def test_several_sources_and_whole_files_are_searched(run, tmp_path):
    write(tmp_path / "a/1.txt", "my lost card\nis blocked\n")
    write(tmp_path / "a/2.txt", "a loan\n")
    write(tmp_path / "b.csv", "id,text\n7,an account\n")
    command = ("search", "ENC", tmp_path / "a", "card", "--documents", tmp_path / "b.csv", "--whole-files", "--json")
    code, out, err = run(*command)
    assert code == 0, err
    report = json.loads(out)
    ids = {hit["id"] for hit in report["searches"][0]["hits"]}
    assert ids == {str(tmp_path / "a/1.txt"), str(tmp_path / "a/2.txt"), "7"}
    code, _, err = run(*command[:4], "--documents", tmp_path / "none.csv")
    assert (code, "There is no file" in err) == (2, True)
    code, _, err = run(*command, "--index", tmp_path / "b.csv")
    assert code == 2
    assert "--index must not replace what --documents reads" in err
