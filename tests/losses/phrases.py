"""Rows for PaSeR, a small PaSeRLoss, and its decoder as a plain loop."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.losses import PaSeRLoss
from st_extras.losses.parts.phrase_decoder import PhraseDecoder
from st_extras.text import PhraseMasking
from tests.fixtures import SENTENCES

ROWS = PhraseMasking()(SENTENCES)
DATA: dict[str, list[str]] = {name: list(ROWS[name]) for name in ("sentence", "masked", "phrase")}


def features(model: SentenceTransformer, data: dict[str, list[str]] = DATA, rows: int = 6) -> list[dict[str, Any]]:
    return [model.preprocess(column[:rows]) for column in data.values()]


def one(sentence: str, masked: str, phrase: str) -> dict[str, list[str]]:
    return {"sentence": [sentence], "masked": [masked], "phrase": [phrase]}


def make_loss(model: SentenceTransformer, **options: Any) -> PaSeRLoss:
    torch.manual_seed(5)
    settings: dict[str, Any] = {"num_decoder_layers": 1, "decoder_dropout": 0.0, "mlm_weight": 0.0}
    return PaSeRLoss(model, **(settings | options))


def attend(layer: nn.MultiheadAttention, query: Tensor, keys: list[Tensor]) -> Tensor:
    """One query over keys, head by head, in plain loops."""
    width = query.numel()
    size = width // layer.num_heads
    w, b = layer.in_proj_weight, layer.in_proj_bias
    q = w[:width] @ query + b[:width]
    ks = [w[width : 2 * width] @ k + b[width : 2 * width] for k in keys]
    vs = [w[2 * width :] @ k + b[2 * width :] for k in keys]
    heads = []
    for h in range(layer.num_heads):
        part = slice(h * size, (h + 1) * size)
        scores = [math.exp((q[part] @ k[part]).item() / math.sqrt(size)) for k in ks]
        total = sum(scores)
        heads.append(sum(s / total * v[part] for s, v in zip(scores, vs, strict=True)))
    return layer.out_proj.weight @ torch.cat(heads) + layer.out_proj.bias  # type: ignore[arg-type]


def loop_decoder(decoder: PhraseDecoder, words: Tensor, signal: Tensor) -> list[Tensor]:
    """The decoder for one phrase, (T, W), position by position."""
    layer: Any = decoder.layers.layers[0]
    memory = [decoder.fit_signal(v) for v in signal]
    xs = [decoder.norm(words[t] + decoder.positions.weight[t]) for t in range(len(words))]
    out = []
    for t, x in enumerate(xs):
        x = layer.norm1(x + attend(layer.self_attn, x, xs[: t + 1]))
        x = layer.norm2(x + attend(layer.multihead_attn, x, memory))
        out.append(layer.norm3(x + layer.linear2(F.gelu(layer.linear1(x)))))
    return out
