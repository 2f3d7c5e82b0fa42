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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in BEIR's layout."""
    folder = tmp_path_factory.mktemp("faq")
    rows = [{"_id": f"doc-{i}", "title": f"Title {i}", "text": text} for i, text in enumerate(SENTENCES)]
    write(folder / "corpus.jsonl.gz", "".join(f"{json.dumps(row)}\n" for row in rows))
    write(folder / "queries.jsonl", "".join(f'{{"_id": "{i}", "text": "{q}"}}\n' for i, q in enumerate(QUERIES)))
    return folder


@pytest.fixture
def expected(inputs):
    """Search the documents of ``folder`` in Python."""

    def find(asked: list[str], **options: object) -> tuple[float, list[dict[str, object]]]:
        texts = [f"Title {i} {text}" for i, text in enumerate(SENTENCES)]
        search = HybridSearch(load_encoder(inputs / "encoder", device="cpu"), texts, **options)  # type: ignore[arg-type]
        found = []
        for query, hits in zip(asked, search.search(asked, 3), strict=True):
            rows = [(rank, hit["score"], int(hit["corpus_id"])) for rank, hit in enumerate(hits, start=1)]
            hits = [{"rank": n, "score": round(s, 6), "id": f"doc-{i}", "text": texts[i]} for n, s, i in rows]
            found.append({"query": query, "hits": hits})
        return search.bm25_weight, found

    return find


@pytest.mark.parametrize(
    ("documents", "words", "asked", "weight_from"),
    [
        ("corpus.jsonl.gz", ["a cat sat", "rain"], ["a cat sat", "rain"], None),
        ("corpus.jsonl.gz", ["--queries", "queries.jsonl"], QUERIES, QUERIES),
        ("corpus.jsonl.gz", ["--queries", "few.txt"], QUERIES[:19], None),
        ("", ["a cat sat"], ["a cat sat"], QUERIES),
        ("", ["--queries", "few.txt"], QUERIES[:19], QUERIES),
    ],
    ids=[
        "documents alone",
        "a file of queries",
        "a file of too few",
        "the folder's queries",
        "too few and the folder's",
    ],
)
def test_json_is_what_python_finds(run, folder, tmp_path, expected, documents, words, asked, weight_from):
    write(tmp_path / "few.txt", "\n".join(QUERIES[:19]))
    files = {"queries.jsonl": folder / "queries.jsonl", "few.txt": tmp_path / "few.txt"}
    words = [files.get(word, word) for word in words]
    code, out, err = run("search", "ENC", folder / documents, *words, "--top-k", "3", "--json")
    assert code == 0, err
    weight, searches = expected(asked, queries=weight_from)
    report = json.loads(out)
    assert report["documents"] == len(SENTENCES)
    assert report["bm25_weight"] == pytest.approx(weight)
    for found, wanted in zip(report["searches"], searches, strict=True):
        assert found["query"] == wanted["query"]
        for hit, other in zip(found["hits"], wanted["hits"], strict=True):
            assert hit == other | {"score": pytest.approx(other["score"], abs=1e-5)}


def test_a_folder_in_beirs_layout_is_its_own_queries(run, folder, expected):
    code, out, err = run("search", "ENC", folder, "--queries", folder, "--top-k", "3", "--json")
    assert code == 0, err
    assert [found["query"] for found in json.loads(out)["searches"]] == QUERIES


def test_the_table(run, folder):
    code, out, err = run("search", "ENC", folder, "the old mat", "", "--top-k", "2", "--bm25-weight", "3", "--quiet")
    assert code == 0, err
    assert "8 documents. Score: cosine + 3 x BM25." in out
    lines = out.splitlines()
    assert [line.split()[:3] for line in lines if "doc-" in line] == [
        ["1", next(line.split()[1] for line in lines if "doc-0" in line), "doc-0"],
        ["2", next(line.split()[1] for line in lines if "doc-3" in line), "doc-3"],
    ]
    assert "Title 0 a cat sat on *the* *mat*" in out
    assert "Title 3 *the* *old* man read a red book" in out


def test_queries_are_read_line_by_line(run, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a cat\n\n  the rain \n"))
    code, out, err = run("search", "ENC", folder, "--top-k", "1", "--json")
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["query"], len(one["hits"])) for one in found] == [("a cat", 1), ("the rain", 1)]
    assert "query>" not in err


