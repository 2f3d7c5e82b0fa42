"""Post-processing on one encoder, against a computation by hand; saved, loaded and equal; which tokens are content."""

import re
import tempfile
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

import st_extras
from st_extras.encoders.structure import content_mask
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor
from tests.architectures.sentences import MORE, SENTENCES
from tests.architectures.world import World, check, close, padding_side

KEYWORDS = ["cat", "mat", "dog", "birds", "river", "book"]
LAMBDA_1, LAMBDA_2 = 0.5, 0.3


def _keywords(text: str) -> list[str]:
    return [word for word in KEYWORDS if word in text.split()]


def _encode(model: SentenceTransformer, texts: list[str] = SENTENCES) -> Tensor:
    return model.encode(texts, convert_to_tensor=True).float()


def _saved(model: SentenceTransformer) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(str(Path(folder) / "model"), create_model_card=False)
        again = st_extras.load(str(Path(folder) / "model"), device="cpu")
        check(close(_encode(model), _encode(again), 1e-5), "saved and loaded, the embeddings differ")


def _equation_3(embeddings: Tensor, redundant: Tensor, model: SentenceTransformer) -> Tensor:
    return embeddings - LAMBDA_1 * redundant - LAMBDA_2 * _encode(model, MORE).mean(dim=0)


def repal(world: World, **options: Any) -> None:
    """Equation 3 with the masked sentences written again by hand."""
    model = world.fresh()
    options = {"lambda_1": LAMBDA_1, "lambda_2": LAMBDA_2, "corpus": MORE, **options}
    refined = RepALPostProcessor.attach(model, keywords=_keywords, **options)
    mask = "" if "on_missing_mask" in options else model.tokenizer.mask_token
    masked = [" ".join(mask if word in KEYWORDS else word for word in text.split()) for text in SENTENCES]
    masked = [" ".join(text.split()) for text in masked]  # a deleted word leaves no second space
    both = _encode(model, [*SENTENCES, *masked]).chunk(2)  # one batch: padding reaches some encoders' embeddings
    check(close(_encode(refined), _equation_3(*both, model)), "RepAL is not equation 3")
    _saved(RepALPostProcessor.attach(model, keywords="rake", **options))
    check(torch.equal(_encode(RepALPostProcessor.detach(refined)), _encode(model)), "detach changes embeddings")


def repal_pooled(world: World) -> None:
    """The copies are the mean of the tokens of no keyword, found here by their offsets."""
    model = world.fresh()
    options: dict[str, Any] = {"lambda_1": LAMBDA_1, "lambda_2": LAMBDA_2, "corpus": MORE, "redundancy": "pooled"}
    refined = RepALPostProcessor.attach(model, keywords=_keywords, **options)
    expected = _equation_3(_encode(model), _mean_of_the_rest(model), model)
    check(close(_encode(refined), expected), "pooled RepAL is not equation 3 with the mean of the other tokens")
    _saved(RepALPostProcessor.attach(model, keywords="rake", **options))


def _mean_of_the_rest(model: SentenceTransformer) -> Tensor:
    tokenizer: Any = model.tokenizer
    encoded = tokenizer(SENTENCES, padding=True, return_offsets_mapping=True)
    with torch.no_grad():
        tokens = model[0](dict(model.preprocess(SENTENCES)))["token_embeddings"].float()  # (B, L, D)
    means = []
    for row, text in enumerate(SENTENCES):
        spans = [found.span() for found in re.finditer(rf"\b({'|'.join(KEYWORDS)})\b", text)]
        kept = [
            place
            for place, (start, end) in enumerate(encoded["offset_mapping"][row])
            if encoded["attention_mask"][row][place]
            and not any(start < last and end > first and start < end for first, last in spans)
        ]
        means.append(tokens[row, kept].mean(dim=0))
    return torch.stack(means)


def whitening(world: World) -> None:
    """The embeddings of the corpus get the identity as their covariance."""
    model = world.fresh()
    corpus = [*SENTENCES, *MORE]
    whitened = WhiteningPostProcessor.attach(model, dimensions=3, corpus=corpus)
    embeddings = _encode(model, corpus).double()
    centred = embeddings - embeddings.mean(dim=0)
    variances, directions = torch.linalg.eigh(centred.T @ centred / (len(corpus) - 1))
    expected = centred @ directions[:, -3:] / variances[-3:].sqrt()
    found = _encode(whitened, corpus).double()
    check(close(found @ found.T, expected @ expected.T, 1e-2), "whitening is not the closed form")
    _saved(whitened)


def saving(world: World) -> None:
    _saved(world.fresh())


PROMPT = "query: "


def content(world: World) -> None:
    """Against what the tokenizer says of each token, on both sides of padding, with a prompt too."""
    if not world.is_transformer:
        return
    model = world.model
    tokenizer: Any = model.tokenizer
    texts = [*SENTENCES, "a \u2603 cat", f"the {tokenizer.mask_token} sat" if tokenizer.mask_token else "dog"]
    for side in ("right", "left"):
        for prompt in (None, PROMPT):
            with padding_side(model, side):
                features = dict(model.preprocess(texts, prompt=prompt))
                told = tokenizer(
                    [(prompt or "") + text for text in texts],
                    padding=True,
                    return_offsets_mapping=True,
                    return_special_tokens_mask=True,
                    return_tensors="pt",
                )
            check(torch.equal(told["input_ids"], features["input_ids"]), "Sentence Transformers tokenizes otherwise")
            added = told["special_tokens_mask"].bool() | ~told["attention_mask"].bool()
            of_text = told["offset_mapping"][..., 1] > len(prompt or "")
            found = content_mask(model, features)
            where = f"padded on the {side}" + (", with a prompt" if prompt else "")
            check(torch.equal(found, ~added & of_text), f"the content mask is wrong {where}")
