"""Masked language modelling beside another objective: corrupted copies of a batch, and the prediction head."""

from __future__ import annotations

import logging
from typing import Any, cast

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders.rows import content_mask
from st_extras.encoders.structure import token_embedding_dimension, unwrap
from st_extras.functional import full_precision
from st_extras.random_source import RandomSource

logger = logging.getLogger(__name__)


def vocabulary_cross_entropy(hidden: Tensor, embedding: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the mean over N positions of -log softmax(embedding @ hidden + bias)[target]; 0 if N is 0.

    Only the target positions are passed in, so the logits are (N, V) instead of (B, L, V).

    Args:
        hidden: (N, W).
        embedding: (V, W), the word embedding.
        targets: (N,) ids.
        bias: (V,), or another length if the vocabulary has been resized since: new words have bias 0.
    """
    if bias is not None:
        bias = F.pad(bias, (0, embedding.size(0) - bias.size(0))).to(embedding.dtype)
    logits = F.linear(hidden.to(embedding.dtype), embedding, bias)
    losses = F.cross_entropy(full_precision(logits), targets, reduction="sum")
    return losses / max(targets.numel(), 1)


class MaskedLM(nn.Module):
    """Masked language modelling on a batch that another objective encodes: corruption, head and loss.

    The head is the checkpoint's own, in float32, if it has one whose output layer is the word embedding; otherwise a
    new one. Each call gets the encoder's word embedding, which is neither copied nor saved, so
    ``resize_token_embeddings`` does no harm.

    Args:
        model: the SentenceTransformer; its checkpoint is read from where the model was loaded, never downloaded.
        probability: probability of drawing a content token.
        generator: torch.Generator of the draws, on the model's device. None: one is made from torch's seed.

    Attributes:
        from_checkpoint: whether the checkpoint had such a head.

    Raises:
        ValueError: if the tokenizer has no mask token.
    """

    def __init__(
        self, model: SentenceTransformer, *, probability: float = 0.15, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        tokenizer = unwrap(model).tokenizer
        if tokenizer.mask_token_id is None:
            raise ValueError(
                f"mlm_weight must be 0 for an encoder without a mask token, got a {type(tokenizer).__name__} without "
                "one."
            )
        encoder: Any = model.transformers_model
        words, width = encoder.get_input_embeddings().weight.shape
        head_and_bias = _checkpoint_head(encoder, width)
        self.from_checkpoint = head_and_bias is not None
        if head_and_bias is None:
            hidden = token_embedding_dimension(model)
            logger.info("The checkpoint has no masked-language-model head: a new one is trained.")
            head = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.LayerNorm(width))
            head_and_bias = head, torch.zeros(words)
        self.head, bias = head_and_bias
        self.bias = nn.Parameter(bias.detach().clone())
        self.probability = probability
        self.source = RandomSource(generator)

    def corrupt(self, model: nn.Module, sentence: dict[str, Any]) -> tuple[dict[str, Any], Tensor]:
        """Return a copy of a tokenized column, corrupted as in BERT, and the drawn tokens, (B, L) bool.

        Of the drawn content tokens, 80 % become the mask token, 10 % a random token, and 10 % stay unchanged.
        """
        encoder = unwrap(model)
        ids, tokenizer = sentence["input_ids"], encoder.tokenizer
        generator, device = self.source.on(ids.device), ids.device
        draws, kinds = torch.rand((2, *ids.shape), generator=generator, device=device)
        drawn = content_mask(encoder, sentence) & (draws < self.probability)
        picks = torch.randint(len(tokenizer), ids.shape, generator=generator, device=device)
        corrupted = torch.where(drawn & (kinds < 0.8), tokenizer.mask_token_id, ids)
        corrupted = torch.where(drawn & (kinds >= 0.9), picks, corrupted)
        return {**sentence, "input_ids": corrupted}, drawn

    def forward(self, tokens: Tensor, targets: Tensor, embedding: Tensor) -> Tensor:
        """Return the loss of N drawn tokens: embeddings (N, hidden), true ids (N,), word embedding (V, W)."""
        tokens = tokens.to(next(self.head.parameters()).dtype)
        if self.from_checkpoint:
            hidden = self.head(inputs_embeds=tokens.unsqueeze(0)).logits.squeeze(0)  # (N, W)
        else:
            hidden = self.head(tokens)
        return vocabulary_cross_entropy(hidden, embedding, targets, self.bias)


class _Passed(nn.Module):
    """Replaces an encoder: returns the hidden states that it is given."""

    def forward(self, *args: Any, inputs_embeds: Tensor, **kwargs: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=cast(Any, inputs_embeds))


class _NoOutput(nn.Identity):
    """Replaces an output layer, whose bias some architectures read."""

    bias = None


def _checkpoint_head(encoder: Any, width: int) -> tuple[nn.Module, Tensor] | None:
    """Return the checkpoint's head (its masked-language model without encoder and output layer) and its bias.

    None if there is no head, or its output layer is not the word embedding, (V, ``width``).
    """
    full = _load_masked_lm(encoder.config)
    if full is None:
        return None
    name = encoder.config.name_or_path
    output = full.get_output_embeddings()
    if output is None or output.weight is not full.get_input_embeddings().weight:
        logger.warning("The masked-language-model head of %r has an output layer of its own.", name)
        return None
    bias = output.bias if output.bias is not None else torch.zeros(output.weight.size(0))
    _strip(full, bias)
    return (full, bias) if _works_alone(full, encoder.config.hidden_size, width, name) else None


def _load_masked_lm(config: Any) -> Any:
    """Return the checkpoint's masked-language model; None if it was saved without a head or cannot be loaded."""
    from transformers import AutoModelForMaskedLM

    if all(name.endswith("Model") for name in config.architectures or ["none"]):
        return None  # saved without a head: BertModel, not BertForMaskedLM
    try:
        with torch.random.fork_rng(devices=[]):
            full, report = AutoModelForMaskedLM.from_pretrained(
                config.name_or_path,
                local_files_only=True,
                dtype=torch.float32,
                output_loading_info=True,
                # the version that was loaded is known to this attribute alone; "main" may be a later one
                revision=getattr(config, "_commit_hash", None) or "main",
            )
    except (OSError, ValueError) as error:
        logger.warning("No masked-language-model head from %r: %s", config.name_or_path, error)
        return None
    head = {name for name, _ in full.named_parameters() if not name.startswith(f"{full.base_model_prefix}.")}
    return None if head & set(report["missing_keys"]) else full


def _strip(full: Any, bias: Tensor) -> None:
    """Remove encoder and output layer from a masked-language model, and the bias if it is kept a second time."""
    setattr(full, full.base_model_prefix, _Passed())
    full.set_output_embeddings(_NoOutput())
    for module in full.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter is bias:
                setattr(module, name, None)


def _works_alone(head: Any, hidden_size: int, width: int, name: str) -> bool:
    """Return whether the stripped head turns hidden states into vectors of the word embedding's width."""
    try:
        with torch.no_grad():
            return bool(head(inputs_embeds=torch.zeros(1, 1, hidden_size)).logits.size(-1) == width)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        logger.warning("The masked-language-model head of %r does not work alone: %s", name, error)
        return False
