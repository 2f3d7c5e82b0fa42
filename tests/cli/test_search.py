"""``st-extras search``: what it prints, where queries come from, and what its index folder keeps."""

import io
import json
import random
import shlex
import sys

import pytest
from rich.cells import cell_len
from rich.text import Text

from st_extras.cli import search as command
from st_extras.encoders import load_encoder
from st_extras.search import HybridSearch
from tests.cli.conftest import shown
from tests.fixtures import SENTENCES
from tests.helpers import write

QUERIES = [f"{sentence} {number}" for number in range(3) for sentence in SENTENCES]
TEXTS = [f"Title {i} {text}" for i, text in enumerate(SENTENCES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in BEIR's layout."""
    folder = tmp_path_factory.mktemp("faq")
    rows = [{"_id": f"doc-{i}", "title": f"Title {i}", "text": text} for i, text in enumerate(SENTENCES)]
    write(folder / "corpus.jsonl.gz", "".join(f"{json.dumps(row)}\n" for row in rows))
    write(folder / "queries.jsonl", "".join(f'{{"_id": "{i}", "text": "{q}"}}\n' for i, q in enumerate(QUERIES)))
    write(folder / "few.txt", "\n".join(QUERIES[:19]))
    return folder


@pytest.mark.parametrize(
    ("documents", "words", "queries", "weight_from"),
    [
        ("corpus.jsonl.gz", ["a cat sat", "rain"], ["a cat sat", "rain"], None),
        ("corpus.jsonl.gz", ["--queries", "queries.jsonl"], QUERIES, QUERIES),
        ("corpus.jsonl.gz", ["--queries", "few.txt"], QUERIES[:19], None),
        ("", ["--queries", "few.txt"], QUERIES[:19], QUERIES),
        ("", ["--queries", ""], QUERIES, QUERIES),
    ],
    ids=["documents alone", "queries", "too few", "too few, and the folder's", "the folder's"],
)
def test_json_is_what_python_finds(run, inputs, folder, documents, words, queries, weight_from):
    words = [folder / words[1] if word == words[-1] and "--queries" in words else word for word in words]
    code, out, err = run("search", "ENC", folder / documents, *words, "--top-k", "3", "--json")
    assert code == 0, err
    search = HybridSearch(load_encoder(inputs / "encoder", device="cpu"), TEXTS, queries=weight_from)
    report = json.loads(out)
    assert (report["documents"], report["bm25_weight"]) == (len(TEXTS), pytest.approx(search.bm25_weight))
    assert [found["query"] for found in report["searches"]] == queries
    for found, hits in zip(report["searches"], search.search(queries, 3), strict=True):
        for rank, (row, hit) in enumerate(zip(found["hits"], hits, strict=True), start=1):
            number = int(hit["corpus_id"])
            assert row == {"rank": rank, "score": row["score"], "id": f"doc-{number}", "text": TEXTS[number]}
            assert row["score"] == pytest.approx(hit["score"], abs=1e-5)


def test_the_table(run, folder):
    code, out, err = run("search", "ENC", folder, "the old mat", "", "--top-k", "2", "--bm25-weight", "3", "--quiet")
    assert code == 0, err
    assert "8 documents. Score: cosine + 3 x BM25." in out
    rows = [line.split() for line in out.splitlines() if "doc-" in line]
    assert [(row[0], row[2]) for row in rows] == [("1", "doc-0"), ("2", "doc-3")]
    assert "Title 0 a cat sat on *the* *mat*" in out
    assert "Title 3 *the* *old* man read a red book" in out


def test_queries_are_read_line_by_line(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a cat\n\n  the rain \n"))
    code, out, err = run("search", "ENC", folder, "--top-k", "1", "--json")
    assert (code, "query>" in err) == (0, False), err
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["query"], len(one["hits"])) for one in found] == [("a cat", 1), ("the rain", 1)]


def test_on_a_terminal_it_asks(monkeypatch, capsys):
    lines = io.StringIO("a cat\n\n the rain\n")
    monkeypatch.setattr(lines, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", lines)
    assert list(command._asked_for()) == ["a cat", "the rain"]
    assert capsys.readouterr().err.count("query> ") == 4


@pytest.mark.parametrize(("width", "terminal"), [(60, True), (80, False)])
def test_nothing_is_dropped_on_a_narrow_terminal(monkeypatch, capsys, width, terminal):
    monkeypatch.setenv("COLUMNS", str(width))
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    long_id = "collection-2024/document-000000000000000000000017"
    query = "an [old] mat with more words than a line of a terminal has, and then some more of them, to the end"
    texts = ["an [old] man [/bold] on a mat " * 9, "no word " * 30 + "of the mat", "\x1b[31m短い文書です\x07" * 20, ""]
    scores = (123.45678, -0.5, 0, 0)
    command._print_hits(query, [(score, long_id, text) for score, text in zip(scores, texts, strict=True)])
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    lines = Text.from_ansi(out).plain.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert " ".join(" ".join(lines).split()).startswith(query)
    rows = [line for line in lines if line.strip() and "old] mat" not in line][3:]
    each = len(rows) // 4  # an id goes on below
    assert [row.split()[:2] for row in rows[::each]] == [[str(i + 1), f"{scores[i]:.4f}"] for i in range(4)]
    id_column = lines[lines.index(rows[0]) - 2].index("id")
    assert "".join(row[id_column:].split()[0] for row in rows[:each]) == long_id
    assert ("of the mat" if terminal else "*of* *the* *mat*") in rows[each], "cut so that matching words are shown"


def test_matching_words_are_marked():
    marked = command._marked("The X-ray of Straße, a CAT.\nCats", "cat ray straße", 80, terminal=True)
    words = [marked.plain[span.start : span.end] for span in marked.spans if span.style == "bold green"]
    assert words == ["ray", "Straße", "CAT"]
    assert command._marked("我们搜索文档", "搜索", 80, terminal=False).plain == "我们*搜索*文档"


def test_the_index_folder_is_used_again_for_its_documents_and_encoder(run, folder, tmp_path, make_encoder, monkeypatch):
    words = ("a cat", "--index", "index", "--json")
    first = run("search", "ENC", folder, *words)
    assert first[0] == 0, first[2]
    monkeypatch.setattr(HybridSearch, "__init__", lambda *_, **__: pytest.fail("encoded"))
    assert run("search", "ENC", folder, *words)[1] == first[1]
    heavier = run("search", "ENC", folder, *words, "--bm25-weight", "7")[1]
    assert json.loads(heavier)["bm25_weight"] == 7
    make_encoder(seed=1).save(str(tmp_path / "other"))
    for encoder, documents, argument in (("ENC", "TEXT", "DOCUMENTS"), (tmp_path / "other", folder, "ENCODER")):
        code, _, err = run("search", encoder, documents, *words)
        assert (code, shown(err)[0].startswith(f"Error: {argument} must be")) == (2, True), err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ENC", "TEXT", "cat", "--queries", "TEXT"), "--queries does not go with QUERY"),
        (("ENC", "none.txt", "cat"), "'none.txt'"),
        (("ENC", "EMPTY", "cat"), "holds no document"),
        (("ENC", "TEXT", "cat", "--index", "FOLDER"), "^Error: --index must be new"),
        (("nothing/here", "TEXT", "cat"), "'nothing/here'"),
        (("ENC", "TSV", "cat", "--column", "none"), "has no column none"),
    ],
)
def test_mistakes(assert_refused, words, message):
    assert_refused(("search", *words), message)


