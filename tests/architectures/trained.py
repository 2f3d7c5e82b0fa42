"""The losses: three training steps on one encoder, and what must hold beside a finite gradient."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders.dropout import set_dropout
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.loading import load_encoder
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
from st_extras.losses.parts.views import TwoViews
from tests.architectures.outcomes import EQUAL_VIEWS, heard
from tests.architectures.sentences import PHRASES, SENTENCES
from tests.architectures.world import World, batch, check, close, guide, padding_side, plain, train_three_steps

CUTOFFS = ("token_cutoff", "span_cutoff", "feature_cutoff")


def _train(model: SentenceTransformer, make: Callable[[SentenceTransformer], nn.Module]) -> Any:
    torch.manual_seed(0)
    loss = make(model)
    train_three_steps(model, loss, [SENTENCES])
    return loss


def simcse(world: World) -> None:
    """Equal views are told by a warning, which makes the cell "warned"; here they must differ, or it was one."""
    _train(world.fresh(), SimCSELoss)


def simcse_with_dropout(world: World) -> None:
    if world.is_transformer:
        model = load_encoder(world.folder, pooling=world.pooling, dropout=0.1, device="cpu")  # type: ignore[arg-type]
    else:
        model = world.fresh()
        set_dropout(model, 0.1)
    first, second = _views(model)
    check(not close(first, second, 1e-6), "views are equal after dropout=0.1")
    _train(model, SimCSELoss)


def _views(model: SentenceTransformer) -> list[Tensor]:
    """The same rows twice through the encoder in training mode."""
    model.train()
    return [model(dict(batch(model)))["sentence_embedding"] for _ in range(2)]


def dropout_views(world: World, make: Callable[[SentenceTransformer], Any]) -> None:
    """Both views of an encoder without dropout are equal: the loss must say so, and only then."""
    model = world.fresh().train()
    loss = make(model)
    with heard() as messages:
        loss([batch(model)])
    _told(messages, *_views(model))


def _told(messages: list[str], first: Tensor, second: Tensor) -> None:
    told = any(EQUAL_VIEWS.search(message) for message in messages)
    check(told or not close(first, second, 1e-5), "the views are equal and nobody was told")
    check(not told or close(first, second, 1e-3), f"the views differ, but it said: {messages[:1]}")


def cutoffs(world: World) -> None:
    for name in CUTOFFS:
        model = world.fresh()
        views = TwoViews(model, (name, "none"), cutoff_rate=0.4)
        cut, whole = views.encode(model, [batch(model)])
        check(not close(cut, whole, 1e-6), f"{name} changes no row")
        nothing = TwoViews(model, (name, "none"), cutoff_rate=1e-6)
        for side in ("right", "left"):
            with padding_side(model, side):
                rows = batch(model)
            view, _ = nothing.encode(model, [rows])
            check(close(view, plain(model, rows)), f"{name} of nothing changes a row padded on the {side}")
        _train(model, lambda model, name=name: SimCSELoss(model, augmentations=(name, name)))  # type: ignore[misc]


def shuffle(world: World) -> None:
    model = world.fresh()
    views = TwoViews(model, ("shuffle", "none"))
    shuffled, whole = views.encode(model, [batch(model)])
    check(not close(shuffled, whole, 1e-6), "shuffle changes no row")
    for side in ("right", "left"):
        with padding_side(model, side):
            rows = batch(model, [world.one_word, *SENTENCES])
        view, _ = views.encode(model, [rows])
        check(close(view[:1], plain(model, rows)[:1]), f"shuffle of one token changes a row padded on the {side}")
    _train(model, lambda model: SimCSELoss(model, augmentations=("shuffle", "shuffle")))


def consert(world: World) -> None:
    for include_positive in (True, False):
        _train(world.fresh(), lambda model, keep=include_positive: ConSERTLoss(model, include_positive=keep))  # type: ignore[misc]


def dclr(world: World) -> None:
    for complementary in (None, "self"):
        model = world.fresh()
        _train(model, lambda model, own=complementary: DCLRLoss(model, complementary_model=own))  # type: ignore[misc]


def dclr_cutoffs(world: World) -> None:
    _train(world.fresh(), lambda model: DCLRLoss(model, augmentations=("token_cutoff", "feature_cutoff")))


def dclr_guide(world: World) -> None:
    for side in ("right", "left") if world.is_transformer else ("as it is",):
        model = world.fresh()
        if world.is_transformer:
            model.tokenizer.padding_side = side  # type: ignore[union-attr]
        found = FrozenEncoder(guide(), model)(batch(model))
        expected = guide().encode(SENTENCES, convert_to_tensor=True)
        check(torch.allclose(found, expected, atol=1e-5), f"the guide sees other sentences ({side})")
    _train(model, lambda model: DCLRLoss(model, complementary_model=guide(), threshold=0.99))


def adcse(world: World, **options: Any) -> None:
    model = world.fresh().train()
    torch.manual_seed(0)
    loss = AdCSELoss(model, num_adversaries=4, **options)
    features = batch(model)
    with heard() as messages:
        loss([dict(features)])
    _told(messages, *_views(model))
    _train(model, lambda model: loss)


def frequency_adversarial(world: World) -> None:
    loss = _train(world.fresh(), lambda model: FrequencyAdversarialLoss(model, frequency_table=world.table()))
    check(0 <= float(loss.instruments["discriminator_accuracy"]) <= 1, "the discriminator saw no token")


def incomplete_sentences(world: World, **options: Any) -> None:
    def make(model: SentenceTransformer) -> nn.Module:
        table = world.table()
        return IncompleteSentenceFilteringLoss(model, frequency_table=table, mask_ratio=0.8, **options)

    loss = _train(world.fresh(), make)
    check(int(loss.instruments["left_out"]) < len(SENTENCES), "every sentence was left out")


def slt_fai(world: World, **options: Any) -> None:
    def make(model: SentenceTransformer, base: nn.Module | None = None) -> nn.Module:
        return SLTFAILoss(model, frequency_table=world.table(), base_loss=base, mask_ratio=0.8, **options)

    _train(world.fresh(), make)
    model = world.fresh()
    with suppress(ValueError):  # where ConSERT is refused, its own column says so
        base = ConSERTLoss(model)
        _train(model, lambda model: make(model, base))


def _paser(world: World, masked: list[str], **options: Any) -> None:
    model = world.fresh()
    torch.manual_seed(0)
    base = SimCSELoss(model) if options.pop("base", False) else None
    loss = PaSeRLoss(model, num_decoder_layers=1, base_loss=base, **options)
    train_three_steps(model, loss, [SENTENCES, masked, PHRASES])
    check(int(loss.instruments["truncated_phrases"]) == 0, "rows were left out")


def paser(world: World, **options: Any) -> None:
    """The phrase masked or, with ``on_missing_mask="delete"``, deleted."""
    mask = getattr(world.model.tokenizer, "mask_token", None) or "[MASK]"
    masked = []
    for text, phrase in zip(SENTENCES, PHRASES, strict=True):
        shown = "" if "on_missing_mask" in options else " ".join([mask] * len(phrase.split()))
        masked.append(" ".join(text.replace(phrase, shown).split()))
    _paser(world, masked, **options)
