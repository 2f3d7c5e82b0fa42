"""Cosines of unrelated texts, and of unrelated queries and documents."""

import dataclasses
import json
import math

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Router
from torch.nn.functional import normalize

from st_extras.encoders.structure import has_search_routes
from st_extras.evaluation import LabelFreeComparison, compare_texts, unrelated_pairs
from st_extras.evaluation.geometry import moved_threshold, sorted_pairs, unrelated_cosines
from st_extras.evaluation.unrelated_pairs import UnrelatedPairs, encode_pairs
from st_extras.text.corpus import sampled_texts
from tests.adaptation.texts import topical
from tests.helpers import count_rows, draw


def words(count: int) -> list[str]:
    """Different texts of words that the tiny encoder knows."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [f"{letters[i % 26]} cat {letters[i // 26]} dog" for i in range(count)]


@pytest.mark.parametrize("asked", [None, 60])
def test_cosines_are_those_of_all_pairs_but_related_ones(asked):
    rows, queries = draw(200, 6), None if asked is None else draw(asked, 6, seed=1)
    related = None if asked is None else draw(asked, 200, seed=2) > 1
    unit, other = normalize(rows), normalize(rows if queries is None else queries)
    products = (other @ unit.T).tolist()
    cosines = sorted(
        (
            products[i][j]
            for i in range(len(other))
            for j in range(200)
            if (j < i if related is None else not related[i, j])
        ),
        reverse=True,
    )
    found = unrelated_cosines(rows, queries=queries, related=related)
    assert list(found) == [100, 1000]
    for n, (value, low, high) in found.items():
        assert value == pytest.approx(cosines[len(cosines) // n - 1], abs=1e-5)
        assert low < value < high
    assert sorted_pairs(rows, queries, related)[0].tolist() == pytest.approx(cosines, abs=1e-5)


@pytest.mark.parametrize("asked", [None, 40])
def test_as_many_pairs_lie_above_the_moved_threshold(asked):
    before, after = draw(90, 6), draw(90, 5, seed=1)
    queries = None if asked is None else (draw(asked, 6, seed=2), draw(asked, 5, seed=3))
    related = None if asked is None else draw(asked, 90, seed=4) > 1
    old, new = (
        sorted_pairs(rows, None if queries is None else queries[side], related)[0].tolist()
        for side, rows in enumerate((before, after))
    )
    for threshold in (-0.3, 0.2, 0.8, old[7]):  # a pair does not lie above its own cosine
        found = moved_threshold(threshold, before, after, queries=queries, related=related)
        count = sum(cosine > threshold for cosine in old)
        assert 0 < count < len(old)
        assert (found.before, found.above, found.pairs) == (threshold, count, len(old))
        assert found.after is not None
        middle = sum(sorted(new, reverse=True)[count - 1 : count + 1]) / 2
        decimals = 2  # as few as change the number of pairs by at most 1 %
        while abs(sum(cosine > round(middle, decimals) for cosine in new) - count) > count // 100:
            decimals += 1
        assert found.after == pytest.approx(round(middle, decimals), abs=1e-9)
        assert decimals > 2 or threshold != 0.8, "few pairs are above it"
    for threshold, above in ((1.0, 0), (-1.0, len(old))):
        found = moved_threshold(threshold, before, after, queries=queries, related=related)
        assert (found.after, found.above) == (None, above)
    with pytest.raises(ValueError, match=r"^threshold must be"):
        moved_threshold(1.1, before, after)
    nearly = 1 + 1e-6 * after  # cosines that no seven decimals tell apart
    found = moved_threshold(
        0.2, before, nearly, queries=queries and (queries[0], 1 + 1e-6 * queries[1]), related=related
    )
    cosines = sorted_pairs(nearly, queries and 1 + 1e-6 * queries[1], related)[0]
    assert int((cosines > found.after).sum()) == found.above


def test_too_few_texts_or_queries_have_no_cosines():
    for rows, queries, named in ((39, None, "x"), (39, 40, "x"), (40, 39, "queries")):
        with pytest.raises(ValueError, match=rf"^{named} must be \(N, D\) with N >= 40, got the shape \(39, 6\)"):
            unrelated_cosines(draw(rows, 6), queries=None if queries is None else draw(queries, 6))


def test_rare_pairs_and_an_interval_of_cosines():
    """One in 100,000 needs a million pairs; no cosine is above 1."""
    assert list(unrelated_cosines(draw(1500, 4))) == [100, 1_000, 10_000, 100_000]
    for asked, marks in ((100, [100, 1_000]), (99, [100])):  # one in 1,000 needs 10,000
        assert list(unrelated_cosines(draw(100, 4), queries=draw(asked, 4, seed=1))) == marks
    rows = draw(60, 6)
    rows[:8] = rows[0] + 0.01 * draw(8, 6, seed=1)  # one in 63 pairs is nearly the same text
    assert unrelated_cosines(rows)[100][2] == 1.0


def test_the_interval_is_a_jackknife():
    rows, queries = draw(200, 6), draw(60, 6, seed=1)
    for given in (None, queries):
        others = [
            unrelated_cosines(
                torch.cat([rows[i::20] for i in range(20) if i != left]),
                queries=given if given is None else torch.cat([given[i::20] for i in range(20) if i != left]),
            )[100][0]
            for left in range(20)
        ]
        spread = 19**0.5 * torch.tensor(others, dtype=torch.float64).std(correction=0)
        _, low, high = unrelated_cosines(rows, queries=given)[100]
        assert (high - low) / 2 == pytest.approx(1.96 * float(spread), rel=1e-3)


@pytest.fixture
def routed(still_encoder):
    """An encoder whose queries go through a layer of their own, with a prompt."""
    layer = Dense(16, 16, activation_function=None)
    router = Router({"query": [layer], "document": [Dense(16, 16)]}, default_route="document")
    prompts = {"query": "the old ", "document": ""}
    return SentenceTransformer(modules=[*still_encoder, router], prompts=prompts, device="cpu")


def test_queries_and_documents_by_their_routes(routed, still_encoder):
    assert (has_search_routes(routed), has_search_routes(still_encoder)) == (True, False)
    documents = [f"{text}. two birds sing" for text in words(60)]
    queries = [*words(50), "two birds sing"]  # the last is in every document
    with count_rows(routed) as passes:
        pairs = encode_pairs([("it", routed)], documents, queries, batch_size=8)
    assert passes == [8] * 7 + [4] + [8] * 6 + [3]
    assert pairs.texts == documents
    torch.testing.assert_close(pairs.embeddings["it"], routed.encode_document(documents, convert_to_tensor=True))
    torch.testing.assert_close(pairs.queries["it"], routed.encode_query(queries, convert_to_tensor=True))
    assert pairs.related.tolist() == [[query in document for document in documents] for query in queries]
    assert pairs.related[-1].all()
    expected = unrelated_cosines(pairs.embeddings["it"], queries=pairs.queries["it"], related=pairs.related)
    assert pairs.cosines()["it"] == expected


@pytest.mark.parametrize("asked", [False, True])
def test_a_threshold_moves_from_the_encoder_before_to_the_one_after(asked):
    texts = {"before": draw(90, 6), "after": draw(90, 5, seed=1), "same": draw(90, 6)}
    queries = {"before": draw(60, 6, seed=2), "after": draw(60, 5, seed=3), "same": draw(60, 6, seed=2)}
    queries = queries if asked else None
    related = draw(60, 90, seed=4) > 1 if asked else None
    pairs = UnrelatedPairs(words(90), texts, queries, related)
    both = (queries["before"], queries["after"]) if queries else None
    expected = moved_threshold(0.2, texts["before"], texts["after"], queries=both, related=related)
    moved = pairs.moved_thresholds(0.2)
    assert (list(moved), moved["after"], moved["same"].after) == (
        ["after", "same"],
        expected,
        pytest.approx(0.2, abs=0.05),
    )
    if queries:
        cosines = {name: unrelated_cosines(texts[name], queries=queries[name], related=related) for name in texts}
        assert pairs.cosines() == cosines
        assert UnrelatedPairs(words(90), texts, queries).moved_thresholds(0.2)["after"] != expected


def test_texts_with_a_prompt(still_encoder):
    pairs = encode_pairs([("a", still_encoder), ("b", still_encoder)], words(60), prompt="the ")
    torch.testing.assert_close(
        pairs.embeddings["a"], still_encoder.encode(words(60), prompt="the ", convert_to_tensor=True)
    )
    assert pairs.queries is pairs.related is None
    assert pairs.cosines()["a"] == pairs.cosines()["b"] == unrelated_cosines(pairs.embeddings["a"])
    with pytest.raises(ValueError, match="different names, got 'a' again"):
        encode_pairs([("a", still_encoder)] * 2, words(60))


@pytest.mark.parametrize(("zeros", "value", "message"), [(9, 0.0, None), (11, 0.0, "got 49"), (1, math.nan, "finite")])
def test_what_an_encoder_has_no_embedding_of_is_left_out_for_all(still_encoder, monkeypatch, zeros, value, message):
    rows = torch.cat([torch.full((zeros, 6), value), draw(60 - zeros, 6)])
    encoded = iter([draw(60, 6), rows])
    monkeypatch.setattr(still_encoder, "encode", lambda *_, **__: next(encoded))
    models = [("a", still_encoder), ("b", still_encoder)]
    if message is None:
        pairs = encode_pairs(models, words(60))
        assert pairs.texts == words(60)[9:]
        assert [len(found) for found in pairs.embeddings.values()] == [51, 51]
    else:
        with pytest.raises(ValueError, match=message):
            encode_pairs(models, words(60))


def test_queries_that_an_encoder_has_no_embedding_of_are_left_out_for_all(routed, monkeypatch):
    """And the others keep the documents that they stand in."""
    documents, queries = words(60), [*words(55), "no", "not"]
    rows = {"query": draw(57, 6), "document": draw(60, 6, seed=1)}
    rows["query"][[3, 56]], rows["document"][7] = 0, 0
    monkeypatch.setattr(unrelated_pairs, "encode_as", lambda model, role, *_, **__: rows[role])
    pairs = encode_pairs([("a", routed)], documents, queries)
    kept, asked = [text for text in documents if text != documents[7]], [*queries[:3], *queries[4:56]]
    assert pairs.texts == kept
    torch.testing.assert_close(pairs.queries["a"], torch.cat([rows["query"][:3], rows["query"][4:56]]))
    assert pairs.related.tolist() == [[query in document for document in kept] for query in asked]
    rows["query"][:8] = 0
    with pytest.raises(ValueError, match=r"^texts must hold at least 50 different sentences to compare, got 48\.$"):
        encode_pairs([("a", routed)], documents, queries)


def test_the_label_free_score_is_that_of_each_other_encoder_beside_the_first(monkeypatch):
    texts = words(120)
    embeddings = {name: draw(120, 6, seed=seed) for seed, name in enumerate(("a", "b", "c"))}
    comparison = LabelFreeComparison(texts, embeddings["a"])
    pairs = UnrelatedPairs(texts, embeddings)
    assert pairs.label_free_scores() == {name: comparison.compare(embeddings[name]) for name in ("b", "c")}
    with pytest.raises(ValueError, match="compared with each other, got queries"):
        UnrelatedPairs(texts, embeddings, embeddings).label_free_scores()
    alone = [f"{chr(0x4E00 + 5 * i)}{chr(0x4E01 + 5 * i)}{chr(0x4E02 + 5 * i)}" for i in range(120)]
    with pytest.raises(ValueError, match=r"^20% of the texts must have a neighbour .*, got 0%\.$"):
        UnrelatedPairs(alone, embeddings).label_free_scores()
    limit, share = "st_extras.evaluation.unrelated_pairs.LEAST_CONFIRMED", comparison.confirmed_share
    monkeypatch.setattr(limit, share)
    assert pairs.label_free_scores()
    monkeypatch.setattr(limit, share + 0.01)
    with pytest.raises(ValueError, match=f"got {share:.0%}"):
        pairs.label_free_scores()


def test_a_comparison_of_texts_is_that_of_their_sample(still_encoder, routed, make_encoder, monkeypatch, capfd):
    """Of any collection that can be read once, with the encoder's prompt or routes, in any place."""
    monkeypatch.setattr(unrelated_pairs, "_SAMPLED", 60)
    texts = words(90)
    sample, _ = sampled_texts(texts, 60, 42, "text")
    models = {"a": still_encoder, "b": make_encoder(dropout=0.0, seed=1)}
    found = compare_texts(iter(models.items()), iter(texts), prompt="the ", threshold=0.5, show_progress_bar=False)
    pairs = encode_pairs(models.items(), sample, prompt="the ")
    assert (found.texts, found.read, found.queries) == (60, 90, None)
    assert {name: marks[100].cosine for name, marks in found.cosines.items()} == {
        name: pytest.approx(marks[100][0], abs=1e-5) for name, marks in pairs.cosines().items()
    }
    assert {name: (one.before, one.pairs) for name, one in found.thresholds.items()} == {"b": (0.5, 60 * 59 / 2)}
    assert found.not_compared == "the number of texts must be a whole number between 100 and 2000, got 60."
    assert "Batches" not in capfd.readouterr().err
    alone = compare_texts([("a", still_encoder)], texts)
    assert (alone.label_free, alone.not_compared) == ({}, None)
    assert "Batches" in capfd.readouterr().err
    models["b"] = routed
    found = compare_texts(models.items(), texts, show_progress_bar=False)
    assert (found.queries, found.label_free, found.thresholds) == (60, {}, {})
    assert found.not_compared == "the score is for texts that are compared with each other, got queries and documents."
    for wrong, message in (
        ({"threshold": 1.5}, "threshold must be"),
        ({"prompt": "the "}, "prompt must be left out for an encoder with routes"),
    ):
        with count_rows(still_encoder) as passes, pytest.raises(ValueError, match=f"^{message}"):
            compare_texts(models.items(), texts, show_progress_bar=False, **wrong)
        assert not passes, "before anything is encoded"
    with pytest.raises(ValueError, match=r"^threshold needs a second encoder"):
        compare_texts([("a", still_encoder)], texts, threshold=0.5)


