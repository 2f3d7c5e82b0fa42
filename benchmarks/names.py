"""Row names that both the measurements and the tables use. They are here so that the tables need no torch."""

from __future__ import annotations

from pathlib import Path

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

OWN_ENCODER = "runs/own_encoder/encoder"
"""Where ``benchmarks.pretrain_encoder`` leaves its encoder."""

NAMED = ("minilm", "layers3", "own")
"""The encoders that ``benchmarks.domains.encoder`` knows by name."""

FLOOR_TEXTS = {"wiki": "wiki_sentences.txt.gz", "sts": "sts_unlabeled.txt.gz"}
"""The texts that the floors are fitted on: files of the data folder by their names in the records."""


def own_encoder_is_there() -> bool:
    """Whether the own encoder was made; a line says so if not."""
    if Path(OWN_ENCODER).is_dir():
        return True
    print(f"own: left out, there is no {OWN_ENCODER}: python -m benchmarks.pretrain_encoder makes it.", flush=True)
    return False
