"""What only PaSeR has: equation 3 over its decoder as a loop, masked words, a base, a warm-up, and generation."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import Tensor, nn

from st_extras.losses import PaSeRLoss, SimCSELoss
from st_extras.losses.parts.masked_lm import MaskedLM
from st_extras.losses.parts.phrase_columns import phrase_brackets
from tests.helpers import count_rows, generator
from tests.losses.cases import set_decoder_dropout, total
from tests.losses.phrases import DATA, features, loop_decoder, make_loss, one

WORDS = "0.model.embeddings.word_embeddings.weight"


def embedded(model: SentenceTransformer, columns: list[dict[str, Any]]) -> list[Tensor]:
    """The sentences' embeddings and their masked copies'."""
    return [model(dict(column))["sentence_embedding"] for column in columns]


# ---- the mathematics


def test_the_loss_is_the_loop_of_equation_3(still_encoder):
    model = still_encoder.double()
    loss = make_loss(model, generative_weight=0.5).double()
    columns = features(model)
    words = model.get_parameter(WORDS)
    with torch.no_grad():
        s, m = embedded(model, columns[:2])
    total, count = 0.0, 0
    lengths = columns[2]["attention_mask"].sum(dim=1).tolist()
    for i, length in enumerate(lengths):
        ids = columns[2]["input_ids"][i][:length].tolist()
        signal = torch.stack([s[i], m[i], 10 * (s[i] - m[i]).abs(), 10 * (s[i] * m[i]).abs()])
        hidden = loop_decoder(loss.decoder, words[ids], signal.float().double())
        for t in range(1, len(ids)):  # position t-1 predicts token t, the separator last
            logits = [(e @ hidden[t - 1]).item() for e in words]
            total -= logits[ids[t]] - math.log(sum(math.exp(z) for z in logits))
            count += 1
    assert len(set(lengths)) > 1  # phrases of several lengths
    assert loss(columns).item() == pytest.approx(0.5 * total / count, rel=1e-6)


def test_masked_words_beside_phrases(make_encoder):
    """The corruption of MaskedLM, with the checkpoint's own head, weighted; each term as it would be alone."""
    model = make_encoder(dropout=0.0, with_head=True)
    columns = features(model)
    words, ids = model.get_parameter(WORDS), columns[0]["input_ids"]
    torch.manual_seed(5)
    alone = MaskedLM(model, generator=generator(4))
    corrupted, drawn = alone.corrupt(model, columns[0])
    assert (corrupted["input_ids"] != ids).any()
    tokens = model(dict(corrupted))["token_embeddings"][drawn]
    terms = make_loss(model, generative_weight=2.0, mlm_weight=0.5, generator=generator(4))(columns)
    torch.testing.assert_close(terms["generative"], 2 * make_loss(model)(columns))
    torch.testing.assert_close(terms["mlm"], 0.5 * alone(tokens, ids[drawn], words))
    assert set(terms) == {"generative", "mlm"}


# ---- training and generating


def test_generation_uses_the_signal_of_training_without_dropout(make_encoder):
    """A prompt is read with the sentences."""
    model = make_encoder(dropout=0.3).eval()
    loss = make_loss(model).train()
    set_decoder_dropout(loss.decoder, 0.5)
    texts, prompt = [DATA["sentence"][:2], DATA["masked"][:2]], "the old "
    seen: list[Tensor] = []
    loss.decoder.register_forward_pre_hook(lambda _, args: seen.append(args[1]))
    s, m = (model.encode(column, convert_to_tensor=True, prompt=prompt) for column in texts)
    assert loss.reconstruct(*texts, prompt=prompt) == loss.reconstruct(*texts, prompt=prompt)
    torch.testing.assert_close(seen[0], torch.stack([s, m, 10 * (s - m).abs(), 10 * (s * m).abs()], dim=1))
    assert loss.decoder.training


# ---- with a base loss


