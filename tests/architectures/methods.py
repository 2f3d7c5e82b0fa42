"""The methods, each tried on one encoder: it works, its user is warned, or it is refused in a sentence of ours."""

import copy
import functools
import logging
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import st_extras
from st_extras.encoders.dropout import set_dropout
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.loading import load_encoder
from st_extras.encoders.rows import content_mask
from st_extras.encoders.structure import fix_padding_side
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
from st_extras.losses.parts.views import ViewMaker
from st_extras.modules import RepALPostProcessor, linear, load
from st_extras.text.frequency import FrequencyTable
from tests.architectures.encoders import ARCHITECTURES, build
from tests.architectures.tokenizers import CORPUS
from tests.fixtures import SENTENCES as ALL

PACKAGE = str(Path(st_extras.__file__).parent)
EQUAL_VIEWS = re.compile(r"same vector|no dropout")
"""In the warning that the views of this encoder are equal."""
REMEDY = re.compile(r"\b(use|give|choose|pass|must be)\b", re.IGNORECASE)
SENTENCES, MORE = ALL[:4], ALL[4:]
"""The batch, of different lengths, and further sentences."""
PHRASES = ["mat", "dog", "two birds", "red book"]
"""A phrase of each of the batch, for PaSeR."""
KEYWORDS = ["cat", "mat", "dog", "birds", "river", "book"]
PROMPT = "query: "
LAMBDAS: dict[str, Any] = {"lambda_1": 0.5, "lambda_2": 0.3, "corpus": MORE}
Make = Callable[[SentenceTransformer], nn.Module]


@contextmanager
def heard() -> Iterator[list[str]]:
    """The warnings of the package while the context is open."""
    messages: list[str] = []
    logger, ear = logging.getLogger("st_extras"), logging.Handler(logging.WARNING)
    ear.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(ear)
    try:
        yield messages
    finally:
        logger.removeHandler(ear)


def cell(tries: "Tries", world: "World") -> str:
    """The words of the table: of the first of the tries that is not refused.

    Raises:
        AssertionError: if a result is wrong, or an error is not a refusal of ours that names a remedy.
    """
    for option, attempt in tries.items():
        with heard() as messages:
            try:
                attempt(world)
            except ValueError as error:
                ours = traceback.extract_tb(error.__traceback__)[-1].filename.startswith(PACKAGE)
                if not (ours and REMEDY.search(str(error)) and str(error).endswith(".")):
                    raise AssertionError(f"an obscure error: {error!r}") from error
                continue
        words = [option] * bool(option) + ["warns"] * any(map(EQUAL_VIEWS.search, messages))
        return ", ".join(words) or "yes"
    return "no"


class World:
    """One architecture, built once in ``folder``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder, self.pooling, self.is_transformer = folder, ARCHITECTURES[name].pooling, ARCHITECTURES[name].config
        self.model = build(name, folder)
        fix_padding_side(self.model)

    def fresh(self) -> SentenceTransformer:
        """A copy with the same weights."""
        return copy.deepcopy(self.model)

    def table(self) -> FrequencyTable:
        return FrequencyTable.count(CORPUS[:12], self.model.tokenizer)

    def train(self, make: Make, columns: Sequence[list[str]] = (SENTENCES,), *, views: bool = False) -> Any:
        """Three steps: losses and gradients are finite, weights move; equal views are warned of, and only they."""
        model = self.fresh().train()
        torch.manual_seed(0)
        with heard() as messages:
            loss = make(model)
            features = [dict(model.preprocess(texts)) for texts in columns]
            before = {name: value.clone() for name, value in model.state_dict().items()}
            optimizer = torch.optim.SGD([value for value in loss.parameters() if value.requires_grad], lr=1e-2)
            for _ in range(3):
                value: Any = loss([dict(column) for column in features], None)
                total = torch.stack(list(value.values())).sum() if isinstance(value, dict) else value
                assert total.isfinite(), f"loss is {total.item()}"
                optimizer.zero_grad()
                total.backward()
                optimizer.step()
        assert any(not torch.equal(before[name], x) for name, x in model.state_dict().items()), "no weight moved"
        assert all(x.isfinite().all() for x in model.state_dict().values()), "a weight is not finite"
        if views:
            first, second = (model.train()(dict(features[0]))["sentence_embedding"] for _ in range(2))
            warned = any(map(EQUAL_VIEWS.search, messages))
            assert close(first, second, 1e-3 if warned else 1e-5) == warned, f"views, warned of: {warned}"
        return loss


Try = Callable[[World], object]
Tries = dict[str, Try]


def close(first: Tensor, second: Tensor, tolerance: float = 1e-4) -> bool:
    """Whether two batches of vectors agree, relative to their lengths."""
    return bool((first - second).abs().max() <= tolerance * max(first.norm(dim=-1).max().item(), 1e-12))


def encode(model: SentenceTransformer, texts: list[str] = SENTENCES) -> Tensor:
    return model.encode(texts, convert_to_tensor=True).float()


@contextmanager
def padding_side(model: SentenceTransformer, side: str) -> Iterator[None]:
    tokenizer: Any = model.tokenizer
    before, tokenizer.padding_side = tokenizer.padding_side, side
    try:
        yield
    finally:
        tokenizer.padding_side = before


@functools.cache
def guide() -> SentenceTransformer:
    """A frozen encoder with a tokenizer of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return build("ELECTRA", Path(folder))


