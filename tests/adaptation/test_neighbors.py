"""``neighbors.md`` and ``searches.md``: what they count and show, and that no text breaks them."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from st_extras.adaptation import neighbors
from st_extras.adaptation.neighbors import write_neighbors, write_searches
from tests.helpers import cosine, draw

TEXTS = [f"text {number}" for number in range(60)]


def three_nearest(x: Tensor, row: int) -> list[int]:
    others = [other for other in range(len(x)) if other != row]
    return sorted(others, key=lambda other: -cosine(x[row], x[other]))[:3]


def page(folder: Path) -> str:
    return (folder / "neighbors.md").read_text(encoding="utf8")


def tables(markdown: str) -> dict[str, list[list[str]]]:
    """Each text that is shown, with the cells of its table's three rows."""
    found = {}
    for part in markdown.split("**Text:** ")[1:]:
        text, _, *lines = part.splitlines()
        rows = [line for line in lines if line.startswith("|")][2:]
        found[text] = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return found


def test_neighbours_are_those_of_the_same_fold(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbors, "_EXAMPLES", 100)
    before = draw(60, 6)
    after = before + 0.3 * draw(60, 6, seed=1)
    after[20:40] = before[20:40]
    share = write_neighbors(tmp_path, TEXTS, before, after, folds=3, seed=42)
    numbers = [[0, 20, 40][row // 20] for row in range(60)]  # of the first text of a row's fold
    near = [
        [[at + first for at in three_nearest(x[first : first + 20], row - first)] for x in (before, after)]
        for row, first in enumerate(numbers)
    ]
    assert share == pytest.approx(sum(old[0] != new[0] for old, new in near) / 60)
    changed = [row for row, (old, new) in enumerate(near) if set(old) != set(new)]
    shown = tables(page(tmp_path))
    assert list(shown) == [TEXTS[row] for row in changed]
    assert not {TEXTS[row] for row in range(20, 40)} & set(shown)
    for row in changed:
        old, new = near[row]
        assert [cells[0] for cells in shown[TEXTS[row]]] == [TEXTS[at] for at in old]
        assert [cells[2].removeprefix("**new:** ") for cells in shown[TEXTS[row]]] == [TEXTS[at] for at in new]
    assert "Each text is shown with the change computed without it" in page(tmp_path)


def test_the_changed_are_counted_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbors, "_EXAMPLES", 100)
    before = draw(60, 6)
    after = before + 0.3 * draw(60, 6, seed=1)
    share = write_neighbors(tmp_path, TEXTS, before, after, seed=42)
    near = [(three_nearest(before, row), three_nearest(after, row)) for row in range(60)]
    first = sum(old[0] != new[0] for old, new in near)
    three = [row for row, (old, new) in enumerate(near) if set(old) != set(new)]
    assert 0 < first < 60
    assert share == pytest.approx(first / 60)
    assert first != len(three) < 60
    numbers = [int(number) for number in re.findall(r"\d+", page(tmp_path).splitlines()[2])]
    assert numbers == [60, first, round(100 * first / 60), len(three), round(100 * len(three) / 60)]
    shown = tables(page(tmp_path))
    assert list(shown) == [TEXTS[row] for row in three]
    assert "The change was computed from these texts among others." in page(tmp_path)
    for row in three:
        old, new = near[row]
        names = [TEXTS[at] if at in old else f"**new:** {TEXTS[at]}" for at in new]
        assert shown[TEXTS[row]] == [
            [TEXTS[a], f"{cosine(before[row], before[a]):.3f}", name, f"{cosine(after[row], after[b]):.3f}"]
            for a, b, name in zip(old, new, names, strict=True)
        ]


def test_examples_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbors, "_EXAMPLES", 7)
    pages = []
    for seed in (1, 1, 2):
        write_neighbors(tmp_path, TEXTS, draw(60, 6), draw(60, 5, seed=1), seed=seed)
        pages.append(list(tables(page(tmp_path))))
    assert (pages[0] == pages[1], pages[0] == pages[2], len(pages[0])) == (True, False, 7)


