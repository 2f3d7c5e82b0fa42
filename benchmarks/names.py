"""Row names that both the measurements and the tables use. They are here so that the tables need no torch."""

from __future__ import annotations

from pathlib import Path

KEPT = "adapt, keep_index"
"""What ``adapt`` chooses for a search if stored documents stay as they are."""

MNRL = "mnrl, two columns"
"""The case of ``benchmarks.speed`` that all steps are compared with: MultipleNegativesRankingLoss."""

FITTED = {
    "whitened 256": "whitened on the text",
    "whitened 256 + sentence term pooled": "whitened on the text, sentence term pooled",
}
"""Variants of ``benchmarks.repal``, and their names when whitening is fitted on the training text."""

UNSEEN = {
    "whitened 256": "whitened on the text without the test sentences",
    "whitened 256 + sentence term pooled": "whitened on the text without the test sentences, sentence term pooled",
}
"""The same variants, and their names when the training text is fitted on without the sentences of the test sets."""

PRETRAINED = {"own": "runs/own_encoder/encoder", "better": "runs/own_encoder_better/encoder"}
"""Where ``benchmarks.pretrain_encoder`` leaves its encoders: without a recipe, and with ``--recipe better``."""

NAMED = ("minilm", "layers3", "own")
"""The encoders of the domain study and of RepAL's analyses; ``benchmarks.domains.encoder`` loads them by name."""

TRANSFORMS = {
    "slight neighbour transform": "neighbours, slight",
    "gentle neighbour transform": "neighbours, gentle",
    "medium neighbour transform": "neighbours, medium",
    "whitening neighbour transform": "neighbours, white",
}
"""What the records call the transforms that ``adapt`` tries."""

FLOOR_TEXTS = {"wiki": "wiki_sentences.txt.gz", "sts": "sts_unlabeled.txt.gz"}
"""The texts that the floors are fitted on: files of the data folder by their names in the records."""


def is_there(name: str) -> bool:
    """Whether the encoder of this name is there; a line says so if it is one of PRETRAINED that was not made yet."""
    path = PRETRAINED.get(name)
    if path is None or Path(path).is_dir():
        return True
    recipe = "" if name == "own" else f" --recipe {name}"
    print(f"{name}: left out, there is no {path}: python -m benchmarks.pretrain_encoder{recipe} makes it.", flush=True)
    return False
