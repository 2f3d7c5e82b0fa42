from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense
from torch import Tensor, nn

from st_extras.losses.consert import ConSERTLoss
from st_extras.losses.parts.masked_lm import MaskedLM, vocabulary_cross_entropy
from st_extras.losses.parts.phrase_decoder import PhraseDecoder, decoding_signal, word_embedding
from st_extras.losses.paser import PaSeRLoss
from st_extras.losses.simcse import SimCSELoss
from st_extras.text.phrase_masking import PhraseMasking
from tests.conftest import SENTENCES, vocabulary
from tests.helpers import (
    Wrapped,
    arguments,
    assert_resume_is_seamless,
    count_rows,
    differing,
    fit,
    generator,
    snapshot,
    train,
)
from tests.losses.phrases import DATA, features, loop_decoder, make_loss, one

MakeEncoder = Callable[..., SentenceTransformer]


# ---- the mathematics


def test_the_signal_of_equation_2() -> None:
    s, m = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 1.0]])
    expected = [[[1.0, -2.0], [3.0, 1.0], [20.0, 30.0], [6.0, 4.0]]]
    assert torch.equal(decoding_signal(s, m, 10.0, 2.0), torch.tensor(expected))
    assert decoding_signal(s.bfloat16(), m.bfloat16(), 1.0, 1.0).dtype == torch.float32


def test_the_generative_loss_is_the_loop_of_equation_3(still_encoder: SentenceTransformer) -> None:
    loss = make_loss(still_encoder.double(), difference_scale=3.0, product_scale=2.0).double()
    columns = features(still_encoder)
    phrase = columns[2]
    embedding = word_embedding(loss.model).weight
    s, m = torch.randn(2, 6, 16, generator=generator(1)).double()
    total, count = 0.0, 0
    for i in range(6):
        ids = phrase["input_ids"][i][phrase["attention_mask"][i].bool()].tolist()
        assert ids[0] == vocabulary().index("[CLS]")
        assert ids[-1] == vocabulary().index("[SEP]")
        signal = torch.stack([s[i], m[i], 3.0 * (s[i] - m[i]).abs(), 2.0 * (s[i] * m[i]).abs()])
        hidden = loop_decoder(loss.decoder, embedding[ids], signal.float().double())
        for t in range(1, len(ids)):  # position t-1 predicts token t, the separator last
            logits = [(e @ hidden[t - 1]).item() for e in embedding]
            total -= logits[ids[t]] - math.log(sum(math.exp(z) for z in logits))
            count += 1
    assert len({int(n) for n in phrase["attention_mask"].sum(1)}) > 1  # phrases of several lengths
    value = loss.compute_generative_loss(s, m, phrase)
    assert value.item() == pytest.approx(total / count, rel=1e-6)


def test_a_decoder_that_echoes_its_input_gains_nothing(still_encoder: SentenceTransformer) -> None:
    """Teacher forcing is shifted by one: were the target the input token itself, this decoder would be perfect."""
    loss = make_loss(still_encoder)
    phrase = features(still_encoder)[2]
    ids, mask = phrase["input_ids"], phrase["attention_mask"].bool()
    words = word_embedding(loss.model)(ids)[mask]
    assert float(vocabulary_cross_entropy(words * 1e4, word_embedding(loss.model).weight, ids[mask])) < 0.01
    loss.decoder.forward = lambda words, signal: words * 1e4  # type: ignore[method-assign]
    assert float(loss.compute_generative_loss(torch.zeros(6, 16), torch.zeros(6, 16), phrase)) > 5