def test_turned_embeddings_and_equally_near_neighbours_are_no_change(tmp_path):
    turn = torch.linalg.qr(draw(4, 4, seed=1)).Q
    write_neighbors(tmp_path, TEXTS[:6], draw(6, 4), 5 * draw(6, 4) @ turn, seed=42)
    assert "Of 6 texts, 0 (0%) have another nearest neighbour than before, and 0 (0%) have others" in page(tmp_path)
    assert tables(page(tmp_path)) == {}
    assert "Below are" not in page(tmp_path)
    before = torch.eye(6)  # all are equally far from each other
    write_neighbors(tmp_path, TEXTS[:6], before, before[[2, 0, 1, 5, 3, 4]], seed=42)
    assert "Of 6 texts, 0 (0%)" in page(tmp_path)


@pytest.mark.parametrize("deviation", [1e-2, 1e-5, 1e-7])
def test_neighbours_that_lie_close_together_are_told_apart(tmp_path, deviation):
    """A raw encoder gives all texts about the same embedding."""
    centre, apart, other = draw(6, seed=9), draw(60, 6), draw(60, 6, seed=1)
    before, after = ((centre + deviation**0.5 * x).float() for x in (apart, other))
    near = [[three_nearest(x.double(), row)[0] for row in range(60)] for x in (before, after)]
    share = write_neighbors(tmp_path, TEXTS, before, after, seed=42)
    assert share == pytest.approx(sum(old != new for old, new in zip(*near, strict=True)) / 60)
    rounded = before * (1 + 1e-7 * draw(60, 6, seed=2)).float()
    assert write_neighbors(tmp_path, TEXTS, before, rounded, seed=42) < 0.1


HOSTILE = [
    "a | b || c",
    "a \\| b \\",
    "two\nlines\r\n\r\n# heading\x0b\x0c\x85\u2028\u2029end",
    "``` code `one` and ``two",
    "**bold** _it_ ~~gone~~ <b>tag</b> <script>",
    "&lt; &amp; &#124; <!-- comment",
    "[link](x) ![picture](y) <http://example.org>",
    "|---|---|",
    "1. $x$ \\(y\\)",
    "half \ud83d of a pair",
    "tab\tnul\0esc\x1b[31m 犬 \u200d 🙂",
    "word " * 39 + "wo...",
]


def test_no_text_breaks_the_page(tmp_path):
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])
    texts = [*HOSTILE[:-1], "word " * 10_000]
    write_neighbors(tmp_path, texts, draw(12, 4), draw(12, 4, seed=1), seed=42)
    expected = {" ".join(re.sub("[\0\x1b\ud83d]", " ", text).split()) for text in HOSTILE}
    shown, kinds = set(), set()
    for before, token in pairwise(parser.parse(page(tmp_path))):
        if token.type == "inline" and before.type != "th_open":
            kinds |= {child.type for child in token.children}
            shown.add(" ".join("".join(child.content for child in token.children).split()))
    others = ("Nearest neighbours", "Of 12 texts", "Below are")
    found = {text.removeprefix("Text: ").removeprefix("new: ") for text in shown if not text.startswith(others)}
    assert {text for text in found if not re.fullmatch(r"-?\d\.\d{3}", text)} == expected
    assert kinds <= {"text", "text_special", "strong_open", "strong_close"}


def test_searches_show_new_first_documents(tmp_path):
    before, after = torch.tensor([[0, 1, 2], [2, 1, 0]]), torch.tensor([[1, 3, 0], [2, 0, 1]])
    assert write_searches(tmp_path, ["q", "same"], list("abcd"), before, after, 0) == 0.5
    shown = (tmp_path / "searches.md").read_text()
    assert "Of 2 queries, 1 (50%)" in shown
    assert shown.endswith("| a | b |\n| b | **new:** d |\n| c | a |\n")


def test_twenty_of_the_changed_searches_are_drawn_by_the_seed(tmp_path):
    before = torch.tensor([[0, 1, 2]]).repeat(40, 1)
    after = before.clone()
    after[10:] = torch.tensor([1, 0, 2])
    pages = []
    for seed in (1, 1, 2):
        assert (
            write_searches(tmp_path, [f"q{i}" for i in range(40)], ["x" * 200, "y" * 201, "z"], before, after, seed)
            == 0.75
        )
        pages.append((tmp_path / "searches.md").read_text())
    queries = [re.findall(r"\*\*Query:\*\* q(\d+)", one) for one in pages]
    assert pages[0] == pages[1]
    assert queries[0] != queries[2]
    assert [len({*one}) for one in queries] == [20] * 3
    assert queries[0] == sorted(queries[0], key=int)
    assert min(map(int, queries[0])) >= 10
    assert f"| {'x' * 200} | {'y' * 197}... |" in pages[0], "200 characters are shown"
