"""Label-free selection: each signal against a by-hand loop, the changed forms, and the evaluator."""

from __future__ import annotations

import csv
import math
import random
from itertools import combinations
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from scipy.stats import rankdata
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor

from st_extras.evaluation.geometry import alignment, uniformity
from st_extras.evaluation.perturbations import PerturbedForms, delete_words, swap_adjacent, words_or_letters
from st_extras.evaluation.selection import SIGNALS, UnlabeledSelectionEvaluator
from st_extras.evaluation.signals import (
    agreement_margin,
    alignment_uniformity,
    contrast,
    discriminability,
    graded_agreement,
    hub_freeness,
    lexical_agreement,
    nearest,
    neighbour_stability,
    rank_correlation,
    recovery,
    structure_agreement,
)
from st_extras.losses import SimCSELoss
from tests.helpers import arguments

CORPUS = [
    f"{who} {what} {where}"
    for who in ("a cat", "the dog", "the old man", "a woman")
    for what in ("sat on", "ran in", "walks slowly to")
    for where in ("the mat", "the park", "a river")
]


def cloud(seed: int, rows: int = 6, size: int = 3) -> Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(a: Tensor, b: Tensor) -> float:
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    return sum(p * q for p, q in pairs) / math.sqrt(sum(p * p for p, _ in pairs) * sum(q * q for _, q in pairs))


def spearman(a: list[float], b: list[float]) -> float:
    """Pearson's correlation of the ranks, written out."""
    x, y = rankdata(a), rankdata(b)
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum()))


def test_margin_recovery_and_contrast_equal_the_loops() -> None:
    z, p = cloud(1), cloud(1) + 2 * cloud(2)
    margins, ranks, logs = [], [], []
    for i in range(6):
        own = cosine(p[i], z[i])
        others = [cosine(p[i], z[j]) for j in range(6) if j != i]
        margins.append(own - max(others))
        ranks.append(1 / (1 + sum(other >= own for other in others)))
        logs.append(own / 0.1 - math.log(sum(math.exp(c / 0.1) for c in [own, *others])))
    assert min(margins) < 0 < max(margins)
    assert agreement_margin(z, p) == pytest.approx(sum(margins) / 6)
    assert recovery(z, p) == pytest.approx(sum(ranks) / 6)
    assert contrast(z, p, temperature=0.1) == pytest.approx(sum(logs) / 6)


def test_discriminability_equals_the_loop() -> None:
    z, p = cloud(3), cloud(3) + 0.3 * cloud(4)
    own = [cosine(p[i], z[i]) for i in range(6)]
    rest = [cosine(p[i], z[j]) for i in range(6) for j in range(6) if i != j]
    mean = sum(rest) / 30
    spread = math.sqrt(sum((c - mean) ** 2 for c in rest) / 30)
    assert discriminability(z, p) == pytest.approx((sum(own) / 6 - mean) / spread)
    assert discriminability(torch.ones(4, 3), torch.ones(4, 3)) == 0.0


def test_rank_signals_equal_the_loops() -> None:
    z, p = cloud(5), cloud(5) + 0.5 * cloud(6)
    first = [cosine(z[i], z[j]) for i, j in combinations(range(6), 2)]
    second = [cosine(p[i], p[j]) for i, j in combinations(range(6), 2)]
    assert structure_agreement(z, p) == pytest.approx(spearman(first, second))
    kept = torch.tensor([0.1, 0.9, 0.3, 0.3, 0.7, 0.5])
    expected = spearman([cosine(z[i], p[i]) for i in range(6)], kept.tolist())
    assert graded_agreement(z, p, kept) == pytest.approx(expected)
    pairs = torch.tensor([[0, 1], [2, 5], [3, 4], [1, 4]])
    overlap = torch.tensor([0.0, 0.5, 0.2, 0.9])
    expected = spearman([cosine(z[i], z[j]) for i, j in pairs.tolist()], overlap.tolist())
    assert lexical_agreement(z, pairs, overlap) == pytest.approx(expected)


def test_a_constant_side_correlates_with_nothing() -> None:
    assert rank_correlation(torch.ones(4), torch.arange(4)) == 0.0
    assert rank_correlation(torch.arange(4), torch.ones(4)) == 0.0
    assert rank_correlation(torch.arange(4), 2 * torch.arange(4)) == pytest.approx(1.0)


def test_alignment_uniformity_is_their_sum_turned_round() -> None:
    z, p = cloud(7), cloud(8)
    assert alignment_uniformity(z, p) == pytest.approx(-alignment(z, p) - uniformity(z))