def test_on_a_terminal_it_asks(monkeypatch, capsys):
    lines = io.StringIO("a cat\n\n the rain\n")
    monkeypatch.setattr(lines, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", lines)
    assert list(command._asked_for()) == ["a cat", "the rain"]
    assert capsys.readouterr().err.count("query> ") == 4


LONG_ID = "collection-2024/document-000000000000000000000017"


@pytest.mark.parametrize(("width", "terminal"), [(80, True), (60, True), (80, False)])
def test_nothing_is_dropped_on_a_narrow_terminal(monkeypatch, capsys, width, terminal):
    monkeypatch.setenv("COLUMNS", str(width))
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    query = "an [old] mat with more words than a line of a terminal has, and then some more of them, to the end"
    texts = ["an [old] man [/bold] on a mat " * 9, "no word " * 30 + "of the mat", "\x1b[31m短い文書です\x07" * 20, ""]
    scores = (123.45678, -0.5, 0, 0)
    command._print_hits(query, [(score, LONG_ID, text) for score, text in zip(scores, texts, strict=True)])
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    lines = Text.from_ansi(out).plain.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert " ".join(" ".join(lines).split()).startswith(query)
    rows = [line for line in lines if line.strip() and "old] mat" not in line][3:]
    assert [row.split()[:2] for row in rows[:: len(rows) // 4]] == [[str(i + 1), f"{scores[i]:.4f}"] for i in range(4)]
    id_column = slice(lines[lines.index(rows[0]) - 2].index("id"), None)
    folded = [row[id_column].split()[0] for row in rows[: len(rows) // 4]]
    assert "".join(folded) == LONG_ID
    second = rows[len(rows) // 4]
    assert ("of the mat" if terminal else "*of* *the* *mat*") in second, "cut so that matching words are shown"


def test_matching_words_are_marked():
    marked = command._marked("The X-ray of Straße, a CAT.\nCats", "cat ray straße", 80, terminal=True)
    words = [marked.plain[span.start : span.end] for span in marked.spans if span.style == "bold green"]
    assert words == ["ray", "Straße", "CAT"]
    assert command._marked("我们搜索文档", "搜索", 80, terminal=False).plain == "我们*搜索*文档"


def test_the_index_folder_is_used_again(run, folder, inputs, monkeypatch):
    first = run("search", "ENC", folder, "a cat", "--index", "index", "--json")
    assert first[0] == 0, first[2]
    encoded = []
    monkeypatch.setattr(HybridSearch, "__init__", lambda *_, **__: encoded.append(1))
    assert run("search", "ENC", folder, "a cat", "--index", "index", "--json")[1] == first[1]
    heavier = run("search", "ENC", folder, "a cat", "--index", "index", "--bm25-weight", "7", "--json")[1]
    assert json.loads(heavier)["bm25_weight"] == 7
    assert not encoded


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("search", "ENC", "TEXT", "cat", "--queries", "TEXT"), "--queries does not go with QUERY"),
        (("search", "ENC", "none.txt", "cat"), "'none.txt'"),
        (("search", "ENC", "EMPTY", "cat"), "holds no document"),
        (("search", "ENC", "JSONL", "cat"), "broken.jsonl"),
        (("search", "ENC", "TEXT", "cat", "--index", "FOLDER"), "^Error: --index must be new, empty or a saved"),
        (("search", "nothing/here", "TEXT", "cat"), "'nothing/here'"),
        (("search", "ENC", "TSV", "cat", "--column", "none"), "has no column none"),
    ],
)
def test_mistakes(assert_refused, words, message):
    assert_refused(words, message)


def test_another_text_or_encoder_than_the_index_has_is_refused(run, folder, tmp_path, make_encoder):
    assert run("search", "ENC", folder, "a cat", "--index", "index")[0] == 0
    code, _, err = run("search", "ENC", "TEXT", "a cat", "--index", "index")
    assert (code, "DOCUMENTS must be those that 'index' was made of" in shown(err)[0]) == (2, True)
    make_encoder(seed=1).save(str(tmp_path / "other"))
    code, _, err = run("search", tmp_path / "other", folder, "a cat", "--index", "index")
    assert (code, "ENCODER must be the encoder that made 'index'" in shown(err)[0]) == (2, True)


def test_missing_bm25s_is_noticed_before_anything_is_read(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    code, _, err = run("search", "ENC", "none", "a cat")
    assert (code, err) == (2, 'Error: BM25 needs bm25s: pip install "st-extras[search]".\n')


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
    assert code == 0, err
    assert len(json.loads(out)["searches"][0]["hits"]) == 10
