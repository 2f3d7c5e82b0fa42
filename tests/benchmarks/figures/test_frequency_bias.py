import math

import pytest
import torch

from benchmarks.figures.frequency_bias import FrequencyBiasEvaluator, neighbor_distances, probe_accuracy


def test_probe_finds_a_direction_and_nothing_in_noise():
    source = torch.Generator().manual_seed(0)
    noise = torch.randn(400, 6, generator=source)
    low = torch.arange(400) % 2 == 0
    types = torch.arange(400) // 4 * 2 + (~low).long()  # two occurrences of each type
    told = noise.clone()
    told[:, 3] += 4 * low
    assert probe_accuracy(told, low, types) > 0.95
    assert abs(probe_accuracy(noise, low, types) - 0.5) < 0.1


def test_neighbours_are_of_other_types():
    points = torch.tensor([[0.0], [0.1], [1.0], [3.0], [7.0]])
    types = torch.tensor([5, 5, 6, 7, 8])
    expected = []
    for i in range(5):
        others = sorted(abs(points[i] - points[j]).item() for j in range(5) if types[i] != types[j])
        expected.append(sum(others[:2]) / 2)
    assert neighbor_distances(points, types, 2).tolist() == pytest.approx(expected, abs=1e-5)


def test_metrics_by_hand(encoder, sentences, frequency_table):
    evaluator = FrequencyBiasEvaluator(sentences, frequency_table=frequency_table, batch_size=3, neighbors=2)
    metrics = evaluator(encoder)
    embeddings, types = evaluator._tokens(encoder)
    low = frequency_table.labels()[types] == 1
    assert low.sum() == (~low).sum() == 20  # as many of both, though the text has 30 high ones
    scale = math.sqrt(sum(sum(x * x for x in row) for row in embeddings.tolist()) / len(embeddings))
    centre = embeddings.mean(dim=0)
    for name, group in (("low", low), ("high", ~low)):
        distances = [((row - centre) / scale).norm().item() for row in embeddings[group]]
        assert metrics[f"{name}_centre_distance"] == pytest.approx(sum(distances) / len(distances), rel=1e-4)
        assert metrics[f"{name}_neighbour_distance"] > 0
    assert 0 <= metrics["probe_accuracy"] <= 1
    assert evaluator.primary_metric == "probe_accuracy"
    assert not evaluator.greater_is_better
