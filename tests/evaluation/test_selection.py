"""The label-free evaluator: which sentences it asks about, what it returns, and that it changes nothing else."""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

import pytest
import torch
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

from st_extras.evaluation.confusable import choose_confusable
from st_extras.evaluation.geometry import uniformity
from st_extras.evaluation.selection import SIGNALS, UnlabeledSelectionEvaluator
from st_extras.evaluation.signals import agreement_margin, graded_agreement
from st_extras.losses import SimCSELoss
from tests.helpers import arguments

CORPUS = [
    f"{who} {what} {where}"
    for who in ("a cat", "the dog", "the old man", "a woman")
    for what in ("sat on", "ran in", "walks slowly to")
    for where in ("the mat", "the park", "a river")
]


@pytest.fixture
def evaluator() -> UnlabeledSelectionEvaluator:
    return UnlabeledSelectionEvaluator(CORPUS, size=20, name="toy", batch_size=8)


def test_the_evaluator_returns_every_signal(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator, tmp_path: Path
) -> None:
    metrics = evaluator(encoder, str(tmp_path), epoch=1, steps=3)
    assert list(metrics) == [f"toy_{name}" for name in SIGNALS]
    assert evaluator.primary_metric in metrics
    assert evaluator.greater_is_better
    assert all(math.isfinite(value) for value in metrics.values())
    embeddings = evaluator.embed(encoder)
    clean = encoder.encode(evaluator.sentences, convert_to_tensor=True)
    for form in ("deletion", "swap", "shortening", "blending"):
        changed = encoder.encode(evaluator.forms[form], convert_to_tensor=True)
        torch.testing.assert_close(embeddings[form], changed)
        assert not torch.allclose(changed, clean)
    assert metrics["toy_margin_swap"] == pytest.approx(agreement_margin(clean, embeddings["swap"]), abs=1e-5)
    assert metrics["toy_graded_blending"] == pytest.approx(
        graded_agreement(clean, embeddings["blending"], evaluator.kept["blending"]), abs=1e-2
    )
    assert metrics["toy_spread"] == pytest.approx(-uniformity(clean), abs=1e-5)
    with (tmp_path / "unlabeled_selection_toy_results.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["lexical"]) == pytest.approx(metrics["toy_lexical"])
    assert (row["epoch"], row["steps"]) == ("1", "3")


def test_stability_compares_with_the_call_before(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator
) -> None:
    assert evaluator(encoder)["toy_stability"] == 0.0
    assert evaluator(encoder)["toy_stability"] == 1.0
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    assert 0 < evaluator(encoder)["toy_stability"] < 1


def test_a_callers_autocast_does_not_round_the_signals(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeddings = evaluator.embed(encoder)
    monkeypatch.setattr(evaluator, "embed", lambda model: embeddings)
    evaluator(encoder)
    expected = evaluator(encoder)
    with torch.autocast("cpu", torch.bfloat16):
        assert evaluator(encoder) == expected


def test_all_checkpoints_answer_the_same_questions(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator
) -> None:
    first, second = evaluator.embed(encoder), evaluator.embed(encoder)
    for form, embeddings in first.items():
        torch.testing.assert_close(embeddings, second[form], rtol=0, atol=0)
    assert not torch.allclose(first["dropout"], first["clean"])
    again = UnlabeledSelectionEvaluator(CORPUS, size=20)
    assert (again.sentences, again.forms) == (evaluator.sentences, evaluator.forms)
    other = UnlabeledSelectionEvaluator(CORPUS, size=20, seed=1)
    assert other.sentences != evaluator.sentences
    torch.testing.assert_close(other.embed(encoder)["clean"], encoder.encode(other.sentences, convert_to_tensor=True))


@pytest.mark.parametrize("training", [True, False])
def test_nothing_outside_moves(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator, training: bool
) -> None:
    encoder.train(training)
    encoder[1].eval()
    random.seed(5)
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    states = torch.get_rng_state(), random.getstate()
    modes = [module.training for module in encoder.modules()]
    evaluator(encoder)
    UnlabeledSelectionEvaluator(CORPUS, size=12)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert [module.training for module in encoder.modules()] == modes
    assert not encoder[0]._forward_pre_hooks
    assert all(torch.equal(value, weights[name]) for name, value in encoder.state_dict().items())


def test_it_encodes_six_texts_a_sentence(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    forward = encoder[0].forward

    def count(features, **options):
        seen.append(features["input_ids"].size(0))
        return forward(features, **options)

    monkeypatch.setattr(encoder[0], "forward", count)
    evaluator(encoder)
    assert sum(seen) == 6 * 20


def test_half_of_the_sentences_are_near_ones_of_the_other_half() -> None:
    words = random.Random(0)
    corpus = []
    for i in range(40):
        topic = [f"t{i}x{j}" for j in range(6)]
        corpus.append(" ".join(topic))
        corpus.append(" ".join([*topic[:4], f"u{i}", f"v{i}"]))
        corpus.append(" ".join(topic) + " .")  # the same sentence in another dress
    words.shuffle(corpus)
    evaluator = UnlabeledSelectionEvaluator(corpus, size=20)
    assert len(set(evaluator.sentences)) == 20
    pairs = zip(evaluator.sentences[:10], evaluator.sentences[10:], strict=True)
    shared = [len(set(seed.split()) & set(neighbour.split()) - {"."}) for seed, neighbour in pairs]
    assert 6 not in shared
    assert shared.count(4) >= 7  # the near one of the others is taken
    near = evaluator.overlap > 0.3
    assert near.sum() >= 10
    assert all(i < j for i, j in evaluator.pairs.tolist())


def test_dropout_free_encoders_agree_with_themselves(still_encoder: SentenceTransformer) -> None:
    evaluator = UnlabeledSelectionEvaluator(CORPUS, size=12)
    embeddings = evaluator.embed(still_encoder)
    torch.testing.assert_close(embeddings["dropout"], embeddings["clean"])
    assert evaluator(still_encoder)["structure_dropout"] == pytest.approx(1.0)


def test_a_collapsed_encoder_scores_worst(encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator) -> None:
    clouds = evaluator.embed(encoder)
    living = evaluator.signals(clouds)
    dead = evaluator.signals({form: torch.ones_like(embeddings) for form, embeddings in clouds.items()})
    assert all(math.isfinite(value) for value in dead.values())
    for name in ("graded_blending", "structure_dropout", "recovery_shortening", "discriminability_deletion", "spread"):
        assert dead[name] < living[name]


def test_it_chooses_the_checkpoint_in_the_trainer(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator, sentences: list[str], tmp_path: Path
) -> None:
    trainer = SentenceTransformerTrainer(
        encoder,
        args=arguments(
            tmp_path,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model=f"eval_{evaluator.primary_metric}",
        ),
        train_dataset=Dataset.from_dict({"sentence": sentences}),
        loss=SimCSELoss(encoder),
        evaluator=evaluator,
    )
    trainer.train()
    key = f"eval_{evaluator.primary_metric}"
    logged = [entry[key] for entry in trainer.state.log_history if key in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == pytest.approx(max(logged))
    encoder.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf8")
    assert "Unlabeled Selection" in card
    assert "contrast_shortening" in card


@pytest.mark.parametrize(
    ("sentences_", "options", "message"),
    [
        (["one sentence"], {}, "at least 10 distinct, non-empty ones, got 1"),
        (["one sentence", " "] * 30, {}, "got 1"),
        ([], {}, "at least 10 distinct, non-empty ones, got 0"),
        ("one sentence", {}, "got the string 'one sentence'"),
        ([None], {}, "sentences, row 0: expected a sentence, got None"),
        (CORPUS, {"signal": "luck"}, "signal must be one of 'margin_dropout'.*got 'luck'"),
        (CORPUS, {"size": 3}, "size must be a whole number between 10 and 20000, got 3"),
    ],
)
def test_bad_input_is_refused(sentences_, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UnlabeledSelectionEvaluator(sentences_, **options)


def test_a_diverged_encoder_is_named(encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator) -> None:
    with torch.no_grad():
        next(encoder.parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match="did the training diverge"):
        evaluator(encoder)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("batch_size", 0, "between 1 and 1048576, got 0"),
        ("batch_size", 10**11, "got 100000000000"),
        ("batch_size", "8", "got '8'"),
        ("batch_size", True, "got True"),
        ("write_csv", "False", "True or False, got 'False'"),
        ("name", 5, "name must be a string"),
        ("name", "a/b", "name must be a string without"),
        ("show_progress_bar", "no", "True or False, got 'no'"),
        ("seed", 1.5, "whole number .*got 1.5"),
        ("seed", "1", "got '1'"),
        ("seed", -1, "got -1"),
        ("seed", 2**40, "got 1099511627776"),
        ("size", 10**11, "whole number"),
        ("size", 12.5, "got 12.5"),
        ("signal", None, "one of"),
    ],
)
def test_wrong_options_are_named(option: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be .*{message.split(' must be ')[-1]}"):
        UnlabeledSelectionEvaluator(CORPUS, **{option: value})


def test_a_data_set_is_taken() -> None:
    expected = UnlabeledSelectionEvaluator(CORPUS, size=12)
    again = UnlabeledSelectionEvaluator(Dataset.from_dict({"text": CORPUS}), size=12)
    assert (again.sentences, again.forms) == (expected.sentences, expected.forms)
    with pytest.raises(ValueError, match="'train'"):
        UnlabeledSelectionEvaluator({"train": CORPUS})


def _many(count: int = 600) -> list[str]:
    return [f"{CORPUS[i % len(CORPUS)]} number {i % 400} " for i in range(count)]


def _stream(sentences: list[str]) -> IterableDataset:
    return IterableDataset.from_generator(lambda: ({"text": sentence} for sentence in sentences))


@pytest.mark.parametrize("make", [iter, _stream])
def test_a_short_stream_gives_the_choice_of_its_list(make) -> None:
    expected = UnlabeledSelectionEvaluator(_many(), size=20)
    again = UnlabeledSelectionEvaluator(make(_many()), size=20)
    assert (again.sentences, again.forms) == (expected.sentences, expected.forms)


def test_a_long_stream_is_sampled_with_no_more_than_the_sample_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = []

    def choose(sentences, size, generator):
        pools.append(list(sentences))
        return choose_confusable(sentences, size, generator)

    monkeypatch.setattr("st_extras.evaluation.selection.LARGEST_POOL", 50)
    monkeypatch.setattr("st_extras.evaluation.selection.choose_confusable", choose)
    first, again, other = (
        UnlabeledSelectionEvaluator(make(_many()), size=20, seed=seed)
        for make, seed in ((iter, 1), (_stream, 1), (iter, 2))
    )
    assert [len(set(pool)) for pool in pools] == [50, 50, 50]
    assert set(pools[0]) <= {text.strip() for text in _many()}
    assert (first.sentences, first.forms) == (again.sentences, again.forms)
    assert first.sentences != other.sentences


def test_the_choice_from_a_list_is_that_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of earlier runs depend on it."""
    monkeypatch.setattr("st_extras.evaluation.confusable.LARGEST_POOL", 50)
    monkeypatch.setattr("st_extras.evaluation.selection.LARGEST_POOL", 50)
    distinct = list(dict.fromkeys(text.strip() for text in _many()))
    expected = choose_confusable(distinct, 20, random.Random(3)).sentences
    assert UnlabeledSelectionEvaluator(_many(), size=20, seed=3).sentences == expected
    assert UnlabeledSelectionEvaluator(tuple(_many()), size=20, seed=3).sentences == expected


def test_the_seed_fixes_the_dropout_masks(encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator) -> None:
    torch.manual_seed(1)
    first = evaluator.embed(encoder)["dropout"]
    torch.manual_seed(2)
    torch.testing.assert_close(evaluator.embed(encoder)["dropout"], first, rtol=0, atol=0)
    evaluator.seed += 1
    assert not torch.allclose(evaluator.embed(encoder)["dropout"], first)
    assert torch.initial_seed() == 2


def test_batches_are_of_the_size_asked_for(
    encoder: SentenceTransformer, evaluator: UnlabeledSelectionEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    preprocess = encoder.preprocess
    monkeypatch.setattr(
        encoder, "preprocess", lambda texts, **options: seen.append(len(texts)) or preprocess(texts, **options)
    )
    evaluator(encoder)
    assert set(seen) == {8, 4}
