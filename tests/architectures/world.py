"""What the methods are tried with: fresh copies of one encoder, its tokens, a guide, counts."""

import copy
import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders.padding import fix_padding_side
from st_extras.text.frequency import FrequencyTable
from tests.architectures.encoders import ARCHITECTURES, build
from tests.architectures.outcomes import check
from tests.architectures.sentences import CORPUS, ONE_WORD, SENTENCES

Features = dict[str, Any]


@functools.cache
def guide() -> SentenceTransformer:
    """A frozen BERT with a tokenizer of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return build("ELECTRA", Path(folder))


class World:
    """One architecture, built once in ``folder``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.model = build(name, folder)
        fix_padding_side(self.model)
        self.is_transformer = bool(ARCHITECTURES[name].config)
        self.pooling = ARCHITECTURES[name].pooling

    def fresh(self) -> SentenceTransformer:
        """A copy of its own, with the same weights."""
        return copy.deepcopy(self.model)

    def table(self) -> FrequencyTable:
        return FrequencyTable.count(CORPUS[:12], self.model.tokenizer)

    @functools.cached_property
    def one_word(self) -> str:
        """A text of a single content token."""
        tokenizer: Any = self.model.tokenizer
        return next(text for text in ONE_WORD if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1)


@contextmanager
def padding_side(model: SentenceTransformer, side: str) -> Iterator[None]:
    tokenizer: Any = model.tokenizer
    before, tokenizer.padding_side = tokenizer.padding_side, side
    try:
        yield
    finally:
        tokenizer.padding_side = before


def plain(model: SentenceTransformer, features: Features) -> Tensor:
    """The model's own embeddings of the features, without dropout."""
    model.eval()
    with torch.no_grad():
        result: Tensor = model(dict(features))["sentence_embedding"]
    return result


def close(first: Tensor, second: Tensor, tolerance: float = 1e-4) -> bool:
    """Whether two batches of vectors agree, relative to their lengths."""
    scale = max(first.norm(dim=-1).max().item(), 1e-12)
    return bool((first - second).abs().max() <= tolerance * scale)


def train_three_steps(model: SentenceTransformer, loss: nn.Module, columns: list[list[str]]) -> None:
    """Three steps of SGD; every loss is finite, every gradient of the encoder finite and not all of them 0."""
    features = [dict(model.preprocess(texts)) for texts in columns]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained = [value for value in loss.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-2)
    loss.train()
    for step in range(3):
        torch.manual_seed(step)
        value: Any = loss([dict(column) for column in features], None)
        total = torch.stack(list(value.values())).sum() if isinstance(value, dict) else value
        check(total.isfinite(), f"loss is {total.item()} at step {step + 1}")
        optimizer.zero_grad()
        total.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        check(all(_values(gradient).isfinite().all() for gradient in gradients), "gradient is not finite")
        check(any(_values(gradient).any() for gradient in gradients), "no gradient reaches the encoder")
        optimizer.step()
    moved = any(not torch.equal(before[name], value) for name, value in model.state_dict().items())
    check(moved, "three steps moved no weight of the encoder")
    check(plain(model, features[0]).isfinite().all(), "embeddings are not finite after three steps")


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def batch(model: SentenceTransformer, texts: list[str] = SENTENCES) -> Features:
    return dict(model.preprocess(texts))
