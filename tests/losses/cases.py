"""How each loss is built, once: every loss with the settings that matter, its columns, and what may wrap it."""

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from st_extras import losses
from st_extras.losses import (
    AdCSELoss,
    ConSERTLoss,
    DCLRLoss,
    FrequencyAdversarialLoss,
    IncompleteSentenceFilteringLoss,
    PaSeRLoss,
    SimCSELoss,
    SLTFAILoss,
)
from st_extras.losses.pair_loss import PairLoss, PairOptions
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES
from tests.helpers import columns

KINDS = tuple(filter(inspect.isclass, (getattr(losses, name) for name in losses.__all__)))
HEAD = "^projection=True .* use projection=False"
ADCSE = "^AdCSELoss cannot run inside .*with projection=False"
ALONE = "cannot run inside .*wrap the whole SLTFAILoss"
CUT = ("token_cutoff", "feature_cutoff")
EDGES = (["a cat"], ["a cat"] * 4, ["", ""], ["", "a cat"], ["[SEP] [CLS]", "the"], ["birds " * 90, "a"])
EVERY_TOKEN = {"low_frequency_ratio": 0.9, "mask_ratio": 1 - 1e-12}
"""Every sentence has a low-frequency token, and each is masked, whatever the draw."""


def settings_of(kind: Any) -> dict[str, Any]:
    """The settings of a loss and their defaults, those that it hands on to ``PairLoss`` among them."""
    parameters = dict(inspect.signature(kind).parameters)
    if issubclass(kind, PairLoss):
        shared = inspect.signature(PairLoss).parameters
        parameters |= {name: shared[name] for name in PairOptions.__annotations__}
    defaults = {name: one.default for name, one in parameters.items() if one.kind != one.VAR_KEYWORD}
    return defaults | ({"projection": True} if kind is AdCSELoss else {})


def set_decoder_dropout(decoder: nn.Module, rate: float) -> None:
    """Set the dropout of PaSeR's decoder, whose rate is no setting."""
    for module in decoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = rate


def build(kind: Any, model: SentenceTransformer, *, base: Any = None, table: Any = None, **options: Any) -> Any:
    """The loss; ``base`` makes its base loss of the model, ``table`` counts tokens in its place if it takes them.

    An option may be a function of the model: a guide. A decoder is without dropout.
    """
    if "frequency_table" in inspect.signature(kind).parameters:
        options = {"frequency_table": table or FrequencyTable.count(SENTENCES, model.tokenizer)} | options
    if base is not None:
        options["base_loss"] = base(model)
    options = {name: value(model) if inspect.isfunction(value) else value for name, value in options.items()}
    loss = kind(model, **options)
    if isinstance(loss, PaSeRLoss):
        set_decoder_dropout(loss.decoder, 0.0)
    return loss


def guide(model: SentenceTransformer) -> SentenceTransformer:
    """An encoder with one layer less."""
    found: Any = copy.deepcopy(model).eval().requires_grad_(True)
    found.transformers_model.encoder.layer = found.transformers_model.encoder.layer[:-1]
    return found


@dataclass(frozen=True)
class Case:
    """A loss with settings.

    Attributes:
        kind: its class.
        options: its settings, see ``build``.
        base: makes its base loss of the model.
        rows: rows that the encoder sees for each sentence, in its one pass, of one column and of two.
        still: settings that leave nothing to chance in an encoder without dropout; None: none do.
        cached: whether it takes a ``mini_batch_size``.
        refused: what MatryoshkaLoss around it is refused with; None: it works.
    """

    kind: Any
    options: dict[str, Any] = field(default_factory=dict)
    base: Callable[[SentenceTransformer], nn.Module] | None = None
    rows: tuple[int, int] = (2, 2)
    still: dict[str, Any] | None = field(default_factory=dict)
    cached: bool = False
    refused: str | None = None

    def make(self, model: SentenceTransformer, seed: int = 3, **more: Any) -> Any:
        """The loss; two of them on equal models are equal."""
        torch.manual_seed(seed)
        return build(self.kind, model, base=self.base, **self.options | more)

    def data(self, count: int = 1, texts: list[str] = SENTENCES) -> dict[str, list[str]]:
        """Its columns: the sentence, its positive where ``count`` is 2, and for PaSeR the last word masked."""
        if self.kind is not PaSeRLoss:
            return columns(texts, count)
        texts = ["cat" if text in ("", "[SEP] [CLS]") else text for text in texts]  # which have no phrase
        phrases = [text.split()[-1] for text in texts]
        masked = [" ".join([*text.split()[:-1], "[MASK]"]) for text in texts]
        return columns(texts, count if self.base else 1) | {"masked": masked, "phrase": phrases}

    def features(self, model: SentenceTransformer, count: int = 1, texts: list[str] = SENTENCES) -> list[Any]:
        return [model.preprocess(column) for column in self.data(count, texts).values()]


_NONE = {"augmentations": ("none", "none")}
_STILL = {"dropout": False} | _NONE
_ADVERSARIES = {"num_adversaries": 6, "adversary_learning_rate": 0.1, "momentum": 0.5}
_DECODER = {"num_decoder_layers": 1}
_pair = functools.partial(Case, cached=True)
_adcse = functools.partial(Case, AdCSELoss, cached=True, rows=(1, 1), refused=ADCSE)
_slt_fai = functools.partial(Case, SLTFAILoss, rows=(3, 3))
_paser = functools.partial(Case, PaSeRLoss, rows=(2, 2))