# ------------------------------------------------------------------------------------------- losses


def with_dropout(world: World) -> None:
    if world.is_transformer:
        model = load_encoder(world.folder, pooling=world.pooling, dropout=0.1, device="cpu")  # type: ignore[arg-type]
    else:
        set_dropout(model := world.fresh(), 0.1)
    first, second = (model.train()(dict(model.preprocess(SENTENCES)))["sentence_embedding"] for _ in range(2))
    assert not close(first, second, 1e-6), "views are equal after dropout=0.1"


def changed_views(names: Sequence[str]) -> Try:
    """Views that change a row, but not when there is nothing to change; trained with."""

    def attempt(world: World) -> None:
        for name in names:
            model = world.fresh().eval()
            maker = ViewMaker(model, (name, "none"))
            maker.cutoff_rate = 0.4
            view, whole = maker.encode(model, [model.preprocess(SENTENCES)])
            assert not close(view, whole, 1e-6), f"{name} changes no row"
            if name != "shuffle":
                maker.cutoff_rate = 1e-6
                same, whole = maker.encode(model, [model.preprocess(SENTENCES)])
                assert close(same, whole), f"{name} of nothing changes a row"
            world.train(lambda model, name=name: SimCSELoss(model, augmentations=(name, name)))  # type: ignore[misc]
            world.train(lambda model, name=name: DCLRLoss(model, augmentations=(name, name)))  # type: ignore[misc]

    return attempt


def with_guide(world: World) -> None:
    model = world.fresh()
    found = FrozenEncoder(guide(), model)(dict(model.preprocess(SENTENCES)))
    assert torch.allclose(found, encode(guide()), atol=1e-5), "the guide sees other sentences"
    world.train(lambda model: DCLRLoss(model, complementary_model=guide(), threshold=0.99), views=True)


def incomplete(world: World, **options: Any) -> None:
    table = world.table()
    loss = world.train(
        lambda model: IncompleteSentenceFilteringLoss(model, frequency_table=table, mask_ratio=0.8, **options)
    )
    assert int(loss.instruments["left_out"]) < len(SENTENCES), "every sentence was left out"


def slt_fai(world: World, **options: Any) -> None:
    settings: dict[str, Any] = {"frequency_table": world.table(), "mask_ratio": 0.8, **options}
    world.train(lambda model: SLTFAILoss(model, **settings))
    with suppress(ValueError):  # where ConSERT is refused, its own column says so
        ConSERTLoss(world.fresh())
        world.train(lambda model: SLTFAILoss(model, base_loss=ConSERTLoss(model), **settings))


def paser(world: World, *, base: bool = False, **options: Any) -> None:
    """The phrase masked or, with ``on_missing_mask="delete"``, deleted."""
    mask = "" if "on_missing_mask" in options else getattr(world.model.tokenizer, "mask_token", None) or "[MASK]"
    masked = [
        " ".join(text.replace(phrase, " ".join([mask] * len(phrase.split()))).split())
        for text, phrase in zip(SENTENCES, PHRASES, strict=True)
    ]

    def make(model: SentenceTransformer) -> nn.Module:
        return PaSeRLoss(model, num_decoder_layers=1, base_loss=SimCSELoss(model) if base else None, **options)

    loss = world.train(make, [SENTENCES, masked, PHRASES])
    assert int(loss.instruments["truncated_phrases"]) == 0, "rows were left out"


# ------------------------------------------------------------------------------------------- post-processing


def keywords(text: str) -> list[str]:
    return [word for word in KEYWORDS if word in text.split()]


def repal(world: World, **options: Any) -> None:
    """Equation 3 with the masked sentences written again by hand; saved and loaded."""
    model = world.fresh()
    refined = RepALPostProcessor.attach(model, keywords=keywords, **LAMBDAS, **options)
    mask = "" if "on_missing_mask" in options else model.tokenizer.mask_token
    masked = [" ".join(mask if word in KEYWORDS else word for word in text.split()) for text in SENTENCES]
    whole, redundant = encode(model, [*SENTENCES, *(" ".join(text.split()) for text in masked)]).chunk(2)  # one padding
    expected = whole - 0.5 * redundant - 0.3 * encode(model, MORE).mean(dim=0)
    assert close(encode(refined), expected), "RepAL is not equation 3"
    saved(RepALPostProcessor.attach(model, keywords="rake", **LAMBDAS, **options))


