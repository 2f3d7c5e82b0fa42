"""Rows for PaSeR, a small PaSeRLoss, and its decoder as a plain loop."""

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.losses import PaSeRLoss
from st_extras.losses.parts.phrase_decoder import PhraseDecoder
from st_extras.text import PhraseMasking
from tests.fixtures import SENTENCES
from tests.losses.cases import set_decoder_dropout

ROWS = PhraseMasking()(SENTENCES)
DATA: dict[str, list[str]] = {name: list(ROWS[name]) for name in ("sentence", "masked", "phrase")}


def features(model: SentenceTransformer, data: dict[str, list[str]] = DATA, rows: int = 6) -> list[dict[str, Any]]:
    return [model.preprocess(column[:rows]) for column in data.values()]


def one(sentence: str, masked: str, phrase: str) -> dict[str, list[str]]:
    return {"sentence": [sentence], "masked": [masked], "phrase": [phrase]}


def make_loss(model: SentenceTransformer, **options: Any) -> PaSeRLoss:
    torch.manual_seed(5)
    settings: dict[str, Any] = {"num_decoder_layers": 1, "mlm_weight": 0.0}
    loss = PaSeRLoss(model, **(settings | options))
    set_decoder_dropout(loss.decoder, 0.0)
    return loss


def loop_decoder(decoder: PhraseDecoder, words: Tensor, signal: Tensor) -> list[Tensor]:
    """The decoder for one phrase, (T, W), position by position over those before it."""
    memory = decoder.fit_signal(signal).unsqueeze(0)
    xs = torch.stack([decoder.norm(words[t] + decoder.positions.weight[t]) for t in range(len(words))]).unsqueeze(0)
    return [decoder.layers(xs[:, : t + 1], memory)[0, t] for t in range(len(words))]