def test_supervised_form_adds_alpha_times_the_generative_term(still_encoder):
    data = {"anchor": DATA["sentence"], "positive": [f"{s} ." for s in DATA["sentence"]]}
    data |= {"negative": DATA["sentence"][::-1], "masked": DATA["masked"], "phrase": DATA["phrase"]}
    columns = features(still_encoder, data)
    base = MultipleNegativesRankingLoss(still_encoder)
    for weight in (0.5, 0.0):
        loss = make_loss(still_encoder, base_loss=base, generative_weight=weight, mlm_weight=None)
        with count_rows(still_encoder) as passes:
            terms = loss(columns)
        assert passes == [24]
        assert set(terms) == {"generative", "base"}
        torch.testing.assert_close(terms["base"], base([dict(column) for column in columns[:3]], None))
        torch.testing.assert_close(terms["generative"], weight * make_loss(still_encoder)([columns[0], *columns[3:]]))


# ---- the decoder's settings


@pytest.mark.parametrize("kind", ["tied", "detached", "own"])
def test_the_output_layer_of_equation_3(still_encoder, kind):
    """The encoder's word embedding is trained as an output layer only if "tied", and always as the input layer."""
    model = still_encoder.double()
    loss = make_loss(model, decoder_output=kind).double()
    columns = features(model)
    value = loss(columns)
    assert (value == make_loss(model).double()(columns)) == (kind != "own")
    value.backward()
    read = {i for column in columns for i in column["input_ids"].flatten().tolist()}
    unread = [i for i in range(len(model.tokenizer)) if i not in read]
    assert bool(model.get_parameter(WORDS).grad[unread].any()) == (kind == "tied")


