from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import (
    DenoisingAutoEncoderLoss,
    GlobalOrthogonalRegularizationLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from st_extras.encoders.forward import encode_tokens
from st_extras.losses import AdCSELoss, DCLRLoss, SimCSELoss, epochs_to_steps
from st_extras.losses.consert import ConSERTLoss
from st_extras.losses.frequency_adversarial import token_cross_entropy
from st_extras.losses.incomplete_sentence import incomplete_cross_entropy
from st_extras.losses.slt_fai import SLTFAILoss
from st_extras.text.frequency import FrequencyTable
from tests.helpers import (
    arguments,
    assert_resume_is_seamless,
    columns,
    count_rows,
    differing,
    fit,
    generator,
    padded,
    snapshot,
    train,
)
from tests.losses.bases import BASES, OwnKeysLoss


def make_loss(model: SentenceTransformer, table: FrequencyTable, **options: object) -> SLTFAILoss:
    return SLTFAILoss(model, frequency_table=table, generator=generator(), **options)


def test_the_sum_is_eq_2_term_by_term(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(still_encoder, frequency_table, base_weight=0.5, adversarial_weight=2.0, incomplete_weight=3.0)
    features = still_encoder.preprocess(sentences)
    terms = loss([features])
    same_masks = make_loss(still_encoder, frequency_table)
    incomplete, kept = same_masks.incomplete.make_incomplete(features)
    encoded = encode_tokens(still_encoder, features)
    anchor = encoded.sentence
    base = SimCSELoss(still_encoder).compute_loss_from_embeddings([anchor, anchor])
    logits = loss.adversarial.discriminator(encoded.tokens)
    adversarial = token_cross_entropy(logits, frequency_table.labels()[encoded.input_ids], encoded.content_mask)
    masked = still_encoder(dict(incomplete))["sentence_embedding"]
    discriminator = loss.incomplete.discriminator
    filtering = incomplete_cross_entropy(discriminator(anchor), discriminator(masked), kept)
    assert 0 < kept.sum() < len(kept)
    expected = {"base": 0.5 * base, "adversarial": 2 * adversarial, "incomplete": 3 * filtering}
    assert list(terms) == list(expected)
    for name, term in expected.items():
        assert torch.allclose(terms[name], term, atol=1e-5), name


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("count", [1, 2])
def test_one_pass_a_step(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, base: str, count: int
) -> None:
    make, num_views = BASES[base]
    loss = make_loss(encoder, frequency_table, base_loss=make(encoder), warmup_steps=1)
    features = [encoder.preprocess(texts) for texts in columns(sentences, count).values()]
    before = [{key: value.clone() for key, value in f.items() if isinstance(value, Tensor)} for f in features]
    with count_rows(encoder) as passes:
        warm = loss(features)
        full = loss(features)
    rows = len(sentences)
    assert passes == [num_views * rows, (num_views + 1) * rows]
    assert warm["adversarial"] == 0
    assert warm["incomplete"] == 0
    assert all(full[name] != 0 for name in ("base", "adversarial", "incomplete"))
    sum(full.values()).backward()
    owned = {name for name, p in loss.named_parameters() if "discriminator" in name}
    assert len(owned) == 8
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in loss.named_parameters() if n in owned)
    for f, kept in zip(features, before, strict=True):
        assert all(torch.equal(f[key], value) for key, value in kept.items())


def test_own_keys_get_the_untouched_columns(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    base = OwnKeysLoss(encoder)
    make_loss(encoder, frequency_table, base_loss=base)([encoder.preprocess(sentences)])
    assert base.seen == [(1, 1)]


def test_the_base_is_the_base(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    features = [still_encoder.preprocess(sentences)]
    for make in (SimCSELoss, MultipleNegativesRankingLoss):
        wrapped = make_loss(still_encoder, frequency_table, base_loss=make(still_encoder))(features)["base"]
        both = [still_encoder(dict(features[0]))["sentence_embedding"]] * 2
        assert torch.allclose(wrapped, make(still_encoder).compute_loss_from_embeddings(both, None), atol=1e-5)


def test_a_base_of_several_terms_is_their_sum(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    base = GlobalOrthogonalRegularizationLoss(still_encoder)
    features = [still_encoder.preprocess(sentences), still_encoder.preprocess(sentences[::-1])]
    wrapped = make_loss(still_encoder, frequency_table, base_loss=base)(features)["base"]
    terms = base([dict(column) for column in features])
    assert len(terms) > 1
    torch.testing.assert_close(wrapped, sum(terms.values()))


def test_matryoshka_runs_the_base_at_every_dimension_and_the_terms_once(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    features = [still_encoder.preprocess(sentences)]
    settings: dict[str, Any] = {"base_weight": 0.5, "adversarial_weight": 2.0, "incomplete_weight": 3.0}
    loss = make_loss(still_encoder, frequency_table, **settings)
    with torch.no_grad():
        whole = MatryoshkaLoss(still_encoder, loss, [16, 8], matryoshka_weights=[1, 0.25])(features, None)
        terms = loss(features)
        view = still_encoder(dict(features[0]))["sentence_embedding"]
        masked, kept = loss.incomplete.make_incomplete(features[0])
        pair = [F.normalize(v, dim=-1) for v in (view, still_encoder(dict(masked))["sentence_embedding"])]
        half = F.normalize(view[:, :8], dim=-1)
        expected = terms["base"] + terms["adversarial"]
        expected += 3.0 * loss.incomplete.compute_loss_from_embeddings(pair, kept=kept)
        expected += 0.25 * 0.5 * loss.base_loss.compute_loss_from_embeddings([half, half])
    torch.testing.assert_close(whole, expected)


@pytest.mark.parametrize("base", ["simcse", "consert", "dclr", "mnrl", "own keys"])
def test_matryoshka_counts_a_step_once(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, base: str
) -> None:
    features = [encoder.preprocess(sentences)]
    loss = make_loss(encoder, frequency_table, base_loss=BASES[base][0](encoder), warmup_steps=2, reversal_steps=9)
    matryoshka = MatryoshkaLoss(encoder, loss, [8, 4, 12])  # the full dimension is not among them
    with count_rows(encoder) as passes:
        for _ in range(4):
            matryoshka(features, None).backward()
    views = BASES[base][1]
    assert set(passes) == {8 * views, 8 * views + 8}
    assert (loss.steps, loss.adversarial.steps) == (4, 2)
    assert loss.adversarial.discriminator.confusion.sum() > 0
    assert all(parameter.grad is not None for parameter in loss.incomplete.discriminator.parameters())


def test_matryoshka_over_a_base_that_has_no_smaller_dimensions_is_refused(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    features = [encoder.preprocess(sentences)]
    for base, message in (
        (AdCSELoss(encoder), "^AdCSELoss cannot run inside MatryoshkaLoss"),
        (SimCSELoss(encoder, projection=True), "use projection=False"),
    ):
        with pytest.raises(ValueError, match=message):
            MatryoshkaLoss(encoder, make_loss(encoder, frequency_table, base_loss=base), [16, 8])(features, None)


def test_instruments_are_those_of_the_parts(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table, base_loss=AdCSELoss(encoder))
    loss([encoder.preprocess(sentences)])
    assert set(loss.instruments) == {
        "adversarial_discriminator_accuracy", "balanced_accuracy", "adversarial_loss", "labels_entropy",
        "incomplete_discriminator_accuracy", "left_out", "adversary_similarity", "adversary_share",
        "adversary_angle",
    }  # fmt: skip
    assert all(value.isfinite() and value.dim() == 0 for value in loss.instruments.values())
    without = make_loss(encoder, frequency_table, adversarial_weight=0)
    assert "discriminator_accuracy" in without.instruments


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_decoder_trains_with_deleted_tokens(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, tmp_path: Path, side: str
) -> None:
    encoder.tokenizer.mask_token = None
    encoder.tokenizer.padding_side = side
    with pytest.raises(ValueError, match=r'on_missing_mask="delete".*incomplete_weight=0'):
        make_loss(encoder, frequency_table)
    loss = make_loss(encoder, frequency_table, on_missing_mask="delete")
    terms = loss([encoder.preprocess(sentences)])
    assert terms["incomplete"] > 0
    train(encoder, loss, columns(sentences), tmp_path)
    with pytest.raises(ValueError, match=r"^on_missing_mask must be one of"):
        make_loss(encoder, frequency_table, on_missing_mask="mask")


def test_without_at_or_isf(encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable) -> None:
    features = [encoder.preprocess(sentences)]
    with count_rows(encoder) as passes:
        without_at = make_loss(encoder, frequency_table, adversarial_weight=0)
        assert set(without_at(features)) == {"base", "incomplete"}
        without_isf = make_loss(encoder, frequency_table, incomplete_weight=0)
        assert set(without_isf(features)) == {"base", "adversarial"}
    assert passes == [24, 16]
    assert without_at.adversarial is None
    assert without_isf.incomplete is None


def test_padding_changes_neither_loss_nor_gradients(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    features = still_encoder.preprocess(sentences)
    loss = make_loss(still_encoder, frequency_table)
    results = []
    for batch in (features, padded(features)):
        loss.incomplete.mask_source.generator.manual_seed(3)
        loss.zero_grad()
        terms = loss([batch])
        sum(terms.values()).backward()
        results.append([*terms.values(), *(p.grad.clone() for p in loss.parameters() if p.grad is not None)])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*results, strict=True))


def test_the_incomplete_row_has_the_first_views_augmentation(
    make_encoder: Callable[..., SentenceTransformer], sentences: list[str], frequency_table: FrequencyTable
) -> None:
    model = make_encoder(dropout=0.5).train()
    loss = make_loss(model, frequency_table, base_loss=ConSERTLoss(model))
    inputs = []
    model[0].register_forward_pre_hook(lambda module, args: inputs.append((dict(args[0]), module.training)))
    outputs, judged = [], []
    model.register_forward_hook(lambda module, args, output: outputs.append(output["sentence_embedding"]))
    compute = loss.incomplete.compute_loss_from_embeddings
    loss.incomplete.compute_loss_from_embeddings = lambda pair, kept: judged.append(pair) or compute(pair, kept=kept)
    loss([model.preprocess(sentences)])
    (rows, training), size = inputs[0], len(sentences)
    assert torch.equal(judged[0][0], outputs[0][:size])  # the original is the first view
    assert torch.equal(judged[0][1], outputs[0][2 * size :])
    assert not training  # ConSERT's dropout is off, in the whole pass
    first, second, incomplete = rows["inputs_embeds"].split(size)
    cut = [(block == 0).all(dim=1).sum(dim=1) for block in (first, second, incomplete)]
    assert cut[0].tolist() == cut[2].tolist() == [3] * size  # round(0.2 * 16) features
    assert cut[1].sum() == 0
    natural, shuffled, masked = rows["position_ids"].split(size)
    assert torch.equal(natural, masked)
    assert not torch.equal(natural, shuffled)


def test_warm_up_counts_training_forwards(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table, warmup_steps=2)
    features = [encoder.preprocess(sentences)]
    with torch.no_grad():
        loss(features)
    assert loss.steps == 0
    active = [bool(loss(features)["adversarial"] != 0) for _ in range(4)]
    assert active == [False, False, True, True]
    assert loss.adversarial.steps == 2
    assert epochs_to_steps(0.5, 89192, 32) == 1394
    assert epochs_to_steps(0.1, 1_000_000, 32, num_processes=2) == 1562
    assert epochs_to_steps(0, 10, 3) == 0


@pytest.mark.parametrize("adversary", ["reversal", "confusion"])
def test_discriminators_warm_up_while_the_base_alone_moves_the_encoder(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, adversary: str
) -> None:
    features = [still_encoder.preprocess(sentences)]
    options: dict[str, Any] = {"warmup_steps": 1, "adversary": adversary}
    plain = make_loss(still_encoder, frequency_table, **options)
    expected = plain(features)["base"]
    expected.backward()
    wanted = {name: p.grad.clone() for name, p in still_encoder.named_parameters() if p.grad is not None}
    still_encoder.zero_grad()
    loss = make_loss(still_encoder, frequency_table, warmup_discriminators=True, **options)
    with count_rows(still_encoder) as passes:
        terms = loss(features)
    assert passes == [24]
    assert terms["adversarial"] > 0
    assert terms["incomplete"] > 0
    sum(terms.values()).backward()
    for name, parameter in still_encoder.named_parameters():
        assert (parameter.grad is None) == (name not in wanted), name
        if name in wanted:
            torch.testing.assert_close(parameter.grad, wanted[name], msg=name)
    owned = [p for name, p in loss.named_parameters() if "discriminator" in name]
    assert len(owned) == 8
    assert all(p.grad.abs().sum() > 0 for p in owned)
    assert loss.adversarial.steps == 0
    still_encoder.zero_grad()
    second = loss(features)
    (second["adversarial"] + second["incomplete"]).backward()
    assert any(p.grad is not None and p.grad.any() for p in still_encoder.parameters())
    assert loss.adversarial.steps == 1


def test_evaluation_moves_nothing(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = make_loss(encoder, frequency_table)
    features = [encoder.preprocess(sentences)]
    loss(features)
    before = snapshot(loss)
    with torch.no_grad():
        assert all(term.isfinite() for term in loss(features).values())
    assert not differing(before, snapshot(loss))


@pytest.mark.parametrize(("how", "count", "base"), [("fit", 1, "simcse"), ("fit", 2, "mnrl"), ("trainer", 2, "simcse")])
def test_training(
    encoder: SentenceTransformer,
    sentences: list[str],
    frequency_table: FrequencyTable,
    tmp_path: Path,
    how: str,
    count: int,
    base: str,
) -> None:
    loss = make_loss(encoder, frequency_table, base_loss=BASES[base][0](encoder), always_mask_one=True)
    before = snapshot(loss)
    (fit if how == "fit" else train)(encoder, loss, columns(sentences, count), tmp_path)
    changed = differing(before, snapshot(loss))
    for part in ("model.", "adversarial.discriminator.layers", "incomplete.discriminator.layers"):
        assert any(name.startswith(part) for name in changed), part
    encoder.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert torch.allclose(
        again.encode(sentences, convert_to_tensor=True), encoder.encode(sentences, convert_to_tensor=True)
    )


def test_the_trainer_logs_each_term(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, tmp_path: Path
) -> None:
    loss = make_loss(encoder, frequency_table, base_loss=DCLRLoss(encoder))
    trainer = train(encoder, loss, columns(sentences), tmp_path, logging_steps=1)
    logged = [entry for entry in trainer.state.log_history if "base" in entry]
    assert len(logged) == 2
    for entry in logged:
        assert entry["loss"] == pytest.approx(entry["base"] + entry["adversarial"] + entry["incomplete"], abs=0.01)


def test_a_dict_of_losses(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, tmp_path: Path
) -> None:
    losses = {"one": make_loss(encoder, frequency_table), "two": SimCSELoss(encoder)}
    data = DatasetDict({name: Dataset.from_dict(columns(sentences)) for name in losses})
    before = snapshot(losses["one"])
    SentenceTransformerTrainer(encoder, args=arguments(tmp_path), train_dataset=data, loss=losses).train()
    assert any("discriminator.layers" in name for name in differing(before, snapshot(losses["one"])))


def test_resume(
    make_encoder: Callable[..., SentenceTransformer],
    sentences: list[str],
    frequency_table: FrequencyTable,
    tmp_path: Path,
) -> None:
    def make(model: SentenceTransformer) -> SLTFAILoss:
        return SLTFAILoss(model, frequency_table=frequency_table, base_loss=ConSERTLoss(model), warmup_steps=1)

    assert_resume_is_seamless(make_encoder, make, columns(sentences), tmp_path)


def test_bf16_stays_close(encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable) -> None:
    loss = make_loss(encoder, frequency_table)
    features = [encoder.preprocess(sentences)]
    plain = loss(features)
    loss.incomplete.mask_source.generator.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss(features)
    for name in plain:
        assert half[name].dtype == torch.float32
        assert half[name].item() == pytest.approx(plain[name].item(), rel=0.05)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("texts", [["a cat"], ["two birds"] * 4, ["", ""], ["", "a cat"], ["birds " * 90, "a"]])
def test_edge_batches(
    encoder: SentenceTransformer, texts: list[str], frequency_table: FrequencyTable, base: str
) -> None:
    terms = make_loss(encoder, frequency_table, base_loss=BASES[base][0](encoder))([encoder.preprocess(texts)])
    sum(terms.values()).backward()
    assert all(term.isfinite() for term in terms.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


def test_lora(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    encoder.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"]))
    loss = make_loss(encoder, frequency_table, base_loss=ConSERTLoss(encoder))
    before = snapshot(encoder)
    train(encoder, loss, columns(sentences), tmp_path)
    changed = differing(before, snapshot(encoder))
    assert changed
    assert all("lora" in name for name in changed)


def test_prompts(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, tmp_path: Path
) -> None:
    loss = make_loss(encoder, frequency_table)
    trainer = train(encoder, loss, columns(sentences), tmp_path, prompts="two birds : ")
    assert trainer.state.global_step == 2


def test_bad_input(make_encoder: Callable[..., SentenceTransformer], frequency_table: FrequencyTable) -> None:
    encoder = make_encoder()
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)])
    for model, options, message in (
        (encoder, {"base_weight": -1}, "base_weight .* -1"),
        (encoder, {"adversarial_weight": -0.5}, "adversarial_weight .* -0.5"),
        (encoder, {"incomplete_weight": float("nan")}, "incomplete_weight .* nan"),
        (encoder, {"base_weight": 0, "adversarial_weight": 0, "incomplete_weight": 0}, "must not all be 0"),
        (encoder, {"base_weight": 0, "warmup_steps": 1}, "warmup_steps must be 0 with base_weight=0.* 1"),
        (encoder, {"warmup_steps": -1}, "warmup_steps .* -1"),
        (
            encoder,
            {"warmup_discriminators": True},
            "warmup_discriminators must be False with .*=0, got True",
        ),
        (encoder, {"warmup_steps": 0.5}, r"warmup_steps .* 0\.5"),
        (encoder, {"low_frequency_ratio": 0}, "low_frequency_ratio .* 0"),
        (encoder, {"mask_ratio": 2}, "mask_ratio .* 2"),
        (encoder, {"base_loss": SimCSELoss(make_encoder())}, "same model"),
        (
            encoder,
            {"base_loss": DenoisingAutoEncoderLoss.__new__(DenoisingAutoEncoderLoss)},
            "DenoisingAutoEncoderLoss",
        ),
        (encoder, {"base_loss": MatryoshkaLoss(encoder, SimCSELoss(encoder), [8])}, "MatryoshkaLoss"),
        (static, {}, "StaticEmbedding"),
    ):
        with pytest.raises(ValueError, match=message):
            SLTFAILoss(model, frequency_table=frequency_table, **options)
    with pytest.raises(ValueError, match=r"epochs .* -1"):
        epochs_to_steps(-1, 10, 2)
    flattened = {"input_ids": torch.ones(1, 9, dtype=torch.long), "cu_seq_lens_q": torch.tensor([0, 4, 9])}
    for base in (SimCSELoss(encoder), OwnKeysLoss(encoder)):
        with pytest.raises(ValueError, match="unpad_inputs"):
            make_loss(encoder, frequency_table, base_loss=base)([flattened])


def test_config_and_citation(encoder: SentenceTransformer, frequency_table: FrequencyTable) -> None:
    loss = make_loss(encoder, frequency_table, base_loss=ConSERTLoss(encoder), warmup_steps=3)
    config = loss.get_config_dict()
    assert config["base_loss"] == "ConSERTLoss"
    assert config["base_loss_config"]["temperature"] == 0.1
    assert config["warmup_steps"] == 3
    assert config["adversarial_weight"] == 1
    assert "wang2023unsupervised" in loss.citation
    assert "yan2021consert" in loss.citation