def test_vocabulary_logits_only_at_target_positions(
    still_encoder: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import st_extras.losses.parts.masked_lm as module

    shapes: list[torch.Size] = []

    def linear(x: Tensor, *args: Tensor) -> Tensor:
        shapes.append(x.shape)
        return F.linear(x, *args)

    class Functional:
        def __getattr__(self, name: str) -> Any:
            return linear if name == "linear" else getattr(F, name)

    monkeypatch.setattr(module, "F", Functional())
    loss = make_loss(still_encoder, mlm_weight=1.0)
    columns = features(still_encoder)
    loss(columns)
    targets = int(columns[2]["attention_mask"][:, 1:].sum())
    assert shapes[0] == (targets, 16)
    assert 0 < shapes[1][0] < 0.5 * int(columns[0]["attention_mask"].sum())


def test_gradients_in_float64() -> None:
    torch.manual_seed(0)
    decoder = PhraseDecoder(torch.nn.Embedding(1, 8), 8, layers=1, dropout=0.0, max_length=5).double()
    words, embedding = torch.randn(2, 3, 8).double(), torch.randn(11, 8).double()
    targets = torch.tensor([1, 5, 2, 3, 4, 9])

    def value(s: Tensor, m: Tensor, e: Tensor) -> Tensor:
        hidden = decoder(words, decoding_signal(s, m, 10.0, 10.0)).flatten(0, 1)
        return vocabulary_cross_entropy(hidden, e, targets)

    inputs = [torch.randn(2, 8, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(value, (*inputs, embedding.requires_grad_()))


def test_invariance_to_the_order_of_the_batch(still_encoder: SentenceTransformer) -> None:
    loss = make_loss(still_encoder)
    order = [3, 1, 5, 0, 4, 2]
    shuffled = {name: [column[i] for i in order] for name, column in DATA.items()}
    first, second = loss(features(still_encoder)), loss(features(still_encoder, shuffled))
    torch.testing.assert_close(first, second)


# ---- the loss as a whole


def test_one_pass_and_no_mutation(make_encoder: MakeEncoder) -> None:
    model = make_encoder(with_head=True)
    columns = features(model)
    before = [{k: v.clone() if isinstance(v, Tensor) else v for k, v in c.items()} for c in columns]
    for options, rows in (({"mlm_weight": 1.0}, [18]), ({}, [12])):
        loss = make_loss(model, **options)
        with count_rows(model) as passes:
            out = loss(columns)
        assert passes == rows
        assert isinstance(out, dict) == bool(options)
    for column, old in zip(columns, before, strict=True):
        assert column.keys() == old.keys()
        assert all(torch.equal(column[k], v) for k, v in old.items() if isinstance(v, Tensor))
    terms = make_loss(model, mlm_weight=1.0)(columns)
    assert set(terms) == {"generative", "mlm"}


def test_the_terms_of_a_batch_are_those_of_its_parts(make_encoder: MakeEncoder) -> None:
    model = make_encoder(dropout=0.0, with_head=True)
    columns = features(model)
    ids = columns[0]["input_ids"]
    corrupted, drawn = MaskedLM(model, generator=generator(4)).corrupt(model, columns[0])
    assert (corrupted["input_ids"] != ids).any()
    loss = make_loss(model, generative_weight=2.0, mlm_weight=0.5, generator=generator(4))
    terms = loss(columns)
    sentence, masked = (model(dict(column))["sentence_embedding"] for column in columns[:2])
    torch.testing.assert_close(terms["generative"], 2 * loss.compute_generative_loss(sentence, masked, columns[2]))
    tokens = model(dict(corrupted))["token_embeddings"][drawn]
    torch.testing.assert_close(
        terms["mlm"], 0.5 * loss.masked_lm(tokens, ids[drawn], word_embedding(loss.model).weight)
    )


def test_gradients_reach_encoder_decoder_and_head(make_encoder: MakeEncoder) -> None:
    model = make_encoder(with_head=True)
    loss = make_loss(model, mlm_weight=1.0, num_decoder_layers=2)
    sum(loss(features(model)).values()).backward()  # type: ignore[union-attr]
    without = {n for n, p in loss.named_parameters() if p.grad is None or not p.grad.any()}
    assert {n for n in without if "pooler" not in n} == set()


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_trainer_and_fit_train_the_decoder_and_save_nothing_of_it(
    make_encoder: MakeEncoder, tmp_path: Path, weight: float
) -> None:
    for number, run in enumerate((train, fit)):
        model = make_encoder(with_head=True)
        loss = make_loss(model, mlm_weight=weight)
        before = snapshot(loss)
        run(model, loss, DATA, tmp_path / f"run{number}")
        still = before.keys() - differing(before, snapshot(loss))
        assert {
            n for n in still if "pooler" not in n and "position" not in n and not n.endswith("_extra_state")
        } == set()
        model.save(str(tmp_path / f"saved{number}"))
        loaded = SentenceTransformer(str(tmp_path / f"saved{number}"), device="cpu")
        assert loaded.state_dict().keys() == model.state_dict().keys()
        assert not any("decoder" in name or "masked_lm" in name for name in loaded.state_dict())
        torch.testing.assert_close(loaded.encode(["a cat"]), model.encode(["a cat"]))


def test_fit_takes_the_examples_and_the_trainer_a_sampling_transform(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    model = make_encoder()
    examples = PhraseMasking(top_k=1).examples(SENTENCES)
    columns = dict(zip(DATA, map(list, zip(*(e.texts for e in examples), strict=True)), strict=True))
    fit(model, make_loss(model), columns, tmp_path / "fit")
    data = Dataset.from_dict({"sentence": SENTENCES})
    data.set_transform(PhraseMasking(sample=True))
    before = snapshot(model)
    loss = make_loss(model)
    SentenceTransformerTrainer(model, args=arguments(tmp_path / "t"), train_dataset=data, loss=loss).train()
    assert differing(before, snapshot(model))


@pytest.mark.slow
def test_training_learns_to_write_the_phrases(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    model = make_encoder(dropout=0.0, hidden_size=32)
    loss = make_loss(model, num_decoder_layers=2)
    rows = PhraseMasking(top_k=1)(SENTENCES)
    data = {name: list(rows[name]) for name in DATA}
    torch.manual_seed(0)
    train(model, loss, data, tmp_path, num_train_epochs=100, learning_rate=3e-3, per_device_train_batch_size=8)
    assert loss.reconstruct(data["sentence"], data["masked"], batch_size=3) == data["phrase"]
    mode = [module.training for module in loss.modules()]
    short = loss.reconstruct(data["sentence"][:2], data["masked"][:2], max_length=1)
    assert [len(text.split()) for text in short] == [1, 1]
    assert [module.training for module in loss.modules()] == mode


def test_no_state_moves_without_gradients(make_encoder: MakeEncoder) -> None:
    model = make_encoder(dropout=0.0, with_head=True)
    loss = make_loss(model, mlm_weight=1.0)
    columns = features(model)
    loss(columns)
    before = copy.deepcopy(loss.state_dict())
    with torch.no_grad():
        first, second = loss(columns), loss(columns)
    assert all(torch.isfinite(value) for value in first.values())  # type: ignore[union-attr]
    assert torch.equal(first["mlm"], second["mlm"])  # type: ignore[call-overload]
    after = loss.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_resuming_is_seamless(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    assert_resume_is_seamless(
        make_encoder,
        lambda model: PaSeRLoss(model, num_decoder_layers=1, decoder_warmup_steps=2, decoder_output="own"),
        {name: column[:16] for name, column in DATA.items()},
        tmp_path,
    )


def test_wrapping_copying_and_state(make_encoder: MakeEncoder) -> None:
    model = make_encoder(dropout=0.0, with_head=True)
    loss = make_loss(model, mlm_weight=1.0)
    columns = features(model)

    with torch.no_grad():
        expected = loss(columns)["generative"]
        twin = copy.deepcopy(loss)
        torch.testing.assert_close(twin(columns)["generative"], expected)
        other = PaSeRLoss(make_encoder(dropout=0.0, with_head=True, seed=9), num_decoder_layers=1, decoder_dropout=0.0)
        other.load_state_dict(loss.state_dict())
        torch.testing.assert_close(other(columns)["generative"], expected)
        loss.model = Wrapped(model)  # type: ignore[assignment]
        torch.testing.assert_close(loss(columns)["generative"], expected)
    assert loss.reconstruct(DATA["sentence"][:1], DATA["masked"][:1])


def test_the_word_embedding_is_tied_and_survives_resizing(make_encoder: MakeEncoder) -> None:
    model = make_encoder(dropout=0.0, with_head=True)
    loss = make_loss(model, mlm_weight=1.0)
    columns = features(model)
    assert not any(tuple(p.shape) == (len(vocabulary()), 16) for n, p in loss.named_parameters() if "model." not in n)
    before = {name: value.detach() for name, value in loss(columns).items()}
    model.tokenizer.add_tokens(["zebra", "quagga"])
    torch.manual_seed(0)
    model.transformers_model.resize_token_embeddings(len(model.tokenizer))
    weight = word_embedding(loss.model).weight
    assert len(weight) == len(vocabulary()) + 2
    terms = loss(columns)
    assert float(terms["generative"]) != float(before["generative"])  # two more words in the softmax
    assert float(terms["generative"]) == pytest.approx(float(before["generative"]), abs=0.2)
    data = {"sentence": ["a zebra sat"], "masked": ["a [MASK] sat"], "phrase": ["zebra"]}
    sum(loss(features(model, data)).values()).backward()
    assert weight.grad is not None
    assert weight.grad[-2].any()
    with torch.no_grad():
        weight[:] = 0
    assert float(loss(columns)["generative"]) == pytest.approx(math.log(len(weight)), rel=1e-5)


def test_other_sizes_of_embedding_and_decoder(make_encoder: MakeEncoder) -> None:
    for hidden, layers in ((8, 1), (24, 8)):
        model = make_encoder(hidden_size=hidden)
        loss = PaSeRLoss(model, num_decoder_layers=layers)
        assert len(loss.decoder.layers.layers) == layers
        assert torch.isfinite(loss(features(model))["generative"])  # type: ignore[call-overload]
    model = make_encoder()
    model.append(Dense(16, 5))
    loss = make_loss(model)
    loss(features(model)).backward()
    assert loss.decoder.fit_signal.weight.shape == (16, 5)


def test_bf16_autocast_stays_close(still_encoder: SentenceTransformer) -> None:
    loss = make_loss(still_encoder)
    columns = features(still_encoder)
    plain = loss(columns)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss(columns)
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(float(plain), rel=0.02)
    half.backward()


# ---- with a base loss


def pairs(model: SentenceTransformer) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    data = {"anchor": DATA["sentence"], "positive": [f"{s} ." for s in DATA["sentence"]]}
    negatives = {"negative": DATA["sentence"][::-1]}
    data = {**data, **negatives, "masked": DATA["masked"], "phrase": DATA["phrase"]}
    return features(model, data), data


def test_supervised_form_adds_alpha_times_the_generative_term(
    still_encoder: SentenceTransformer, tmp_path: Path
) -> None:
    columns, data = pairs(still_encoder)
    base = MultipleNegativesRankingLoss(still_encoder)
    loss = make_loss(still_encoder, base_loss=base, generative_weight=0.5, mlm_weight=None)
    with count_rows(still_encoder) as passes:
        terms = loss(columns)
    assert passes == [24]
    assert set(terms) == {"generative", "base"}
    torch.testing.assert_close(terms["base"], base([dict(column) for column in columns[:3]], None))
    alone = make_loss(still_encoder)([columns[0], *columns[3:]])
    torch.testing.assert_close(terms["generative"], 0.5 * alone)
    assert torch.equal(make_loss(still_encoder, base_loss=base, generative_weight=0.0)(columns)["base"], terms["base"])
    before = snapshot(loss.decoder)
    train(still_encoder, loss, data, tmp_path)
    assert len(differing(before, snapshot(loss.decoder))) > 0.9 * len(before)


@pytest.mark.parametrize("make_base", [SimCSELoss, MultipleNegativesRankingLoss])
def test_a_base_on_one_column_gets_its_two_views(encoder: SentenceTransformer, make_base: Any) -> None:
    columns = features(encoder)
    loss = make_loss(encoder, base_loss=make_base(encoder), mlm_weight=1.0)
    with count_rows(encoder) as passes:
        terms = loss(columns)
    assert passes == [24]
    assert set(terms) == {"generative", "base", "mlm"}
    assert 0 < float(terms["base"]) < 2


def test_the_pass_has_no_dropout_where_the_base_wants_none(make_encoder: MakeEncoder) -> None:
    model = make_encoder(dropout=0.5).train()
    base = SimCSELoss(model, augmentations=("none", "none"))
    seen: list[list[Tensor]] = []
    compute = base.compute_loss_from_embeddings
    base.compute_loss_from_embeddings = lambda views, labels=None: seen.append(views) or compute(views)  # type: ignore
    make_loss(model, base_loss=base)(features(model))
    assert torch.equal(*seen[0])
    modes: list[bool] = []
    loss = make_loss(model, base_loss=ConSERTLoss(model))
    model.register_forward_pre_hook(lambda module, args: modes.append(module.training))
    loss(features(model))
    assert modes == [False, False]
    assert model.training
    make_loss(model, base_loss=SimCSELoss(model))(features(model))
    assert modes[2:] == [True]


# ---- the decoder's settings


@pytest.mark.parametrize("kind", ["tied", "detached", "own"])
def test_the_output_layer_of_equation_3(still_encoder: SentenceTransformer, kind: str) -> None:
    loss = make_loss(still_encoder.double(), decoder_output=kind).double()
    columns = features(still_encoder)
    ids, mask = columns[2]["input_ids"], columns[2]["attention_mask"].bool()
    s, m = torch.randn(2, 6, 16, generator=generator(1)).double()
    hidden = loss.decoder(word_embedding(loss.model)(ids[:, :-1]), decoding_signal(s, m, 10.0, 10.0))
    logits = loss.decoder.head(hidden) if kind == "own" else hidden @ word_embedding(loss.model).weight.T
    total = 0.0
    for row, place in mask[:, 1:].nonzero().tolist():
        total -= logits[row, place].log_softmax(dim=0)[ids[row, place + 1]].item()
    value = loss.compute_generative_loss(s, m, columns[2])
    assert value.item() == pytest.approx(total / int(mask[:, 1:].sum()), rel=1e-6)
    value.backward()
    unread = [i for i in range(len(vocabulary())) if i not in set(ids[:, :-1].flatten().tolist())]
    assert bool(word_embedding(loss.model).weight.grad[unread].any()) == (
        kind == "tied"
    )  # the others are read, and so trained


def test_an_output_layer_of_its_own_trains_and_writes(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    model = make_encoder()
    loss = make_loss(model, decoder_output="own", decoder_start="normal", decoder_pre_norm=True)
    before = snapshot(loss)
    train(model, loss, DATA, tmp_path)
    changed = differing(before, snapshot(loss))
    assert {"decoder.head.3.weight", "decoder.head.3.bias", "decoder.head.0.weight"} <= changed
    assert len(loss.reconstruct(DATA["sentence"][:2], DATA["masked"][:2])) == 2
    model.save(str(tmp_path / "saved"))
    assert not any("decoder.head" in name for name in model.state_dict())
    model.tokenizer.add_tokens(["zebra"])
    model.transformers_model.resize_token_embeddings(len(model.tokenizer))
    with pytest.raises(ValueError, match=r"^decoder_output='own' needs the vocabulary"):
        loss(features(model))


@pytest.mark.parametrize("kind", ["tied", "own"])
def test_the_decoder_warms_up_alone(make_encoder: MakeEncoder, kind: str) -> None:
    model = make_encoder(dropout=0.0, with_head=True)
    loss = make_loss(model, mlm_weight=1.0, decoder_output=kind, decoder_warmup_steps=2, generator=generator(3))
    usual = make_loss(model, mlm_weight=1.0, decoder_output=kind, generator=generator(3))
    columns = features(model)
    with torch.no_grad():
        loss(columns)
    assert loss.steps == 0
    loss.masked_lm.source.generator.manual_seed(4)
    usual.masked_lm.source.generator.manual_seed(4)
    for step in range(3):
        terms, expected = loss(columns), usual(columns)
        for name in expected:
            torch.testing.assert_close(terms[name], expected[name])  # the values are the same, the gradients are not
        sum(terms.values()).backward()
        moved = [name for name, p in model.named_parameters() if p.grad is not None]
        assert bool(moved) == (step == 2), moved
        for part in (loss.decoder, loss.masked_lm):
            assert any(p.grad is not None and p.grad.any() for p in part.parameters())
    assert loss.steps == 3


def test_a_base_acts_while_the_decoder_warms_up(still_encoder: SentenceTransformer) -> None:
    columns = features(still_encoder)
    base = SimCSELoss(still_encoder)
    base([dict(columns[0])]).backward()
    wanted = {name: p.grad.clone() for name, p in still_encoder.named_parameters() if p.grad is not None}
    still_encoder.zero_grad()
    sum(make_loss(still_encoder, base_loss=base, decoder_warmup_steps=1)(columns).values()).backward()
    for name, parameter in still_encoder.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, wanted[name], msg=name)
    assert any(gradient.any() for gradient in wanted.values())


def test_trainer_and_fit_leave_the_encoder_alone_while_the_decoder_warms_up(
    make_encoder: MakeEncoder, tmp_path: Path
) -> None:
    for number, run in enumerate((train, fit)):
        model = make_encoder()
        loss = make_loss(model, decoder_warmup_steps=1000)
        before = snapshot(loss)
        run(model, loss, DATA, tmp_path / f"run{number}")
        changed = differing(before, snapshot(loss))
        assert any(name.startswith("decoder.") for name in changed)
        assert not any(name.startswith("model.") for name in changed)
        assert loss.steps > 0


def test_matryoshka_counts_a_step_of_the_warmup_once(make_encoder: MakeEncoder) -> None:
    model = make_encoder()
    loss = make_loss(model, decoder_warmup_steps=2)
    matryoshka = MatryoshkaLoss(model, loss, [16, 8, 4])
    reached = []
    for _ in range(3):
        model.zero_grad()
        matryoshka(features(model), None).backward()
        reached.append(any(p.grad is not None for p in model.parameters()))
    assert reached == [False, False, True]
    assert loss.steps == 3


def test_evaluation_has_no_dropout_in_the_decoder(still_encoder: SentenceTransformer) -> None:
    loss = make_loss(still_encoder, decoder_dropout=0.5)
    columns = features(still_encoder)
    assert float(loss(columns)) != float(loss(columns))
    with torch.no_grad():
        value = float(loss(columns))
        assert value == float(loss(columns))
        assert value == float(loss.eval()(columns))


def test_a_prompt_is_not_written(still_encoder: SentenceTransformer) -> None:
    loss = make_loss(still_encoder)
    prompted = [still_encoder.preprocess(column[:6], prompt="the old ") for column in DATA.values()]
    vectors = torch.randn(2, 6, 16)
    expected = loss.compute_generative_loss(*vectors, features(still_encoder)[2])
    torch.testing.assert_close(loss.compute_generative_loss(*vectors, prompted[2]), expected)
    assert torch.isfinite(loss(prompted))
    signals: list[Tensor] = []
    loss.decoder.register_forward_pre_hook(lambda module, args: signals.append(args[1]))
    loss.reconstruct(DATA["sentence"][:2], DATA["masked"][:2], prompt="the old ")
    encoded = still_encoder.encode(DATA["sentence"][:2], prompt="the old ", convert_to_tensor=True)
    torch.testing.assert_close(signals[0][:, 0], encoded)


def test_training_and_writing_read_one_signal_without_dropout_in_writing(make_encoder: MakeEncoder) -> None:
    """Scale m is the difference's and n the product's, in both; writing has no dropout in encoder and decoder."""
    model = make_encoder(dropout=0.3)
    model.eval()
    loss = make_loss(model, difference_scale=3.0, product_scale=5.0, decoder_dropout=0.5)
    texts = [DATA["sentence"][:2], DATA["masked"][:2]]
    s, m = (model.encode(column, convert_to_tensor=True) for column in texts)
    expected = torch.stack([s, m, 3 * (s - m).abs(), 5 * (s * m).abs()], dim=1)
    seen: list[tuple[Tensor, bool, bool]] = []

    def note(decoder: nn.Module, args: Any) -> None:
        dropping = any(module.training for module in decoder.modules() if isinstance(module, nn.Dropout))
        seen.append((args[1], dropping, model.training))

    loss.decoder.register_forward_pre_hook(note)
    loss.compute_generative_loss(s, m, features(model, rows=2)[2])
    torch.testing.assert_close(seen[0][0], expected)
    loss.train()
    seen.clear()
    written = [loss.reconstruct(*texts) for _ in range(3)]
    assert written[0] == written[1] == written[2]
    for signal, dropping, training in seen:
        torch.testing.assert_close(signal, expected)
        assert (dropping, training) == (False, False)
    assert all(module.training for module in loss.decoder.modules())


def test_truncate_dim_does_not_cut_the_signal(still_encoder: SentenceTransformer) -> None:
    expected = make_loss(still_encoder)(features(still_encoder))
    still_encoder.truncate_dim = 8
    loss = make_loss(still_encoder)
    assert loss.decoder.dimension == 16
    assert torch.equal(loss(features(still_encoder)), expected)


def test_matryoshka_gets_the_sum_of_each_dimension_and_mlm_once(make_encoder: MakeEncoder) -> None:
    model = make_encoder(dropout=0.0, with_head=True)
    columns = features(model)
    with torch.no_grad():  # the generator of the corruption draws the same again
        loss = make_loss(model, mlm_weight=0.5, base_loss=SimCSELoss(model), generator=generator(3))
        parts = loss(columns)
        whole = MatryoshkaLoss(model, loss, [16, 8])(columns, None)
        views = [model(dict(column))["sentence_embedding"] for column in columns[:2]]
        expected = parts["mlm"]
        for dimension in (16, 8):
            sentence, masked = (F.normalize(view[:, :dimension], dim=-1) for view in views)
            expected = expected + loss.compute_generative_loss(sentence, masked, columns[2])
            expected = expected + loss.base_loss.compute_loss_from_embeddings([sentence, sentence])
    torch.testing.assert_close(whole, expected)
    assert set(loss(columns)) == {"generative", "mlm", "base"}  # and outside it, several terms as ever


def test_matryoshka_draws_the_corruption_once(make_encoder: MakeEncoder) -> None:
    model = make_encoder(with_head=True)
    states = []
    for dimensions in ([16], [16, 8, 4]):
        loss = make_loss(model, mlm_weight=1.0, generator=generator(3))
        MatryoshkaLoss(model, loss, dimensions)(features(model), None).backward()
        states.append(loss.masked_lm.source.generator.get_state())
    assert torch.equal(*states)


# ---- encoders without a mask token


def decoder_like(model: SentenceTransformer, side: str = "right") -> SentenceTransformer:
    """The model with a tokenizer as decoders have it: no mask token, nothing around a text."""
    model.tokenizer.mask_token = None
    model.tokenizer.backend_tokenizer.post_processor = None
    model.tokenizer.padding_side = side
    return model


DELETED = PhraseMasking(mask_token=None, on_missing_mask="delete")(SENTENCES)
DELETED_DATA = {name: list(DELETED[name]) for name in ("sentence", "masked", "phrase")}


def test_without_a_mask_token_the_error_names_the_option(encoder: SentenceTransformer) -> None:
    encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r'^model must have .* mask token .* on_missing_mask="delete".*\.$'):
        make_loss(encoder)
    with pytest.raises(ValueError, match=r"^mlm_weight must be 0 for an encoder without a mask token, got .*\.$"):
        PaSeRLoss(encoder, on_missing_mask="delete")
    with pytest.raises(ValueError, match=r"^on_missing_mask must be one of 'error', 'delete', got 'drop'\.$"):
        make_loss(encoder, on_missing_mask="drop")


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_decoder_trains_on_deleted_phrases(still_encoder: SentenceTransformer, tmp_path: Path, side: str) -> None:
    model = decoder_like(still_encoder, side)
    loss = make_loss(model, on_missing_mask="delete")
    before = snapshot(loss)
    assert torch.isfinite(loss(features(model, DELETED_DATA)))
    assert loss.truncated_phrases == 0
    train(model, loss, DELETED_DATA, tmp_path)
    assert any(name.startswith("model.") for name in differing(before, snapshot(loss)))
    texts = (DELETED_DATA["sentence"][:2], DELETED_DATA["masked"][:2])
    assert len(loss.reconstruct(*texts)) == 2


def test_the_decoder_reads_the_same_phrases_whoever_writes_the_brackets(make_encoder: MakeEncoder) -> None:
    """[CLS] and [SEP], written by the tokenizer or by the loss, with padding on either side."""
    values = []
    for kind in ("written", "right", "left"):
        model = make_encoder(dropout=0.0)
        if kind != "written":
            decoder_like(model, kind)
        loss = make_loss(model, on_missing_mask="delete")
        phrase = features(model, DELETED_DATA)[2]
        s, m = torch.randn(2, 6, 16, generator=generator(1))
        values.append(loss.compute_generative_loss(s, m, phrase))
    torch.testing.assert_close(values[1], values[0])
    torch.testing.assert_close(values[2], values[0])


def test_a_deletion_beyond_the_length_does_not_count(still_encoder: SentenceTransformer) -> None:
    model = decoder_like(still_encoder)
    model.max_seq_length = 4
    loss = make_loss(model, on_missing_mask="delete", max_phrase_length=9)
    rows = [("a cat sat on the mat", "a cat sat on the", "mat"), ("a cat sat on the mat", "a sat on the mat", "cat")]
    data = dict(zip(DELETED_DATA, map(list, zip(*rows, strict=True)), strict=True))
    loss(features(model, data))
    assert loss.truncated_phrases == 1
    with pytest.raises(ValueError, match="'masked' has a row equal to its sentence"):
        loss(features(model, one("a cat", "a cat", "a")))


def test_instruments(encoder: SentenceTransformer) -> None:
    loss = make_loss(encoder)
    loss(features(encoder))
    assert loss.instruments == {"truncated_phrases": torch.tensor(0)}


def test_prompts(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    model = make_encoder()
    prompts = {"sentence": "the cat ", "masked": "the cat "}
    train(model, make_loss(model), DATA, tmp_path, prompts=prompts)
    with count_rows(model) as passes:
        make_loss(model)([model.preprocess(DATA["sentence"][:2], prompt="the cat "), *features(model, rows=2)[1:]])
    assert passes == [2, 2]  # different prompts cannot share a pass


def test_lora(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = make_encoder()
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query"]))
    loss = make_loss(model)
    train(model, loss, DATA, tmp_path)
    assert loss.reconstruct(DATA["sentence"][:1], DATA["masked"][:1])


def test_a_dictionary_of_losses(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    model = make_encoder()
    sets = {"phrases": Dataset.from_dict(DATA), "views": Dataset.from_dict({"sentence": SENTENCES})}
    losses = {"phrases": make_loss(model, mlm_weight=1.0), "views": SimCSELoss(model)}
    SentenceTransformerTrainer(model, args=arguments(tmp_path), train_dataset=sets, loss=losses).train()


# ---- edges and errors


def test_edge_batches(make_encoder: MakeEncoder) -> None:
    model = make_encoder(max_seq_length=8)
    loss = make_loss(model, mlm_weight=1.0)
    for data in (
        one("a cat sat", "a [MASK] sat", "cat"),
        one("cat", "[MASK]", "cat"),
        {name: [column[0]] * 4 for name, column in DATA.items()},
        one("猫", "[MASK]", "猫"),  # nothing but [UNK]
    ):
        terms = loss(features(model, data))
        assert all(torch.isfinite(value) for value in terms.values())
    long = one("a " * 20 + "cat", "a " * 20 + "[MASK]", "cat")
    terms = loss(features(model, long))
    assert float(terms["generative"]) == 0.0
    sum(terms.values()).backward()
    assert int(loss.truncated_phrases) == 1
    mixed = {name: [*long[name], *column[:2]] for name, column in DATA.items()}
    torch.manual_seed(0)
    still = make_loss(make_encoder(dropout=0.0, max_seq_length=8))
    alone = {name: column[:2] for name, column in DATA.items()}
    torch.testing.assert_close(still(features(model, mixed)), still(features(model, alone)))


def test_wrong_columns(encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match=r"got 2 columns: .*sentence, masked, phrase"):
        make_loss(encoder)(features(encoder)[:2])
    with pytest.raises(ValueError, match=r"A phrase has 5 tokens, more than max_phrase_length=4"):
        make_loss(encoder, max_phrase_length=4)(features(encoder, one("a cat a cat", "a [MASK]", "a cat a")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_decoder_layers": 0}, r"num_decoder_layers .* got 0"),
        ({"num_decoder_layers": 1.5}, r"got 1\.5"),
        ({"difference_scale": -1.0}, r"difference_scale .* got -1\.0"),
        ({"product_scale": -2.0}, r"product_scale .* got -2\.0"),
        ({"generative_weight": -1}, r"generative_weight .* got -1"),
        ({"mlm_weight": float("nan")}, r"mlm_weight .* got nan"),
        ({"decoder_dropout": 1.0}, r"decoder_dropout .* got 1\.0"),
        ({"decoder_output": "free"}, r"^decoder_output must be one of 'tied', 'own', 'detached', got 'free'\.$"),
        ({"decoder_start": "zero"}, r"^decoder_start must be one of 'xavier', 'normal', got 'zero'\.$"),
        ({"decoder_pre_norm": 1}, r"^decoder_pre_norm must be True or False, got 1\.$"),
        ({"decoder_warmup_steps": -1}, r"decoder_warmup_steps .* got -1"),
        ({"generative_weight": 0.0}, "generative_weight and mlm_weight must not both be 0"),
        ({"max_phrase_length": 2}, r"max_phrase_length .* got 2"),
        ({"base_loss": nn.Identity()}, r"base_loss=Identity has no compute_loss_from_embeddings"),
    ],
)
def test_wrong_arguments(encoder: SentenceTransformer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_loss(encoder, **options)


def test_wrong_models(make_encoder: MakeEncoder, encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="base_loss=SimCSELoss must be built on the same model"):
        make_loss(encoder, base_loss=SimCSELoss(make_encoder()))
    with pytest.raises(ValueError, match=r"sentences and masked .* 1 and 2"):
        make_loss(encoder).reconstruct(["a"], ["a", "b"])
    encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match="mask token"):
        make_loss(encoder)


def test_settings_and_citation(encoder: SentenceTransformer) -> None:
    loss = make_loss(encoder, product_scale=4)
    assert loss.get_config_dict()["product_scale"] == 4
    assert loss.get_config_dict()["max_phrase_length"] == 16
    assert "emnlp-main" in loss.citation
