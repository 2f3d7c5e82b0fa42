"""PaSeR: a sentence embedding from which a decoder can write the phrase that its masked copy lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from st_extras.base_loss import base_mode, base_value, base_views, check_base_loss
from st_extras.encoders import (
    Encoded,
    check_terms,
    embedding_dimension,
    encode,
    require_synchronised,
    unwrap,
    without_dropout,
)
from st_extras.functional import check_not_negative, full_precision
from st_extras.masked_lm import MaskedLM, vocabulary_cross_entropy
from st_extras.phrase_decoder import (
    PhraseDecoder,
    check_phrase_columns,
    check_phrase_tokenizer,
    phrase_brackets,
    without_prompt,
)
from st_extras.rows import Features, split_rows


def decoding_signal(sentence: Tensor, masked: Tensor, difference_scale: float, product_scale: float) -> Tensor:
    """Eq. 2: [E_s, E_m, m |E_s - E_m|, n |E_s * E_m|], from (B, D) twice to (B, 4, D) in float32."""
    sentence, masked = full_precision(sentence), full_precision(masked)
    difference = difference_scale * (sentence - masked).abs()
    return torch.stack([sentence, masked, difference, product_scale * (sentence * masked).abs()], dim=1)


class PaSeRLoss(nn.Module):
    """Write a masked phrase from the embeddings of the sentence with and without it (Wu and Zhao, 2022).

    For a sentence s, its copy m without the phrase t_1 ... t_k, and t_{k+1} the closing separator::

        signal = [E_s, E_m, m |E_s - E_m|, n |E_s * E_m|]                     (eq. 2; four vectors attended to)
        generative = mean_i -log P_decoder(t_i | t_<i, signal)                (eq. 3)
        loss = generative + MLM                                               (eq. 4)
        loss = base + alpha generative                                        (eq. 5, with a ``base_loss``)

    The decoder starts at random, reads and writes with the encoder's own word embedding, and belongs to the loss:
    nothing of it is in the saved model. It learns at a rate of its own (``train_encoder(loss_learning_rate=1e-3)``)
    far better than at the encoder's. Vocabulary-sized logits are computed at the target positions alone.

    Args:
        model: the SentenceTransformer to train; its tokenizer needs a mask token.
        num_decoder_layers: layers of the transformer decoder (paper: best near 6; its figure 4 tries 1 to 8).
        difference_scale: m.
        product_scale: n.
        generative_weight: alpha.
        mlm_weight: weight of masked language modelling on the sentence: 15 % of its tokens, 80/10/10, by the
            checkpoint's own head where it has one. 0: off. None: 1 without a base loss, 0 with one.
        base_loss: a loss on the same model with ``compute_loss_from_embeddings``, as
            ``MultipleNegativesRankingLoss(model)``, that gets every column but the last two.
        decoder_dropout: dropout of the decoder.
        max_phrase_length: tokens of the longest phrase, opening and closing token included.
            None: ``model.max_seq_length``, at most 512.
        generator: the random source of the MLM corruption, on the model's device. None: made from torch's seed.

    Attributes (0-dim tensor, of the last training step):
        truncated_phrases: rows left out because ``max_seq_length`` cut their phrase off.

    Inputs:
        +------------------------------------------------+----------------+
        | Columns                                        | Labels         |
        +================================================+================+
        | sentence, masked, phrase                       | none           |
        +------------------------------------------------+----------------+
        | with base_loss: its columns, masked, phrase    | the base's     |
        +------------------------------------------------+----------------+

    The first column is the sentence that ``masked`` and ``phrase`` belong to; :class:`PhraseMasking` makes them.

    Differs from the paper: eq. 3 is a sum over the phrase, here (as in the code) a mean over the batch's tokens.
    Differs from the authors' code: there E_m passes a linear layer, difference and product keep their sign, and one
    head serves MLM and decoder. Paper (BERT base): all STS sentences, RAKE top 3, synonym replacement, [CLS],
    max length 32, learning rate 3e-5, batch 32, 64 or 96. Script: 5 epochs, batch 64.

    Example:
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from st_extras.losses import PaSeRLoss
        >>> from st_extras.text.phrases import PhraseMasking
        >>> model = SentenceTransformer("bert-base-uncased")  # doctest: +SKIP
        >>> data = PhraseMasking().dataset(["A plane is taking off.", "A man plays a flute."])  # doctest: +SKIP
        >>> SentenceTransformerTrainer(model, train_dataset=data, loss=PaSeRLoss(model)).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        num_decoder_layers: int = 6,
        difference_scale: float = 10.0,
        product_scale: float = 10.0,
        generative_weight: float = 1.0,
        mlm_weight: float | None = None,
        base_loss: nn.Module | None = None,
        decoder_dropout: float = 0.1,
        max_phrase_length: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if num_decoder_layers < 1 or int(num_decoder_layers) != num_decoder_layers:
            raise ValueError(f"num_decoder_layers must be an integer >= 1, got {num_decoder_layers!r}.")
        if not 0 <= decoder_dropout < 1:
            raise ValueError(f"decoder_dropout must be in [0, 1), got {decoder_dropout!r}.")
        if max_phrase_length is not None and max_phrase_length < 3:
            raise ValueError(f"max_phrase_length must be >= 3 (a token between two), got {max_phrase_length!r}.")
        if base_loss is not None:
            check_base_loss(base_loss, model)
        check_phrase_tokenizer(model)
        self.model = model
        self.num_decoder_layers = int(num_decoder_layers)
        self.difference_scale = check_not_negative("difference_scale", difference_scale)
        self.product_scale = check_not_negative("product_scale", product_scale)
        self.generative_weight = check_not_negative("generative_weight", generative_weight)
        default = 1.0 if base_loss is None else 0.0
        self.mlm_weight = check_not_negative("mlm_weight", default if mlm_weight is None else mlm_weight)
        if base_loss is None and not (self.generative_weight or self.mlm_weight):
            raise ValueError("generative_weight and mlm_weight are both 0: nothing is left.")
        self.base_loss = base_loss
        self.max_phrase_length = max_phrase_length or min(model.max_seq_length or 512, 512)
        sizes = self._words.weight.size(1), embedding_dimension(model), self.num_decoder_layers
        self.decoder = PhraseDecoder(*sizes, decoder_dropout, self.max_phrase_length).to(model.device)
        self.masked_lm = MaskedLM(model, generator=generator).to(model.device) if self.mlm_weight > 0 else None
        self.truncated_phrases = torch.tensor(0)

    @property
    def _words(self) -> nn.Embedding:
        """The encoder's word embedding, looked up anew each time: resizing the vocabulary replaces it."""
        encoder: Any = unwrap(self.model).transformers_model
        return cast(nn.Embedding, encoder.get_input_embeddings())

    def forward(
        self, sentence_features: Iterable[Features], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """The weighted terms of a batch; the generative one alone as a scalar where there is no other."""
        if self.masked_lm is not None or self.base_loss is not None:
            check_terms(self.model, "use mlm_weight=0 and no base_loss")
        columns = list(sentence_features)
        shown = check_phrase_columns(columns, self.model, self.max_phrase_length, with_base=self.base_loss is not None)
        *base_columns, masked, phrase = columns
        sentence = base_columns[0]
        require_synchronised(self.decoder)
        if torch.is_grad_enabled():
            self.truncated_phrases = (~shown).sum()
        base_rows, count = (sentence, 1) if self.base_loss is None else base_views(self.base_loss, base_columns)
        own = [masked]
        if self.masked_lm is not None:
            corrupted, drawn = self.masked_lm.corrupt(self.model, sentence)
            own.append(corrupted)
        encoded = self._encode(base_rows, count, own)
        embeddings = [rows.sentence for rows in encoded]
        generative = self.compute_generative_loss(embeddings[0], embeddings[count], phrase, shown)
        terms = {"generative": self.generative_weight * generative}
        if self.masked_lm is not None:
            tokens = encoded[-1].tokens[:, : drawn.size(1)][drawn]  # (N, hidden)
            targets = sentence["input_ids"][drawn]
            terms["mlm"] = self.mlm_weight * self.masked_lm(tokens, targets, self._words.weight)
        if self.base_loss is not None:
            base = base_value(self.base_loss, embeddings[:count], labels, base_columns)
            terms |= base if isinstance(base, dict) else {"base": base}
        return terms if len(terms) > 1 else terms["generative"]

    def compute_generative_loss(
        self, sentence: Tensor, masked: Tensor, phrase: Features, shown: Tensor | None = None
    ) -> Tensor:
        """Eq. 3, a mean over the tokens of all phrases and their closing separators.

        Args:
            sentence, masked: (B, D) embeddings.
            phrase: the tokenized phrases, (B, T): opening token, t_1 ... t_k, separator; a prompt is left out.
            shown: (B,) bool, the rows that count; None: all.
        """
        phrase = without_prompt(self.model, phrase)
        ids, mask = phrase["input_ids"], phrase["attention_mask"].bool()
        counted = mask[:, 1:] if shown is None else mask[:, 1:] & shown.unsqueeze(1)
        signal = decoding_signal(sentence, masked, self.difference_scale, self.product_scale)
        with nullcontext() if torch.is_grad_enabled() else without_dropout(self.decoder):
            hidden: Tensor = self.decoder(self._words(ids[:, :-1]), signal)  # (B, T-1, W); position t predicts t+1
        return vocabulary_cross_entropy(hidden[counted], self._words.weight, ids[:, 1:][counted])

    @torch.no_grad()
    def reconstruct(
        self,
        sentences: Sequence[str],
        masked: Sequence[str],
        *,
        prompt: str | None = None,
        batch_size: int = 32,
        max_length: int = 16,
    ) -> list[str]:
        """The phrases that the decoder writes for sentences and their masked copies, greedily (table 7).

        Args:
            sentences, masked: as in the columns that the loss trains on.
            prompt: what the trainer put before both.
            batch_size: sentences decoded at a time.
            max_length: tokens at which a phrase without a separator ends.
        """
        if len(sentences) != len(masked):
            raise ValueError(f"sentences and masked must be equally many, got {len(sentences)}, {len(masked)}.")
        length = min(max_length, self.max_phrase_length - 1)
        written: list[str] = []
        with without_dropout(self):
            for i in range(0, len(sentences), batch_size):
                texts = [*sentences[i : i + batch_size], *masked[i : i + batch_size]]
                ids = self._write(texts, prompt, length)
                written += unwrap(self.model).tokenizer.batch_decode(ids, skip_special_tokens=True)
        return written

    def _write(self, texts: Sequence[str], prompt: str | None, length: int) -> list[list[int]]:
        """The ids of the phrases, texts being the sentences and then their masked copies."""
        model = unwrap(self.model)
        rows = batch_to_device(model.preprocess(list(texts), prompt=prompt), model.device)
        whole, masked_too = model(rows)["sentence_embedding"].chunk(2)
        signal = decoding_signal(whole, masked_too, self.difference_scale, self.product_scale)
        opening, closing = phrase_brackets(model)
        words = self._words.weight
        ids = torch.full((len(whole), 1), opening, device=model.device)
        for _ in range(length):
            hidden = self.decoder(self._words(ids), signal)[:, -1].to(words.dtype)  # (B, W)
            ids = torch.cat([ids, (hidden @ words.T).argmax(dim=1, keepdim=True)], dim=1)
        return [row[1 : [*row, closing].index(closing, 1)] for row in ids.tolist()]

    def _encode(self, base_rows: Features, count: int, own: Sequence[Features]) -> list[Encoded]:
        """``count`` views of the base and our own blocks, (B, ...) each, from one pass where they can be merged."""
        blocks = [*split_rows(base_rows, count), *own]
        with base_mode(self.base_loss, self.model):
            merged = merge_feature_batches(blocks)
            if merged is not None:
                return _split_encoded(encode(self.model, merged), len(blocks))
            parts = _split_encoded(encode(self.model, base_rows), count)
            return parts + [encode(self.model, block) for block in own]

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        names = ("difference_scale", "product_scale", "generative_weight", "mlm_weight", "max_phrase_length")
        base = None if self.base_loss is None else type(self.base_loss).__name__
        own = {"num_decoder_layers": self.num_decoder_layers, "base_loss": base}
        return own | {name: getattr(self, name) for name in names}

    @property
    def citation(self) -> str:
        """BibTeX of the paper."""
        return """
@inproceedings{wu2022sentence,
    title = "Sentence Representation Learning with Generative Objective rather than Contrastive Objective",
    author = "Wu, Bohong and Zhao, Hai",
    booktitle = "Proceedings of the 2022 Conference on Empirical Methods in Natural Language Processing",
    year = "2022",
    url = "https://aclanthology.org/2022.emnlp-main.221",
}
"""


def _split_encoded(encoded: Encoded, count: int) -> list[Encoded]:
    parts = zip(*(value.chunk(count) for value in vars(encoded).values()), strict=True)
    return [Encoded(*part) for part in parts]