def test_missing_bm25s_is_noticed_before_anything_is_read(assert_refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    assert_refused(("search", "ENC", "none", "a cat"), r"BM25 needs bm25s.*st-extras\[search\]")


@pytest.mark.slow
def test_the_command_that_adapt_search_prints(run, tmp_path):
    words = " ".join(SENTENCES).split()
    texts = [" ".join(random.Random(i).choices(words, k=8)) for i in range(120)]
    write(tmp_path / "work" / "my documents.txt", "\n".join(texts))
    write(tmp_path / "work" / "queries.txt", "\n".join(text[:20] for text in texts[::4]))
    code, out, err = run("adapt-search", "ENC", "my documents.txt", "--queries", "queries.txt", "-o", "out", "--quiet")
    assert code == 0, err
    printed = shlex.split(out.splitlines()[-1])
    assert printed[:5] == ["st-extras", "search", "out", "my documents.txt", "--bm25-weight"]
    weight = json.loads((tmp_path / "work/out/adaptation.json").read_text())["details"]["bm25_weight"]
    assert float(printed[5]) == pytest.approx(weight, rel=1e-3)
    code, out, err = run(*printed[1:], "cat", "--json")
    assert (code, len(json.loads(out)["searches"][0]["hits"])) == (0, 10), err