def repal_pooled(world: World) -> None:
    """The copies are the mean of the tokens of no keyword, found here by their offsets."""
    model = world.fresh()
    tokenizer: Any = model.tokenizer
    refined = RepALPostProcessor.attach(model, keywords=keywords, redundancy="pooled", **LAMBDAS)
    told = tokenizer(SENTENCES, padding=True, return_offsets_mapping=True)
    with torch.no_grad():
        tokens = model[0](dict(model.preprocess(SENTENCES)))["token_embeddings"].float()  # (B, L, D)
    means = []
    for row, text in enumerate(SENTENCES):
        spans = [found.span() for found in re.finditer(rf"\b({'|'.join(KEYWORDS)})\b", text)]
        kept = [
            place
            for place, (start, end) in enumerate(told["offset_mapping"][row])
            if told["attention_mask"][row][place]
            and not any(start < last and end > first and start < end for first, last in spans)
        ]
        means.append(tokens[row, kept].mean(dim=0))
    expected = encode(model) - 0.5 * torch.stack(means) - 0.3 * encode(model, MORE).mean(dim=0)
    assert close(encode(refined), expected), "pooled RepAL is not equation 3 with the mean of the other tokens"


def whitening(world: World) -> None:
    """The embeddings of the corpus get the identity as their covariance; saved and loaded."""
    corpus = [*SENTENCES, *MORE]
    whitened = linear.whitening(world.fresh(), corpus, dimensions=3)
    assert close(encode(whitened, corpus).double().T.cov(), torch.eye(3).double(), 1e-2), "the covariance is another"
    saved(whitened)


def saved(model: SentenceTransformer) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(str(Path(folder) / "model"), create_model_card=False)
        again = load(str(Path(folder) / "model"), device="cpu")
    assert close(encode(model), encode(again), 1e-5), "saved and loaded, the embeddings differ"


def content(world: World) -> None:
    """The mask of content tokens against the tokenizer's, on both sides of padding, with a prompt too."""
    tokenizer: Any = world.model.tokenizer
    texts = [*SENTENCES, "a \u2603 cat", f"the {tokenizer.mask_token} sat" if tokenizer.mask_token else "dog"]
    for side, prompt in ((side, prompt) for side in ("right", "left") for prompt in (None, PROMPT)):
        options: dict[str, Any] = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        with padding_side(world.model, side):
            features = world.model.preprocess(texts, prompt=prompt)
            told = tokenizer([(prompt or "") + text for text in texts], padding=True, return_tensors="pt", **options)
        added = told["special_tokens_mask"].bool() | ~told["attention_mask"].bool()
        of_text = told["offset_mapping"][..., 1] > len(prompt or "")
        right = torch.equal(content_mask(world.model, features), ~added & of_text)
        assert right, f"the content mask is wrong, padded on the {side}, prompt {prompt}"


_DELETE = {"on_missing_mask": "delete"}


def _or_delete(method: Callable[..., None], **options: Any) -> Tries:
    return {"": lambda world: method(world, **options), "delete": lambda world: method(world, **options, **_DELETE)}


METHODS: dict[str, Tries] = {
    "SimCSE": {"": lambda world: world.train(SimCSELoss, views=True)},
    "`dropout=0.1`": {"": with_dropout},
    "cutoffs": {"": changed_views(("token_cutoff", "feature_cutoff"))},
    "shuffle": {"": changed_views(("shuffle",))},
    "ConSERT": {"": lambda world: world.train(ConSERTLoss)},
    "DCLR": {"": lambda world: world.train(lambda model: DCLRLoss(model, complementary_model="self"), views=True)},
    "DCLR, guide": {"": with_guide},
    "AdCSE": {"": lambda world: world.train(lambda model: AdCSELoss(model, num_adversaries=4), views=True)},
    "AT": {"": lambda world: world.train(lambda model: FrequencyAdversarialLoss(model, frequency_table=world.table()))},
    "ISF": _or_delete(incomplete),
    "SLT-FAI": _or_delete(slt_fai),
    "PaSeR, MLM": {"": paser},
    "PaSeR": _or_delete(paser, mlm_weight=0),
    "PaSeR, SimCSE": _or_delete(paser, base=True),
    "RepAL": _or_delete(repal),
    "RepAL, pooled": {"": repal_pooled},
    "whitening": {"": whitening},
}


def cells(name: str, folder: Path) -> dict[str, str]:
    """Every method on one encoder, and what must work on each: content tokens.

    Raises:
        AssertionError: if a method is neither refused nor does what it should.
    """
    world = World(name, folder)
    if world.is_transformer:
        content(world)
    return {method: cell(tries, world) for method, tries in METHODS.items()}