CASES: dict[str, Case] = {
    "simcse": _pair(SimCSELoss, still=_NONE),
    "simcse, head": _pair(SimCSELoss, {"projection": True}, still=_NONE, refused=HEAD),
    "simcse, decoupled": _pair(
        SimCSELoss, {"include_positive": False, "augmentations": ("feature_cutoff", "shuffle")}, still=_NONE
    ),
    "consert": _pair(ConSERTLoss, still=_STILL),
    "consert, dropout, no positive": _pair(
        ConSERTLoss, {"dropout": True, "include_positive": False, "augmentations": CUT}, still=_STILL
    ),
    "dclr": _pair(DCLRLoss, still=_NONE),
    "dclr, self, head, unit noise": _pair(
        DCLRLoss,
        {"complementary_model": "self", "threshold": 0.97, "projection": True, "noise_norm": "unit"}
        | {"augmentations": CUT},
        still=_NONE,
        refused=HEAD,
    ),
    "dclr, guide": _pair(DCLRLoss, {"complementary_model": guide, "threshold": 0.97}, still=_NONE),
    "dclr, share of start": _pair(DCLRLoss, {"complementary_model": "start", "masked_share": 0.3}, still=_NONE),
    "adcse": _adcse(_ADVERSARIES),
    "adcse, no head": _adcse(_ADVERSARIES | {"projection": False}),
    "adcse, adversaries alone": _adcse(_ADVERSARIES | {"in_batch_negatives": False}),
    "adcse, tied": _adcse({"tied": True, "num_adversaries": 6, "adversary_learning_rate": 0.1}, rows=(2, 2)),
    "adcse, features": _adcse(_ADVERSARIES | {"adversary_start": "features", "num_adversaries": 11}),
    "frequency": Case(FrequencyAdversarialLoss, rows=(1, 2), refused=ALONE),
    "frequency, confusion": Case(
        FrequencyAdversarialLoss, {"adversary": "confusion", "balanced": True}, rows=(1, 2), refused=ALONE
    ),
    "incomplete": Case(
        IncompleteSentenceFilteringLoss, {"mask_ratio": 0.8}, rows=(2, 4), still=EVERY_TOKEN, refused=ALONE
    ),
    "slt-fai": _slt_fai({"warmup_steps": 1}, still=EVERY_TOKEN),
    "slt-fai over a head": _slt_fai(base=functools.partial(SimCSELoss, projection=True), refused=HEAD),
    "slt-fai over consert": _slt_fai({"warmup_steps": 1, "warmup_discriminators": True}, base=ConSERTLoss, still=None),
    "slt-fai over dclr": _slt_fai(base=DCLRLoss, still=None),
    "slt-fai over mnrl": _slt_fai(base=MultipleNegativesRankingLoss, still=EVERY_TOKEN),
    "slt-fai over adcse": _slt_fai(base=AdCSELoss, rows=(2, 2), still=None, refused=ADCSE),
    "paser": _paser(_DECODER, rows=(3, 3), still=None),
    "paser, own output": _paser(_DECODER | {"mlm_weight": 0.0, "decoder_output": "own", "decoder_warmup_steps": 1}),
    "paser over simcse": _paser(_DECODER, base=SimCSELoss, rows=(3, 3)),
    "paser over mnrl": _paser(_DECODER, base=MultipleNegativesRankingLoss, rows=(3, 3)),
    "paser over adcse": _paser(_DECODER, base=AdCSELoss, rows=(2, 2), still=None, refused=ADCSE),
}
"""Every loss and the forms of it that differ in what they own, draw or encode."""

PLAIN = ("simcse, head", "consert", "dclr, guide", "adcse", "frequency", "incomplete", "slt-fai", "paser")
"""One case of each loss, that owns what the loss can own."""

STATES = (*PLAIN, "dclr, share of start", "adcse, features", "slt-fai over consert", "paser, own output")
"""The cases that differ in what a checkpoint holds."""

MINI_BATCHED = ("simcse, head", "consert", "dclr, guide", "adcse")
"""One case for each way in which mini-batches are put together."""


def total(value: Tensor | dict[str, Tensor]) -> Tensor:
    """The value of a loss, which may come in terms."""
    return torch.stack(list(value.values())).sum() if isinstance(value, dict) else value


def step(loss: nn.Module, features: list[dict[str, Any]], rate: float = 0.0) -> Tensor:
    """A step of SGD, and the value before it; a rate of 0 leaves the gradients to be looked at."""
    loss.zero_grad()
    value = total(loss(features))
    value.backward()
    with torch.no_grad():
        for parameter in loss.parameters():
            if rate and parameter.grad is not None:
                parameter -= rate * parameter.grad
    return value.detach()


def owned(loss: nn.Module, model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that belong to a loss and are trained, by name."""
    encoder = set(map(id, model.parameters()))
    return {name: p for name, p in loss.named_parameters() if p.requires_grad and id(p) not in encoder}


def instruments(loss: Any) -> dict[str, float]:
    return {name: float(value) for name, value in getattr(loss, "instruments", {}).items()}
