"""A raw BERT for pre-training: the random start, its masked language modelling objective, and the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from benchmarks.provenance import weights_hash
from st_extras.encoders import load_encoder
from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.rows import Features
from st_extras.losses.parts.masked_lm import MaskedLM
from st_extras.samples.encoder import packaged_minilm


class MaskedLMLoss(nn.Module):
    """BERT's objective on one column of sentences, with logits at the masked positions only.

    Args:
        model: the SentenceTransformer to train.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.masked_lm = MaskedLM(model)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        (sentence,) = sentence_features
        corrupted, drawn = self.masked_lm.corrupt(self.model, sentence)
        tokens = encode_tokens(self.model, corrupted).tokens[drawn]  # (N, D)
        words: Any = self.model.transformers_model.get_input_embeddings()  # type: ignore[union-attr]
        value: Tensor = self.masked_lm(tokens, sentence["input_ids"][drawn], words.weight)
        return value


def start_encoder(folder: Path, *, layers: int, width: int, max_length: int) -> SentenceTransformer:
    """Make a random BERT with a language modelling head, save it to ``folder`` and load it from there.

    Args:
        folder: where the checkpoint goes.
        layers: number of layers.
        width: hidden size; one attention head for each 64.
        max_length: longest input in tokens.
    """
    tokenizer = AutoTokenizer.from_pretrained(packaged_minilm(), model_max_length=max_length)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(width // 64, 1),
        intermediate_size=4 * width,
        max_position_embeddings=max_length,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_encoder(folder, pooling="mean", max_seq_length=max_length)


def export(loss: MaskedLMLoss, folder: Path) -> str:
    """Write encoder and head as one ``BertForMaskedLM`` with its tokenizer, and return the sha256 of the weights."""
    encoder: Any = loss.model.transformers_model
    full = BertForMaskedLM(encoder.config)
    own = {f"bert.{name}": value for name, value in encoder.state_dict().items()}
    head = loss.masked_lm.head.state_dict() | {"cls.predictions.bias": loss.masked_lm.bias}
    known = full.state_dict()
    tied = {"cls.predictions.decoder.weight": own["bert.embeddings.word_embeddings.weight"]}
    tied["cls.predictions.decoder.bias"] = loss.masked_lm.bias
    full.load_state_dict({name: value for name, value in (own | head | tied).items() if name in known})
    full.save_pretrained(folder)
    loss.model.tokenizer.save_pretrained(folder)
    return weights_hash(folder)