def test_neighbour_stability_and_hubs_equal_the_loops() -> None:
    z, previous = cloud(9, rows=8), cloud(9, rows=8) + 0.6 * cloud(10, rows=8)

    def neighbours(x: Tensor) -> list[set[int]]:
        return [set(sorted((j for j in range(8) if j != i), key=lambda j: -cosine(x[i], x[j]))[:3]) for i in range(8)]

    now, before = neighbours(z), neighbours(previous)
    assert [set(row) for row in nearest(z, 3).tolist()] == now
    expected = sum(len(a & b) / 3 for a, b in zip(now, before, strict=True)) / 8
    assert 0 < expected < 1
    assert neighbour_stability(z, previous, neighbours=3) == pytest.approx(expected)
    assert neighbour_stability(z, z) == 1.0
    counts = [sum(i in row for row in now) for i in range(8)]
    mean = sum(counts) / 8
    spread = math.sqrt(sum((c - mean) ** 2 for c in counts) / 8)
    assert hub_freeness(z, neighbours=3) == pytest.approx(-sum((c - mean) ** 3 for c in counts) / 8 / spread**3)
    assert hub_freeness(torch.eye(4), neighbours=3) == 0.0


@pytest.mark.parametrize("signal", [agreement_margin, recovery, contrast, discriminability, structure_agreement])
def test_signals_do_not_see_scale_and_order_and_refuse_bad_shapes(signal) -> None:
    z, p = cloud(11), cloud(11) + 0.4 * cloud(12)
    assert signal(3 * z.flip(0), 0.2 * p.flip(0)) == pytest.approx(signal(z, p))
    with pytest.raises(ValueError, match=r"one shape, got \(6, 3\) and \(5, 3\)"):
        signal(z, p[:5])
    with pytest.raises(ValueError, match=r"clean must be \(N, D\) with N >= 2"):
        signal(z[:1], p[:1])


def test_words_where_there_are_words_and_letters_elsewhere() -> None:
    assert words_or_letters("the cat sat down") == ["the", "cat", "sat", "down"]
    assert words_or_letters("我爱北京") == ["我", "爱", "北", "京"]
    assert words_or_letters("cat") == ["c", "a", "t"]


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 1), (4, 3), (10, 8), (20, 17)])
def test_deletion_keeps_order_and_its_share(count: int, left: int) -> None:
    units = [f"w{i:02d}" for i in range(count)]
    shorter = delete_words(units, random.Random(1))
    assert len(shorter) == left
    assert shorter == sorted(shorter)


def test_swap_moves_neighbours_and_loses_nothing() -> None:
    units = list("abcdefghij")
    swapped = swap_adjacent(units, random.Random(3))
    assert swapped != units
    assert sorted(swapped) == units
    assert sum(a != b for a, b in zip(units, swapped, strict=True)) <= 4
    assert swap_adjacent(["a"], random.Random(3)) == ["a"]
    assert swap_adjacent(["a", "b"], random.Random(3)) == ["b", "a"]
    assert units == list("abcdefghij")


def test_kept_shares_equal_a_hand_count() -> None:
    """Every word once: equal weights, so the kept share is a share of words."""
    sentences = [" ".join(f"s{i}w{j}" for j in range(10)) for i in range(12)]
    forms = PerturbedForms(sentences, random.Random(0))
    for index, sentence in enumerate(sentences):
        own = set(sentence.split())
        shortened = forms.texts["shortening"][index].split()
        assert set(shortened) < own
        assert forms.kept["shortening"][index] == pytest.approx(len(shortened) / 10)
        blended = forms.texts["blending"][index].split()
        assert len(blended) == 10
        assert forms.kept["blending"][index] == pytest.approx(sum(word in own for word in blended) / 10)
        strangers = {word.split("w")[0] for word in blended} - {f"s{index}"}
        assert len(strangers) == 1
    assert {round(10 * float(share)) for share in forms.kept["blending"]} >= {2, 4, 6, 8}


def test_rare_words_weigh_more() -> None:
    sentences = [f"the the the rare{i}" for i in range(12)]
    forms = PerturbedForms(sentences, random.Random(0))
    weight = math.log(13 / 2) + 1
    for text, kept in zip(forms.texts["shortening"], forms.kept["shortening"].tolist(), strict=True):
        words = text.split()
        mass = words.count("the") + weight * (len(words) - words.count("the"))
        assert kept == pytest.approx(mass / (3 + weight))


def test_forms_of_text_without_spaces_have_none() -> None:
    forms = PerturbedForms(["我爱北京天安门"] * 3 + ["a b c d e"], random.Random(0))
    for texts in forms.texts.values():
        assert all(" " not in text for text in texts[:3] if not set(text) & set("abcde"))
    assert len(forms.texts["deletion"][3].split()) == 4


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
        ([], {}, "at least 1 sentences, got 0"),
        ("one sentence", {}, "got one string"),
        ([None], {}, "must hold strings, got None"),
        (CORPUS, {"signal": "luck"}, "margin_dropout.*got 'luck'"),
        (CORPUS, {"size": 3}, "size must be >= 10, got 3"),
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