def test_the_decoder_warms_up_alone(make_encoder):
    """The values are the same, the gradients are not; a base acts from step one."""
    model = make_encoder(dropout=0.0, with_head=True)
    options: dict[str, Any] = {"mlm_weight": 1.0, "base_loss": SimCSELoss(model)}
    loss, usual = (
        make_loss(model, **options, decoder_warmup_steps=warmup, generator=generator(3)) for warmup in (2, 0)
    )
    columns = features(model)
    options["base_loss"]([dict(columns[0])]).backward()
    wanted = gradients(model)
    with torch.no_grad():
        loss(columns)  # does not count
    for step in range(3):
        loss.zero_grad()
        terms = loss(columns)
        torch.testing.assert_close(terms, usual(columns))
        total(terms).backward()
        moved = gradients(model)
        same = [torch.allclose(moved[name], gradient, atol=1e-7) for name, gradient in wanted.items()]
        assert all(same) == (step < 2)
        assert moved.keys() == wanted.keys()
        own = gradients(loss).keys() - {f"model.{name}" for name in moved}
        assert {name.split(".")[0] for name in own} == {"decoder", "masked_lm"}


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Those that are not zero."""
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None and p.grad.any()}


def test_matryoshka_gets_the_sum_of_each_dimension_and_mlm_once(make_encoder):
    model = make_encoder(dropout=0.0, with_head=True)
    columns = features(model)
    with torch.no_grad():  # the generator of the corruption draws the same again
        loss = make_loss(model, mlm_weight=0.5, base_loss=SimCSELoss(model), generator=generator(3))
        parts = loss(columns)
        whole = MatryoshkaLoss(model, loss, [16, 8])(columns, None)
        views, expected = embedded(model, columns[:2]), parts["mlm"]
        for dimension in (16, 8):
            sentence, masked = (F.normalize(view[:, :dimension], dim=-1) for view in views)
            expected = expected + loss.compute_generative_loss(sentence, masked, columns[2])
            expected = expected + SimCSELoss(model).compute_loss_from_embeddings([sentence, sentence])
    torch.testing.assert_close(whole, expected)


# ---- encoders without a mask token


def decoder_like(model: SentenceTransformer, side: str = "right") -> SentenceTransformer:
    """The model with a tokenizer as decoders have it: no mask token, nothing around a text."""
    model.tokenizer.mask_token = None
    model.tokenizer.backend_tokenizer.post_processor = None
    model.tokenizer.padding_side = side
    return model


def test_the_decoder_reads_the_same_phrases_whoever_writes_the_brackets(make_encoder):
    """[CLS] and [SEP], written by the tokenizer or by the loss, with padding on either side, behind a prompt or not."""
    model, phrases = make_encoder(dropout=0.0), DATA["phrase"][:6]
    s, m = torch.randn(2, 6, 16, generator=generator(1))
    expected = make_loss(model).compute_generative_loss(s, m, model.preprocess(phrases))
    for side, prompt in (("right", None), ("left", "the old ")):
        other = decoder_like(make_encoder(dropout=0.0), side)
        loss = make_loss(other, on_missing_mask="delete")
        found = loss.compute_generative_loss(s, m, other.preprocess(phrases, prompt=prompt))
        torch.testing.assert_close(found, expected)


def test_brackets_of_a_tokenizer_that_writes_none(encoder):
    decoder_like(encoder)
    for name, token, expected in (
        ("bos_token", "[UNK]", ["[UNK]", "[SEP]"]),
        ("eos_token", "[PAD]", ["[UNK]", "[PAD]"]),
    ):
        setattr(encoder.tokenizer, name, token)
        assert encoder.tokenizer.convert_ids_to_tokens(list(phrase_brackets(encoder))) == expected


# ---- edges and errors


def test_rows_whose_mask_was_cut_off_do_not_count(make_encoder):
    model = make_encoder(dropout=0.0, max_seq_length=8)
    long = one("a " * 20 + "cat", "a " * 20 + "[MASK]", "cat")
    loss = make_loss(model)
    mixed = {name: [*long[name], *column[:2]] for name, column in DATA.items()}
    torch.testing.assert_close(loss(features(model, mixed)), loss(features(model, rows=2)))
    assert loss(features(model, long)) == 0
    assert int(loss.instruments["truncated_phrases"]) == 1
    deleting = decoder_like(make_encoder(dropout=0.0, max_seq_length=4))
    loss = make_loss(deleting, on_missing_mask="delete")
    sentences = ["a cat sat on the mat"] * 2
    data = {"sentence": sentences, "masked": ["a cat sat on the", "a sat on the mat"], "phrase": ["mat", "cat"]}
    loss(features(deleting, data))
    assert int(loss.instruments["truncated_phrases"]) == 1
    with pytest.raises(ValueError, match="'masked' has a row equal to its sentence"):
        loss(features(deleting, one("a cat", "a cat", "a")))


def test_bad_input(encoder):
    with pytest.raises(ValueError, match=r"^generative_weight must be > 0"):
        make_loss(encoder, generative_weight=0.0)
    encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r'mask token .*on_missing_mask="delete"'):
        make_loss(encoder)
    with pytest.raises(ValueError, match=r"^mlm_weight must be 0"):
        PaSeRLoss(encoder, on_missing_mask="delete")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sentence": ["a cat"], "masked": ["a [MASK]"]}, "got 2 columns"),
        ({"sentence": ["a cat"], "phrase": ["cat"], "masked": ["a [MASK]"]}, r"'phrase' holds \[MASK\]"),
        ({"masked": ["a [MASK]"], "sentence": ["a cat"], "phrase": ["cat"]}, r"'masked' has a row without \[MASK\]"),
        ({"p": ["cat"], "m": ["a [MASK] sat on"], "s": ["a cat sat on"]}, "'phrase' is longer than the sentences"),
        ({"s": ["a cat", "a dog"], "m": ["a [MASK]"] * 2, "p": ["cat", ""]}, "'phrase' has an empty phrase"),
        (one("a cat a cat", "a [MASK]", "a cat a"), "at most 4 tokens"),
    ],
)
def test_wrong_columns(encoder, data, message):
    loss = make_loss(encoder)
    loss.decoder.max_length = 4
    with pytest.raises(ValueError, match=message):
        loss(features(encoder, data))
