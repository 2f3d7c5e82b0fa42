"""Turns the settings of ``train_encoder`` into the trainer's data and arguments, and checks them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets import Dataset, Features, IterableDataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_count, check_positive, shown
from st_extras.encoders.adapters import check_adapters
from st_extras.encoders.loading import check_length
from st_extras.encoders.padding import fix_padding_side
from st_extras.text.corpus import check_sentence, is_blank
from st_extras.training.divergence import non_finite

logger = logging.getLogger(__name__)
_ROWS = 1000
"""Rows read at a time."""
_SAMPLED, _STREAMED = 2000, 500
"""Texts that are checked for labels, repeats and unknown tokens: of a Dataset, and of a stream."""
_FEWEST_SAMPLED = 8
"""Fewer texts show nothing about the others."""
_MANY_UNKNOWN = 0.1
"""A warning is logged if the tokenizer knows no token of more than this share of the texts."""
HASHED_FROM = 1_000_000
"""From this number of rows, equal sentences are found by their hashes: 8 bytes each, computed once in seconds."""


def training_dataset(data: Any) -> Dataset | IterableDataset:
    """Return sentences as a Dataset with the column ``sentence``, and a Dataset unchanged.

    An IterableDataset raises when it reaches a text that is None, and skips rows with an empty text, such as blank
    lines. A text of zero-width spaces is empty.

    Raises:
        ValueError: if ``data`` has splits or no row, a text is empty or not a string, or a column other than the labels
            has numbers.
    """
    if isinstance(data, Mapping):
        names = ", ".join(repr(name) for name in data)
        raise ValueError(
            f"data must be sentences or one split of a data set, got a {type(data).__name__} of {names}: choose a "
            f"split, such as data[{next(iter(data), 'train')!r}]."
        )
    if isinstance(data, IterableDataset):
        if data.features is None:  # the trainer needs to know the columns
            data = data.cast(Dataset.from_list(list(data.take(1))).features)
        texts = _text_columns(data.features)
        checked = data.map(_refuse_none, with_indices=True, fn_kwargs={"texts": texts}, features=data.features)
        return checked.filter(_has_texts, fn_kwargs={"texts": texts})
    if not isinstance(data, Iterable) or getattr(data, "ndim", 1) == 0:
        raise ValueError(f"data must be sentences or a Dataset, got {type(data).__name__}.")
    sentences = [data] if isinstance(data, str) else data if isinstance(data, Dataset) else list(data)
    if len(sentences) == 0:
        raise ValueError("data must hold at least one sentence, got none.")
    if isinstance(sentences, Dataset):
        _check_texts(sentences)
        return sentences
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str) or is_blank(sentence):
            raise ValueError(f"data[{number}] must be a non-empty string, got {shown(sentence)}.")
        check_sentence(sentence, f"data[{number}]")
    return Dataset.from_dict({"sentence": sentences})


def _text_columns(features: Features) -> list[str]:
    """Return the names of the columns of texts.

    Raises:
        ValueError: if there are none, labels are texts, or another column has numbers.
    """
    dtypes = {name: str(getattr(kind, "dtype", kind)) for name, kind in features.items()}
    texts = [name for name, dtype in dtypes.items() if dtype in ("string", "large_string")]
    if not texts:
        kinds = ", ".join(f"{name} ({dtype})" for name, dtype in dtypes.items()) or "none"
        raise ValueError(f"data must have a column of texts, got {kinds}.")
    labels = next((name for name in DEFAULT_LABEL_COLUMNS if name in dtypes), None)
    for name, dtype in dtypes.items():
        if (name in texts) == (name == labels):
            raise ValueError(
                "data must have texts in each column, except numbers in a column of labels named "
                f"{', '.join(DEFAULT_LABEL_COLUMNS[:-1])} or {DEFAULT_LABEL_COLUMNS[-1]}, got {name!r} ({dtype}): "
                f"leave it out with data.remove_columns({name!r})."
            )
    return texts


def _check_texts(data: Dataset) -> None:
    """Check the columns of a Dataset, and that none of its texts is None or empty."""
    texts = _text_columns(data.features)
    columns = data.with_format(None).select_columns(texts)  # without the user's transform
    for first, rows in zip(range(0, len(data), _ROWS), columns.iter(_ROWS), strict=True):
        for name, column in rows.items():
            for i, text in enumerate(column, first):
                _refuse_none({name: text}, i, [name])
                if is_blank(text):
                    raise ValueError(
                        f"data[{i}][{name!r}] must be a non-empty string, got {shown(text)}: leave such rows out with "
                        f"data.filter(lambda row: row[{name!r}].strip())."
                    )


def _has_texts(row: dict[str, Any], texts: list[str]) -> bool:
    return not any(is_blank(row[name]) for name in texts)


def _refuse_none(row: dict[str, Any], i: int, texts: list[str]) -> dict[str, Any]:
    for name in texts:
        if row[name] is None:
            raise ValueError(f"data[{i}][{name!r}] must be a string, got None.")
    return row


def sampled_texts(data: Dataset | IterableDataset) -> list[str]:
    """Return some texts of the first column of texts: 2,000 evenly spaced rows, or the first 500 of a stream."""
    name = _text_columns(data.features)[0]
    if isinstance(data, IterableDataset):
        return [row[name] for row in data.take(_STREAMED)]
    rows = range(0, len(data), -(-len(data) // _SAMPLED))
    return list(data.with_format(None).select_columns(name).select(rows)[name])


def warn_of_labels(data: Dataset | IterableDataset, texts: Sequence[str]) -> None:
    """Warn if the only column of texts looks like labels: it mostly repeats its texts, or holds single words."""
    if len(texts) < _FEWEST_SAMPLED or len(_text_columns(data.features)) > 1:
        return
    words = sum(text.isascii() and len(text.split()) == 1 for text in texts)  # other scripts may write no spaces
    different = len(set(texts))
    if 2 * different <= len(texts) or 2 * words > len(texts):
        logger.warning(
            "The text looks like a column of labels: of %s sampled texts, %s are different and %s are one word, such "
            "as %s. Equal and similar texts are negatives of each other: data must be the column of the sentences.",
            *(f"{len(texts):,}", f"{different:,}", f"{words:,}", shown(texts[0])),
        )


def check_known(model: SentenceTransformer, texts: Sequence[str], name: str) -> None:
    """Warn if the tokenizer knows no token of many texts: the encoder cannot distinguish them.

    Args:
        model: the encoder. One without a tokenizer of the transformers library is not checked.
        texts: some of the texts.
        name: the argument that they are from, for the message.

    Raises:
        ValueError: if it knows no token of any of at least 8 texts.
    """
    tokenizer: Any = getattr(model, "tokenizer", None)
    if len(texts) < _FEWEST_SAMPLED or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return
    if (unknown := tokenizer.unk_token_id) is None:
        return
    nothing = {unknown, tokenizer.convert_tokens_to_ids("\u2581")}  # SentencePiece's space
    found = tokenizer(list(texts), add_special_tokens=False, truncation=True)["input_ids"]
    lost = [text for text, ids in zip(texts, found, strict=True) if nothing.issuperset(ids)]
    remedy = f"such as {shown(lost[0])}: use an encoder for their language or script" if lost else ""
    if len(lost) == len(texts):
        raise ValueError(f"{name} must hold tokens that the encoder knows, got only unknown tokens, {remedy}.")
    if len(lost) > _MANY_UNKNOWN * len(texts):
        logger.warning("%.0f%% of the texts have only unknown tokens, %s.", 100 * len(lost) / len(texts), remedy)


def check_model(model: SentenceTransformer) -> None:
    """Check that a model can be trained, and that padding does not change its embeddings.

    Raises:
        ValueError: if a weight is NaN or infinite, texts may be longer than the encoder has positions for, or layers of
            the model were removed before it got adapters.
    """
    check_adapters(model)
    check_length(model)
    fix_padding_side(model)  # also for a loss of Sentence Transformers, which does not
    if (name := non_finite(model)) is not None:
        raise ValueError(f"model must have finite weights, got NaN or an infinite value in {name}.")


def warn_of_half_precision(model: SentenceTransformer) -> None:
    """Warn if weights in half precision are trained: most updates are smaller than the gap to the next number."""
    half = [p.dtype for p in model.parameters() if p.requires_grad and p.is_floating_point() and p.dtype.itemsize < 4]
    if half:
        logger.warning(
            "The weights to train are in %s, in which small updates are lost: load the encoder with dtype='float32' "
            "and train with bf16=True, or train adapters with lora=16.",
            str(half[0]).removeprefix("torch."),
        )


def schedule_arguments(
    batch_size: int, learning_rate: float, max_steps: int, epochs: float, eval_steps: int
) -> dict[str, Any]:
    """Check the numbers of a training and return them as the trainer's arguments.

    Raises:
        ValueError: if one of them is out of range.
    """
    if isinstance(max_steps, int | float) and max_steps == -1:
        check_positive("epochs", epochs)
    else:
        check_count("max_steps, unless it is -1,", max_steps, at_least=1)
    check_count("eval_steps", eval_steps, at_least=1)
    return {
        "per_device_train_batch_size": check_count("batch_size", batch_size, at_least=1),
        "learning_rate": check_positive("learning_rate", learning_rate),
        "max_steps": max_steps,
        "num_train_epochs": epochs,
        "save_strategy": "steps",
        "save_steps": eval_steps,
        "save_total_limit": 2,
        "logging_steps": eval_steps,
    }


def batch_sampler(data: Dataset | IterableDataset, no_duplicates: bool) -> BatchSamplers:
    """Return the sampler of the batches; NO_DUPLICATES and NO_DUPLICATES_HASHED make the same batches."""
    if not no_duplicates or isinstance(data, IterableDataset):
        return BatchSamplers.BATCH_SAMPLER
    return BatchSamplers.NO_DUPLICATES if len(data) < HASHED_FROM else BatchSamplers.NO_DUPLICATES_HASHED


def rates_of_the_loss(loss: nn.Module, model: SentenceTransformer, rate: float) -> dict[str, float]:
    """Return the learning rate of the loss's own parameters, by a regular expression that matches their names.

    Raises:
        ValueError: if the loss has none.
    """
    shared = set(model.parameters())
    names = [name for name, value in loss.named_parameters() if value.requires_grad and value not in shared]
    if not names:
        raise ValueError(
            f"loss_learning_rate needs a loss with its own parameters, got {type(loss).__name__}, which has none."
        )
    return {f"^({'|'.join(map(re.escape, names))})$": rate}


def score_of(evaluator: BaseEvaluator, model: SentenceTransformer) -> tuple[float, str]:
    """Return a model's score and the name under which the trainer logs it, without "eval_".

    Some evaluators name their metric only once they have run. A score without a name is logged as "evaluator".

    Raises:
        ValueError: if the evaluator returns several scores and its ``primary_metric`` is none of them, or the score is
            not finite.
    """
    scores = evaluator(model)
    name = str(evaluator.primary_metric) if isinstance(scores, dict) else "evaluator"
    if isinstance(scores, dict) and name not in scores:
        raise ValueError(
            f"evaluator must name one of its scores ({', '.join(map(repr, scores))}) in primary_metric, got "
            f"{shown(evaluator.primary_metric)}."
        )
    score = float(scores[name] if isinstance(scores, dict) else scores)
    if not math.isfinite(score):
        raise ValueError(f"evaluator must return a finite score, got {score} before training ({name}).")
    return score, name
