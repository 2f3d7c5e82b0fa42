"""Nearest neighbours and search results before and after an adaptation, as Markdown to read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from unicodedata import category

import torch
from torch import Tensor

from st_extras.evaluation.reporting import check_embeddings

TEXT_FILE = "neighbors.md"
SEARCHES = "searches.md"
_NEAREST = 3
_EXAMPLES = 20  # texts or queries that are shown
_LONGEST = 200  # characters of a text that are shown
_ROUNDING = (
    1e-6  # how far an embedding of length 1 may be moved by another batch: its cosines, by this times their sine
)
_FOLDS = (
    "Each text is shown with the change computed without it, and its neighbours are those of the same part of the "
    "texts; the saved model is computed from all of them."
)
_ALL = "The change was computed from these texts among others."
_ESCAPED = {ord(sign): f"\\{sign}" for sign in "`*_[]<>&~$"} | {ord("|"): "&#124;", ord("\\"): "&#92;"}


def write_neighbors(
    folder: Path, texts: Sequence[str], before: Tensor, after: Tensor, *, folds: int = 0, seed: int
) -> float:
    """Write the nearest neighbours of texts before and after a change of their embeddings.

    ``neighbors.md`` shows how many of the texts have other neighbours than before, and some of these. Neighbours that
    are equally near, as far as float32 embeddings can tell, count as the same.

    Args:
        folder: an existing folder; a file of the same name is replaced.
        texts: N different texts, 4 to several thousand (for each fold): the cosines of all pairs are held.
        before: (N, D) embeddings, D >= 2.
        after: (N, D') embeddings of the same texts, D' >= 2.
        folds: of how many parts, one after the other as by ``torch.tensor_split``, each has a change that was computed
            without its texts: neighbours are then those within the part. 0: one change of all texts, which it was
            computed from.
        seed: of the draw of 20 texts that are shown.

    Returns:
        The share of texts with another nearest neighbour.

    Raises:
        ValueError: if an embedding is zero or not finite.
    """
    base, end = (check_embeddings(name, x) for name, x in (("before", before), ("after", after)))
    near_base, near_end = nearest(base, folds), nearest(end, folds)
    changed = _farther(end, near_base, near_end)
    candidates = changed[_NEAREST - 1].nonzero().flatten().tolist()
    shown = sorted(random.Random(seed).sample(candidates, min(_EXAMPLES, len(candidates))))
    parts = [_summary(len(texts), changed, len(shown), folds)]
    parts += [_example(texts, row, (base, near_base), (end, near_end)) for row in shown]
    (folder / TEXT_FILE).write_text("\n\n".join(parts) + "\n", encoding="utf8")
    return float(changed[0].double().mean())


def write_searches(
    folder: Path, queries: Sequence[str], documents: Sequence[str], before: Tensor, after: Tensor, seed: int
) -> float:
    """Write ``searches.md``: queries whose first document is another than before, with the three first of both.

    Args:
        folder: an existing folder.
        queries: Q texts.
        documents: N texts, 3 or more.
        before: (Q, 3) numbers of the first documents of each query by the base model.
        after: (Q, 3) likewise, after the change.
        seed: of the draw of 20 queries that are shown.

    Returns:
        The share of queries with another first document.
    """
    changed = (before[:, 0] != after[:, 0]).nonzero().flatten().tolist()
    share = len(changed) / len(queries)
    parts = [
        "# Searches before and after\n\n"
        f"Of {len(queries)} queries, {len(changed)} ({share:.0%}) find another document first than before. Other "
        "documents are not better ones: read some and judge for yourself."
    ]
    for row in sorted(random.Random(seed).sample(changed, min(_EXAMPLES, len(changed)))):
        lines = [f"**Query:** {_escaped(queries[row])}", "", "| before | after |", "|---|---|"]
        olds, news = before[row].tolist(), after[row].tolist()
        for old, new in zip(olds, news, strict=True):
            mark = "" if new in olds else "**new:** "
            lines.append(f"| {_escaped(documents[old])} | {mark}{_escaped(documents[new])} |")
        parts.append("\n".join(lines))
    (folder / SEARCHES).write_text("\n\n".join(parts) + "\n", encoding="utf8")
    return share


def nearest(unit: Tensor, folds: int = 0) -> Tensor:
    """Return the numbers (N, 3) of the nearest other rows of each of N unit rows in float64, within each fold."""
    neighbors, first = [], 0
    for part in unit.tensor_split(folds or 1):
        cosines = (part @ part.T).fill_diagonal_(-torch.inf)
        neighbors.append(first + cosines.topk(min(_NEAREST, len(part) - 1), dim=1).indices)
        first += len(part)
    return torch.cat(neighbors)


def _cosines_to(unit: Tensor, near: Tensor) -> Tensor:
    """Return the (N, 3) cosines with these neighbours."""
    return (unit.unsqueeze(1) * unit[near]).sum(dim=2)


def _farther(end: Tensor, near_base: Tensor, near_end: Tensor) -> Tensor:
    """Return (3, N): whether one of the text's k nearest by the base model is no longer among them, for k = 1, 2, 3."""
    farthest_old, nearest_new = _cosines_to(end, near_base).cummin(dim=1).values, _cosines_to(end, near_end)
    sines = (1 - nearest_new.square()).clamp_min(0).sqrt()
    return (farthest_old < nearest_new - _ROUNDING * sines).T


def _summary(count: int, changed: Tensor, shown: int, folds: int) -> str:
    first, three = (int(changed[k - 1].sum()) for k in (1, _NEAREST))
    text = (
        "# Nearest neighbours before and after\n\n"
        f"Of {count} texts, {first} ({first / count:.0%}) have another nearest neighbour than before, and {three} "
        f"({three / count:.0%}) have others among their three nearest. {_FOLDS if folds else _ALL} Other neighbours "
        "are not better ones: read some and judge for yourself."
    )
    if not shown:
        return text
    return f"{text}\n\nBelow are {shown} of the {three}, drawn at random. Compare cosines within a column only."


def _example(texts: Sequence[str], row: int, base: tuple[Tensor, Tensor], end: tuple[Tensor, Tensor]) -> str:
    """Return a text with its neighbours, those that are new in bold, as a table."""
    lines = [f"**Text:** {_escaped(texts[row])}", "", "| before | cosine | after | cosine |", "|---|---:|---|---:|"]
    olds, news = ([(at, float(unit[row] @ unit[at])) for at in near[row].tolist()] for unit, near in (base, end))
    for (old, old_cosine), (new, new_cosine) in zip(olds, news, strict=True):
        mark = "" if new in dict(olds) else "**new:** "
        lines.append(f"| {_escaped(texts[old])} | {old_cosine:.3f} | {mark}{_escaped(texts[new])} | {new_cosine:.3f} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Return a text on one line, cut if it is long, that Markdown shows as it is, also in a table."""
    line = " ".join(text.split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3].rstrip()}..."
    line = "".join(" " if category(sign) in ("Cc", "Cs") else sign for sign in line)  # control codes, lone surrogates
    return line.strip().translate(_ESCAPED)