def test_a_comparison_has_thresholds_scores_and_cosines_of_each_other_encoder(still_encoder, make_encoder):
    texts = topical(150).texts
    models = {"a": still_encoder} | {name: make_encoder(dropout=0.0, seed=seed) for seed, name in enumerate("bc", 1)}
    found = compare_texts(models.items(), iter([*texts, *texts[:3]]), threshold=0.6, show_progress_bar=False)
    pairs = encode_pairs(models.items(), sampled_texts(texts, 2000, 42)[0])
    assert (found.texts, found.read, found.not_compared) == (150, 153, None)
    written = json.loads(json.dumps(found.as_json()))
    assert [*written["cosines"]] == ["a", "b", "c"]
    for name, score in pairs.label_free_scores().items():
        assert dataclasses.astuple(found.label_free[name]) == pytest.approx(dataclasses.astuple(score), abs=1e-4)
        moved = pairs.moved_thresholds(0.6)[name]
        assert found.thresholds[name].after == pytest.approx(moved.after, abs=1e-3)
        assert written["thresholds"][name]["pairs"] == moved.pairs
        mark = written["cosines"][name]["1000"]
        assert (mark["cosine"], mark["low"], mark["high"]) == pytest.approx(pairs.cosines()[name][1000], abs=1e-4)
