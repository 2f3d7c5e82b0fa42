"""PaSeR: sentence embeddings from which a decoder can generate the phrase that a masked copy lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from st_extras.checks import check_count, check_weight
from st_extras.citations import CITATIONS
from st_extras.encoders.distributed import require_synchronised
from st_extras.encoders.forward import without_dropout
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import check_token_embeddings, embedding_dimension, fix_padding_side, unwrap
from st_extras.losses.parts import wrapping
from st_extras.losses.parts.batch_checks import BatchChecks
from st_extras.losses.parts.masked_lm import MaskedLM
from st_extras.losses.parts.phrase_columns import bracketed, check_phrase_columns, check_tokenizer, phrase_brackets
from st_extras.losses.parts.phrase_decoder import PhraseDecoder, word_embedding
from st_extras.text.corpus import iterate_sentences


class PaSeRLoss(nn.Module):
    """Train sentence embeddings from which a decoder can generate the phrase that a masked copy of the sentence lacks.

    The objective is generative: nothing is pushed apart, so similar or identical sentences in a batch do no harm. Use
    it on an encoder that was pre-trained by masked language modelling, with sentences that have phrases to mask. It
    costs more than a contrastive loss, as it encodes three rows per sentence and also runs a decoder.

    Paper: PaSeR, Wu and Zhao, 2022, https://aclanthology.org/2022.emnlp-main.221.
    Code: https://github.com/chengzhipanpan/PaSeR.

    For a sentence s, its copy s' without the phrase t_1 ... t_k, and t_{k+1} the closing separator::

        signal = [E_s, E_s', m |E_s - E_s'|, n |E_s * E_s'|]                  (eq. 2 with m = n = 10; attended to)
        generative = mean_i -log P_decoder(t_i | t_<i, signal)                (eq. 3)
        loss = generative + MLM                                               (eq. 4)
        loss = base + alpha generative                                        (eq. 5, with a ``base_loss``)

    The decoder is initialized at random, uses the encoder's word embedding as input layer (and as output layer, see
    ``decoder_output``), and belongs to the loss: nothing of it is in the saved model. Give it a higher learning rate
    than the encoder's (``train_encoder(loss_learning_rate=1e-3)``). Vocabulary-sized logits are computed at the target
    positions only.

    Args:
        model: the SentenceTransformer to train.
        num_decoder_layers: layers of the transformer decoder (the paper's figure 4 tries 1 to 8, best near 6).
        generative_weight: alpha.
        mlm_weight: weight of masked language modelling on the sentence: 15 % of its tokens are drawn (80 % of them
            masked, 10 % replaced at random, 10 % unchanged), with the checkpoint's own head if it has one. 0: off.
            None: 1 without a base loss, 0 with one.
        base_loss: a loss on the same model with ``compute_loss_from_embeddings``, such as
            ``MultipleNegativesRankingLoss(model)``; it gets all columns except the last two.
        decoder_output: the decoder's output layer. "tied": the encoder's word embedding, which is trained through it
            too. "detached": the word embedding, not trained through it. "own": a head like BERT's (dense, GELU,
            LayerNorm, vocabulary) that belongs to the loss, as in the authors' code: it costs a matrix of the
            vocabulary's size.
        decoder_warmup_steps: number of training forward passes in which phrases and MLM train only the decoder and the
            head, on detached embeddings, so that their initial noise does not reach the encoder. A base loss trains it
            from the first step.
        on_missing_mask: what to do if the tokenizer has no mask token: "error", or "delete" for rows from which the
            phrase is deleted, as ``PhraseMasking(mask_token=None, on_missing_mask="delete")`` makes them.
        generator: torch.Generator of the MLM corruption, on the model's device. None: one is made from torch's seed.

    Attributes:
        steps: training forward passes so far (0-dim tensor).
        truncated_phrases: number of rows left out of the last one because ``max_seq_length`` cut off the masks of
            their phrase (0-dim tensor).
        instruments: the figures to log, by name: this number, and those of the base loss.

    Inputs:
        +------------------------------------------------+----------------+
        | Columns                                        | Labels         |
        +================================================+================+
        | sentence, masked, phrase                       | none           |
        +------------------------------------------------+----------------+
        | with base_loss: its columns, masked, phrase    | the base's     |
        +------------------------------------------------+----------------+

    The first column is the sentence that ``masked`` and ``phrase`` belong to;
    :class:`~st_extras.text.PhraseMasking` makes them.

    Works with: transformers with a mask token, and decoders without one (``on_missing_mask="delete"``,
    ``mlm_weight=0``); prompts, LoRA, several processes (with :class:`~st_extras.training.LossStateCallback` attached);
    MatryoshkaLoss: phrases and base at every dimension, MLM once per step, and the value is the sum of all terms.
    Refuses: AdaptiveLayerLoss; phrases of more tokens than the encoder reads, or than 512; tokenizers without a token
    that ends a sequence; MLM where tokens are pooled inside (Funnel without its decoder); a Router with several
    encoders, flattened (unpadded) features.

    Differs from the paper: eq. 3 sums over each phrase; like the authors' code, we average over all tokens of a batch.
    ``on_missing_mask="delete"`` and ``decoder_warmup_steps`` are ours.
    Differs from the authors' code: there, E_s' first passes a linear layer, difference and product keep their sign, a
    separate head serves both MLM and decoder, and the decoder is initialized from N(0, 0.02).
    Paper (BERT base): all STS sentences, RAKE top 3, synonym replacement, [CLS],
    max length 32, learning rate 3e-5, batch 32, 64 or 96. The authors' code: 5 epochs, batch 64.

    Example:
        >>> from datasets import disable_progress_bars
        >>> from st_extras.losses import PaSeRLoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.text import PhraseMasking
        >>> from st_extras.training import train_encoder
        >>> disable_progress_bars()
        >>> model = raw_encoder()  # the packaged demo encoder; any BERT-like SentenceTransformer will do
        >>> rows = PhraseMasking(mask_token=model.tokenizer.mask_token).dataset(sample_sentences()[:64])
        >>> loss = PaSeRLoss(model, num_decoder_layers=1)
        >>> options = {"max_steps": 1, "loss_learning_rate": 1e-3, "show_progress_bar": False}
        >>> train_encoder(model, loss, rows, "paser", no_duplicates=False, **options).steps
        1
    """

    steps: Tensor

    citation = CITATIONS["wu2022sentence"]

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        num_decoder_layers: int = 6,
        generative_weight: float = 1.0,
        mlm_weight: float | None = None,
        base_loss: nn.Module | None = None,
        decoder_output: Literal["tied", "own", "detached"] = "tied",
        decoder_warmup_steps: int = 0,
        on_missing_mask: Literal["error", "delete"] = "error",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if base_loss is not None:
            wrapping.check_base_loss(base_loss, model)
        fix_padding_side(model)
        self.on_missing_mask = check_tokenizer(model, on_missing_mask)
        self.model = model
        self.generative_weight = check_weight("generative_weight", generative_weight)
        self.mlm_weight = check_weight("mlm_weight", float(base_loss is None) if mlm_weight is None else mlm_weight)
        if base_loss is None and not (self.generative_weight or self.mlm_weight):
            raise ValueError("generative_weight must be > 0 if mlm_weight is 0 and base_loss is None, got 0.")
        self.base_loss = base_loss
        self.base_checks = BatchChecks(type(base_loss).__name__)
        self.decoder_warmup_steps = check_count("decoder_warmup_steps", decoder_warmup_steps)
        self.decoder = PhraseDecoder(
            word_embedding(model),
            embedding_dimension(model),
            layers=num_decoder_layers,
            output=decoder_output,
            max_length=min(model.max_seq_length or 512, 512),
        ).to(model.device)
        self.masked_lm = MaskedLM(model, generator=generator).to(model.device) if self.mlm_weight > 0 else None
        self.register_buffer("steps", torch.tensor(0))
        self.truncated_phrases = torch.tensor(0)

    def forward(
        self, sentence_features: Iterable[Features], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """Return the weighted terms of a batch; a scalar if there is one, and their sum inside MatryoshkaLoss."""
        repeated = wrapping.is_repeated(self.model)
        columns = list(sentence_features)
        shown = check_phrase_columns(columns, self.model, self.decoder.max_length, with_base=self.base_loss is not None)
        (sentence, *_), (*base_columns, masked, phrase) = columns, columns
        require_synchronised(self.decoder)
        if torch.is_grad_enabled():
            self.truncated_phrases = (~shown).sum()
            self.steps += not repeated
        warming = self.decoder_warmup_steps > 0 and int(self.steps) <= self.decoder_warmup_steps
        added, drawn = [masked], None
        if self.masked_lm is not None:
            corrupted, drawn = (sentence, None) if repeated else self.masked_lm.corrupt(self.model, sentence)
            added.append(corrupted)
        views, others = wrapping.encode_with_base(self.model, self.base_loss, base_columns, added)
        whole, lacking, tokens = views[0].sentence, others[0].sentence, others[-1].tokens  # (B, D), (B, D), (B, L, .)
        word_vectors = word_embedding(self.model).weight  # (V, W)
        if warming:
            whole, lacking, tokens, word_vectors = (x.detach() for x in (whole, lacking, tokens, word_vectors))
        generative = self.compute_generative_loss(whole, lacking, phrase, shown, train_words=not warming)
        terms = {"generative": self.generative_weight * generative}
        if self.masked_lm is not None and drawn is not None:
            check_token_embeddings(tokens, others[-1].input_ids, "Masked language modelling", "set mlm_weight=0")
            tokens = tokens[:, : drawn.size(1)][drawn]  # (N, hidden)
            terms["mlm"] = self.mlm_weight * self.masked_lm(tokens, sentence["input_ids"][drawn], word_vectors)
        if self.base_loss is not None:
            embeddings = [view.sentence for view in views]  # (B, D) each
            terms |= wrapping.base_value(self.base_loss, embeddings, labels, base_columns, self.base_checks)
        return wrapping.sum_if_truncated(self.model, terms) if len(terms) > 1 else terms["generative"]

    def compute_generative_loss(
        self, sentence: Tensor, masked: Tensor, phrase: Features, shown: Tensor | None = None, train_words: bool = True
    ) -> Tensor:
        """Return eq. 3, a mean over the tokens of all phrases and their closing separators.

        Args:
            sentence: (B, D) embeddings of the sentences.
            masked: (B, D) embeddings of their masked copies.
            phrase: the tokenized phrases, (B, T): opening token, t_1 ... t_k, separator; a prompt is ignored.
            shown: (B,) bool, the rows that count. None: all.
            train_words: whether the encoder's word embedding is trained, as far as ``decoder_output`` allows it.
        """
        phrase = bracketed(self.model, phrase)
        counted = phrase["attention_mask"][:, 1:].bool()
        counted = counted if shown is None else counted & shown.unsqueeze(1)
        signal, embedding = self.decoder.make_signal(sentence, masked), word_embedding(self.model)
        return self.decoder.cross_entropy(phrase["input_ids"], counted, signal, embedding, train_words=train_words)

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
        """Generate the missing phrases greedily from sentences and their masked copies (table 7).

        Args:
            sentences: sentences like those of the training column.
            masked: their masked copies.
            prompt: the prompt that the trainer put before both.
            batch_size: number of sentences decoded at a time.
            max_length: most tokens of a phrase.

        Raises:
            ValueError: if ``sentences`` and ``masked`` differ in length, or a number is not a whole one >= 1.
        """
        batch_size = check_count("batch_size", batch_size, at_least=1)
        max_length = check_count("max_length", max_length, at_least=1)
        sentences, masked = list(iterate_sentences(sentences)), list(iterate_sentences(masked, name="masked"))
        if len(sentences) != len(masked):
            raise ValueError(f"masked must have {len(sentences)} texts, one for each sentence, got {len(masked)}.")
        model, phrases = unwrap(self.model), []
        with without_dropout(self):
            for i in range(0, len(sentences), batch_size):
                texts = [*sentences[i : i + batch_size], *masked[i : i + batch_size]]
                rows = batch_to_device(model.preprocess(texts, prompt=prompt), model.device)
                signal = self.decoder.make_signal(*model(rows)["sentence_embedding"].chunk(2))  # (B, 4, D)
                ids = self.decoder.generate(word_embedding(model), signal, phrase_brackets(model), max_length)
                phrases += model.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return phrases

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        names = "generative_weight", "mlm_weight", "decoder_warmup_steps", "on_missing_mask"
        base = None if self.base_loss is None else type(self.base_loss).__name__
        return {"base_loss": base, **self.decoder.config, **{name: getattr(self, name) for name in names}}

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The number of rows left out of the last training batch, and the base loss's figures."""
        return {"truncated_phrases": self.truncated_phrases} | wrapping.gather_instruments(base=self.base_loss)
