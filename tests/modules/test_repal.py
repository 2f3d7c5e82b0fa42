import copy
import gzip
import json
import logging
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, WeightedLayerPooling

from st_extras.modules import PartialMaskTransformer, RepALPostProcessor, WhiteningPostProcessor, load
from st_extras.modules.tuning import search_lambdas, spearman_surface
from st_extras.text.keywords import TfidfKeywords

pytest.importorskip("jieba")

ONE, TWO = 0.6, 1.3
KEYWORDS = ["cat", "mat", "dog", "man", "reading", "carrots", "sat", "ran", "北京"]
TEXTS = [
    "a cat sat on the mat",
    "the woman and the man",  # a keyword inside another word
    "reading readings and reading",  # several pieces, repeated
    "the old man read a red book " * 5,  # longer than 16 tokens
    "on the in a",  # no keyword
    "cat mat dog",  # nothing else
    "",
    "   ",
    "我爱北京 a cat",
    "a cat 🐈 sat 👩‍🍳!",
    "a cat\u0301 ran, ca\u0301t",
    "Cat! (dog)... man's carrots-man",
]


def words(_: str) -> list[str]:
    return KEYWORDS


def reference_mask(text: str) -> str:
    """Written again, character by character: a keyword with no letter or digit beside it becomes the mask."""
    out, i = "", 0
    while i < len(text):
        for word in sorted(KEYWORDS, key=len, reverse=True):
            end = i + len(word)
            if text[i:end].lower() != word:
                continue
            while end < len(text) and text[end] == "\u0301":
                end += 1
            if word.isascii() and ((i and text[i - 1].isalnum()) or (end < len(text) and text[end].isalnum())):
                continue
            out, i = out + "[MASK]", end
            break
        else:
            out, i = out + text[i], i + 1
    return out


def watch(model):
    """The shapes (rows, tokens) of every pass of the encoder, as they come. Sentence Transformers calls
    ``forward`` of the whole encoder, which fires no hook: the embedding layer's does.
    """
    seen = []
    embedding = model.transformers_model.embeddings
    embedding.register_forward_hook(lambda _module, _args, out: seen.append(tuple(out.shape[:2])))
    return seen


def attach(model, **options):
    options = {"lambda_1": ONE, "lambda_2": TWO, "keywords": words, "corpus": TEXTS, **options}
    return RepALPostProcessor.attach(model, **options)


def reference(model, texts, one=ONE, two=TWO, corpus=TEXTS, mask=reference_mask, **options):
    """Equation 3, one sentence at a time, in float64."""
    mean = np.mean([model.encode(text, **options).astype(np.float64) for text in corpus], axis=0)
    rows = []
    for text in texts:
        v = model.encode(text, **options).astype(np.float64)
        v_redundant = model.encode(mask(text), **options).astype(np.float64)
        rows.append([v[d] - one * v_redundant[d] - two * mean[d] for d in range(len(v))])
    return np.array(rows)


# --- equation 3 ---


@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "max")]
)
def test_equation_3_against_explicit_encodes(make_encoder, pooling):
    model = make_encoder(pooling=pooling)
    attached = attach(model)
    expected = reference(model, TEXTS)
    assert reference_mask(TEXTS[1]) == "the woman and the [MASK]"
    assert np.abs(attached.encode(TEXTS, batch_size=5) - expected).max() < 1e-5
    for text, row in zip(TEXTS, expected, strict=True):
        assert np.abs(attached.encode(text) - row).max() < 1e-5
    plain = model.encode(TEXTS)
    assert np.abs(plain - expected)[0].max() > 0.05, "something was subtracted"


def test_the_paper_s_keywords(still_encoder, sentences):
    import jieba.analyse

    def masked(text):
        kept = ["[MASK]" if word in jieba.analyse.extract_tags(text) else word for word in text.split()]
        return " ".join(kept)

    assert masked(sentences[0]) == "a [MASK] [MASK] on the [MASK]"
    attached = attach(still_encoder, keywords="jieba", corpus=sentences)
    expected = reference(still_encoder, sentences, corpus=sentences, mask=masked)
    assert np.abs(attached.encode(sentences) - expected).max() < 1e-5


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_a_prompt_is_never_masked(make_encoder, include_prompt, redundancy):
    model = make_encoder()
    model.set_pooling_include_prompt(include_prompt)
    model.prompts = {"query": "the cat: "}
    attached = attach(model, lambda_2=0.0, corpus=None, redundancy=redundancy)
    assert attached.prompts["query"] == "the cat: "
    for options in ({"prompt": "the cat: "}, {"prompt_name": "query"}):
        expected = reference(model, TEXTS, two=0.0, **options)
        refined = attached.encode(TEXTS, batch_size=4, **options)
        if redundancy == "encoder":
            assert np.abs(refined - expected).max() < 1e-5
        else:
            features = attached.preprocess(TEXTS[:1], prompt="the cat: ")
            tokens = attached.tokenizer.convert_ids_to_tokens(features["input_ids"][0])
            hidden = [t for t, k in zip(tokens, features["keyword_tokens"][0], strict=True) if k]
            assert hidden == ["cat", "sat", "mat"]
            assert tokens.count("cat") == 2
    assert np.abs(attached.encode_query(TEXTS) - attached.encode(TEXTS, prompt_name="query")).max() < 1e-6


def test_zero_weights_are_the_plain_model_exactly(still_encoder):
    for redundancy in ("encoder", "pooled"):
        attached = attach(still_encoder, lambda_1=0.0, lambda_2=0.0, redundancy=redundancy)
        assert np.array_equal(attached.encode(TEXTS), still_encoder.encode(TEXTS))
    attached[2].lambda_2 = TWO
    difference = attached.encode(TEXTS) - (
        still_encoder.encode(TEXTS) - np.float32(TWO) * attached[2].corpus_mean.numpy()
    )
    assert np.abs(difference).max() < 1e-6


def test_one_pass_over_twice_the_rows_and_none_without_a_sentence_term(still_encoder):
    attached, seen = attach(still_encoder), watch(still_encoder)
    attached.encode(TEXTS[:3], batch_size=8)
    assert [shape[0] for shape in seen] == [6]
    seen.clear()
    attached[2].lambda_1 = 0.0
    attached.encode(TEXTS[:3], batch_size=8)
    assert [shape[0] for shape in seen] == [3]
    seen.clear()
    attached[2].lambda_1 = 0.5
    attached[0].redundancy = "pooled"
    attached.encode(TEXTS[:3], batch_size=8)
    assert [shape[0] for shape in seen] == [3]


def test_normalize_stays_last_and_dense_stays_before(still_encoder):
    dense = Dense(16, 6)
    model = SentenceTransformer(modules=[*still_encoder, dense, Normalize()], device="cpu")
    attached = attach(model)
    assert [type(m).__name__ for m in attached] == [
        "PartialMaskTransformer",
        "Pooling",
        "Dense",
        "RepALPostProcessor",
        "Normalize",
    ]
    raw = reference(SentenceTransformer(modules=[*still_encoder, dense], device="cpu"), TEXTS)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.abs(attached.encode(TEXTS) - expected).max() < 1e-5
    assert attached.get_embedding_dimension() == 6


def test_all_layers_are_split_with_the_rest(make_encoder):
    model = make_encoder()
    model.transformers_model.config.output_hidden_states = True
    layers = WeightedLayerPooling(16, num_hidden_layers=2, layer_start=0)
    model = SentenceTransformer(modules=[model[0], layers, model[1]], device="cpu")
    attached = attach(model)
    assert np.abs(attached.encode(TEXTS) - reference(model, TEXTS)).max() < 1e-5
    item = attached.encode(TEXTS[0], output_value=None)
    assert all(len(layer) == 1 for layer in item["all_layer_embeddings"])
    assert np.isfinite(attach(model, redundancy="pooled").encode(TEXTS)).all()


# --- pooled redundancy ---


def reference_pooled(model, text, pooling):
    """Hidden states of the text alone; those of the keywords' tokens are left out of the second pooling."""
    features = model.preprocess([text])
    tokens = model[0](dict(features))["token_embeddings"][0].detach().double().numpy()
    offsets = model.tokenizer(text, return_offsets_mapping=True, truncation=True)["offset_mapping"]
    masked, inside, position = reference_mask(text), set(), 0
    for piece in masked.split("[MASK]"):  # walk through both texts at once
        start = text.index(piece, position) if piece else position
        inside |= set(range(position, start))
        position = start + len(piece)
    inside |= set(range(position, len(text)))
    kept = [i for i, (a, b) in enumerate(offsets) if a == b or not inside & set(range(a, b))]
    rest = tokens[kept]
    if pooling == "mean" or pooling == "cls":
        redundant = rest.mean(axis=0)
    elif pooling == "max":
        redundant = rest.max(axis=0)
    return redundant


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooled_redundancy_leaves_the_keywords_out(make_encoder, pooling):
    model = make_encoder(pooling=pooling)
    texts = TEXTS[:3] + TEXTS[4:8]
    attached = attach(model, redundancy="pooled", lambda_2=0.0, corpus=None)
    expected = np.array([model.encode(t) - ONE * reference_pooled(model, t, pooling) for t in texts])
    assert np.abs(attached.encode(texts, batch_size=3) - expected).max() < 1e-5
    embeddings, redundant = attached[2].parts(texts)
    assert np.abs(embeddings.numpy() - model.encode(texts)).max() < 1e-5
    assert (redundant[0] - embeddings[0]).abs().max() > 0.01
    assert np.isfinite(attached.encode(TEXTS)).all()


def test_pooled_redundancy_without_anything_left_falls_back_to_all_tokens(still_encoder):
    attached = attach(still_encoder, redundancy="pooled", lambda_2=0.0, corpus=None)
    features = attached.preprocess(["cat mat"])
    features["keyword_tokens"] = torch.ones_like(features["keyword_tokens"])
    out = attached.eval()(features)["sentence_embedding"].detach().numpy()
    assert np.abs(out - (1 - ONE) * still_encoder.encode(["cat mat"])).max() < 1e-5


# --- what encode gives ---


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_other_output_values_are_those_of_the_plain_model(still_encoder, redundancy):
    attached = attach(still_encoder, redundancy=redundancy)
    mine = attached.encode(TEXTS, output_value="token_embeddings", batch_size=5)
    theirs = still_encoder.encode(TEXTS, output_value="token_embeddings", batch_size=5)
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() < 1e-5
    everything = attached.encode(TEXTS, output_value=None, batch_size=5)
    plain = still_encoder.encode(TEXTS, output_value=None, batch_size=5)
    refined = attached.encode(TEXTS)
    for item, other, row in zip(everything, plain, refined, strict=True):
        assert item.keys() == other.keys()
        assert np.abs(item["sentence_embedding"].numpy() - row).max() < 1e-5
        length = int(other["attention_mask"].sum())
        assert int(item["attention_mask"].sum()) == length
        assert torch.equal(item["input_ids"][:length], other["input_ids"][:length])


def test_multi_process_evaluators_copies_and_pickle(still_encoder):
    attached = attach(still_encoder, keywords="jieba")
    expected = attached.encode(TEXTS)
    for twin in (copy.deepcopy(attached), pickle.loads(pickle.dumps(attached))):
        assert np.array_equal(twin.encode(TEXTS), expected)
        assert twin[2].fit(TEXTS[:3]).corpus_size == 3
    assert attached[2].corpus_size == len(TEXTS), "the twins have their own state"
    evaluator = EmbeddingSimilarityEvaluator(TEXTS[:4], TEXTS[1:5], [0.1, 0.5, 0.2, 0.9], show_progress_bar=False)
    assert np.isfinite(evaluator(attached)["spearman_cosine"])
    many = attached.encode(TEXTS, device=["cpu"], chunk_size=6)
    assert np.abs(many - expected).max() < 1e-6


def test_the_given_model_stays_plain(still_encoder):
    before = still_encoder.encode(TEXTS)
    attached = attach(still_encoder)
    assert type(still_encoder[0]) is Transformer
    assert still_encoder[0].unpad_inputs is None
    assert len(still_encoder) == 2
    assert np.array_equal(still_encoder.encode(TEXTS), before)
    assert attached[0].model is still_encoder[0].model, "weights are shared"
    plain = RepALPostProcessor.detach(attached)
    assert [type(m) for m in plain] == [Transformer, Pooling]
    assert np.array_equal(plain.encode(TEXTS), before)


# --- fit, tune, export ---


def test_fit_takes_the_mean_of_any_stream(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 5)
    attached = attach(still_encoder, corpus=None)
    assert attached[2].corpus_size == 0
    attached[2].fit(text for text in TEXTS)
    assert attached[2].corpus_size == len(TEXTS)
    mean = still_encoder.encode(TEXTS).astype(np.float64).mean(axis=0)
    assert np.abs(attached[2].corpus_mean.numpy() - mean).max() < 1e-6


def test_fit_reads_no_further_than_it_encodes(still_encoder, monkeypatch):
    monkeypatch.setattr("st_extras.modules.pipeline._CHUNK", 4)
    attached, ahead, read, seen = attach(still_encoder, corpus=None), [], 0, watch(still_encoder)

    def stream():
        nonlocal read
        for i in range(40):
            read += 1
            ahead.append(read - sum(rows for rows, _ in seen))
            yield TEXTS[i % 3]

    attached[2].fit(stream(), batch_size=4)
    assert read == sum(rows for rows, _ in seen) == 40
    assert max(ahead) == 4, "no more than a chunk is held"


def test_a_value_that_is_not_finite_is_named(still_encoder):
    attached = attach(still_encoder, corpus=None)
    dog = still_encoder.tokenizer.convert_tokens_to_ids("dog")
    with torch.no_grad():
        still_encoder.transformers_model.embeddings.word_embeddings.weight[dog] = float("nan")
    with pytest.raises(ValueError, match=r"sentence 1 is not finite.*the dog ran"):
        attached[2].fit(["a cat", "the dog ran"])
    assert attached[2].corpus_size == 0
    assert attached[2].corpus_mean.abs().sum() == 0


def pairs_and_scores():
    texts = [*TEXTS, "a dog ran", "the red book", "he read", "soup with a cat"]
    pairs = [(a, b) for i, a in enumerate(texts) for b in texts[i + 1 :]][:60]
    generator = np.random.default_rng(5)
    return pairs, generator.integers(0, 6, len(pairs)).tolist()


def test_the_surface_is_spearman_of_the_refined_embeddings():
    generator = np.random.default_rng(0)
    a, a_star, b, b_star = generator.normal(size=(4, 40, 7))
    mean, scores = generator.normal(size=7), generator.integers(0, 4, 40)
    surface = spearman_surface((a, a_star), (b, b_star), mean, scores, [0.0, 0.7, 1.0], [0.0, 2.5])
    for i, one in enumerate([0.0, 0.7, 1.0]):
        for j, two in enumerate([0.0, 2.5]):
            cosines = []
            for n in range(40):
                x = [a[n, d] - one * a_star[n, d] - two * mean[d] for d in range(7)]
                y = [b[n, d] - one * b_star[n, d] - two * mean[d] for d in range(7)]
                cosines.append(np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y)))
            assert surface[i, j] == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-9)
    zero = np.zeros((40, 7))
    assert spearman_surface((zero, a_star), (zero, b_star), mean, scores, [0.0], [0.0]) == 0


def test_tune_encodes_once_and_never_loses_to_plain(still_encoder):
    pairs, scores = pairs_and_scores()
    attached, seen = attach(still_encoder), watch(still_encoder)
    result = attached[2].tune(pairs, scores)
    assert sum(rows for rows, _ in seen) == 4 * len(pairs)
    assert result.settings >= 2000
    assert (attached[2].lambda_1, attached[2].lambda_2) == (result.lambda_1, result.lambda_2)
    first, second = zip(*pairs, strict=True)

    def spearman(model):
        evaluator = EmbeddingSimilarityEvaluator(first, second, scores, show_progress_bar=False)
        return evaluator(model)["spearman_cosine"]

    assert result.spearman > result.plain_spearman
    assert spearman(attached) == pytest.approx(result.spearman, abs=2e-3)
    assert spearman(still_encoder) == pytest.approx(result.plain_spearman, abs=2e-3)
    only = attached[2].tune(pairs, scores, lambda_1_grid=[0.0], lambda_2_grid=[9.0])
    assert only.settings == 2
    assert only.spearman >= only.plain_spearman
    assert not only.at_edge or only.lambda_2 == 9.0


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([float("nan"), 1.0, 2.0], "scores must be finite"),
        ([None, 1.0, 2.0], "scores must be finite"),
        (torch.ones(3), "not all equal; got 3 pairs, 3 scores, 1 dis"),
    ],
)
def test_scores_that_cannot_be_tuned_on_change_nothing(still_encoder, scores, message):
    attached = RepALPostProcessor.attach(still_encoder, lambda_1=0.5, lambda_2=0.25, corpus=TEXTS)
    with pytest.raises(ValueError, match=message):
        attached[2].tune([("a cat", "the dog"), ("red", "book"), ("a", "b")], scores)
    assert (attached[2].lambda_1, attached[2].lambda_2) == (0.5, 0.25)


def test_tune_of_an_unfitted_module_takes_the_pairs_mean(still_encoder, caplog):
    pairs, scores = pairs_and_scores()
    attached = attach(still_encoder, corpus=None)
    with caplog.at_level(logging.INFO):
        attached[2].tune(pairs, scores)
    assert "not fitted" in caplog.text
    mean = still_encoder.encode([t for pair in pairs for t in pair]).mean(axis=0)
    assert np.abs(attached[2].corpus_mean.numpy() - mean).max() < 1e-6


def test_the_edge_of_the_grid_is_said(caplog):
    generator = np.random.default_rng(2)
    signal = generator.normal(size=(80, 6))
    noisy = signal + 0.3 * generator.normal(size=(80, 6))
    mean = 20 * np.ones(6)
    scores = (signal * noisy).sum(axis=1) / (np.linalg.norm(signal, axis=1) * np.linalg.norm(noisy, axis=1))
    shifted = (signal + mean, np.zeros_like(signal)), (noisy + mean, np.zeros_like(signal))
    assert search_lambdas(*shifted, mean, scores, [0.0], [0.0, 0.95, 0.99]).at_edge
    inside = search_lambdas(*shifted, mean, scores, [0.0], [0.0, 0.5, 1.0, 1.5])
    assert inside.lambda_2 == 1.0
    assert inside.spearman > 0.999
    assert not inside.at_edge
    useless = search_lambdas(*shifted, np.zeros(6), scores)
    assert (useless.lambda_1, useless.lambda_2) == (0.0, 0.0)


def test_groups_are_weighed_alike_and_each_on_its_own():
    generator = np.random.default_rng(3)
    a, a_star, b, b_star = generator.normal(size=(4, 60, 5))
    mean, scores = generator.normal(size=5), generator.integers(0, 5, 60)
    groups = ["news" if i % 3 else "captions" for i in range(60)]
    found = search_lambdas((a, a_star), (b, b_star), mean, scores, [0.0, 0.5, 1.0], [0.0, 0.8, 3.0], groups)
    best = {}
    for one in (0.0, 0.5, 1.0):
        for two in (0.0, 0.8, 3.0):
            within = []
            for group in ("news", "captions"):
                rows = [i for i in range(60) if groups[i] == group]
                x, y = ((p[rows] - one * q[rows] - two * mean) for p, q in ((a, a_star), (b, b_star)))
                cosines = (x * y).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
                within.append(spearmanr(cosines, scores[rows]).statistic)
            best[one, two] = sum(within) / 2
    assert found.spearman == pytest.approx(max(best.values()))
    assert (found.lambda_1, found.lambda_2) == max(best, key=best.get)
    assert found.plain_spearman == pytest.approx(best[0.0, 0.0])
    together = search_lambdas((a, a_star), (b, b_star), mean, scores, [0.0, 0.5, 1.0], [0.0, 0.8, 3.0])
    assert found.spearman != pytest.approx(together.spearman)
    same = search_lambdas((a, a_star), (b, b_star), mean, scores, [0.0, 0.5, 1.0], [0.0, 0.8, 3.0], ["all"] * 60)
    assert same == together


def test_tune_takes_groups(still_encoder):
    pairs, scores = pairs_and_scores()
    groups = [i % 2 for i in range(len(pairs))]
    attached = attach(still_encoder)
    within = attached[2].tune(pairs, scores, groups=groups)
    assert within.spearman != attached[2].tune(pairs, scores).spearman
    for bad, reason in ((groups[1:], "one for each pair"), ([0] * (len(pairs) - 1) + [1], r"\['1'\] do not")):
        with pytest.raises(ValueError, match=reason):
            attached[2].tune(pairs, scores, groups=bad)


def test_more_than_two_thousand_settings_are_searched():
    generator = np.random.default_rng(1)
    a, a_star, b, b_star = generator.normal(size=(4, 1500, 64))
    result = search_lambdas((a, a_star), (b, b_star), a.mean(axis=0), generator.normal(size=1500))
    assert result.settings >= 2000
    assert result.spearman >= result.plain_spearman


def test_the_corpus_term_as_a_stock_dense(still_encoder, tmp_path):
    attached = attach(still_encoder, lambda_1=0.0)
    stock = SentenceTransformer(modules=[*RepALPostProcessor.detach(attached), attached[2].to_dense()], device="cpu")
    assert np.abs(stock.encode(TEXTS) - attached.encode(TEXTS)).max() < 1e-6
    stock.save(str(tmp_path / "stock"))
    again = SentenceTransformer(str(tmp_path / "stock"), device="cpu")  # no flag
    assert np.array_equal(again.encode(TEXTS), stock.encode(TEXTS))
    attached[2].lambda_1 = 0.5
    with pytest.raises(ValueError, match=r"lambda_1=0.5"):
        attached[2].to_dense()
    assert attached[2].to_dense(lambda_2=0.0).linear.bias.abs().max() == 0


# --- save and load ---

RELOAD = """
import sys, numpy, json
from sentence_transformers import SentenceTransformer
from st_extras.modules import load
for path in sys.argv[2:]:
    flagged = SentenceTransformer(path, trust_remote_code=True, device="cpu")
    for i, model in enumerate([flagged, load(path, device="cpu")]):
        numpy.save(f"{path}/{i}.npy", model.encode(json.loads(sys.argv[1])))
"""


def test_saved_and_reloaded_in_a_new_process_to_the_bit(still_encoder, tmp_path):
    attached = {
        tmp_path / "exact": attach(still_encoder, keywords="tfidf"),
        tmp_path / "pooled": attach(still_encoder, redundancy="pooled", keywords="jieba"),
        tmp_path / "stacked": attach(WhiteningPostProcessor.attach(still_encoder, corpus=TEXTS), keywords="rake"),
    }
    for path, model in attached.items():
        model.save(str(path))
    command = [sys.executable, "-c", RELOAD, json.dumps(TEXTS), *map(str, attached)]
    subprocess.run(command, check=True, capture_output=True)
    for path, model in attached.items():
        expected = model.encode(TEXTS)
        for i in range(2):
            assert np.array_equal(np.load(path / f"{i}.npy"), expected)


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_a_loaded_model_goes_on_working(still_encoder, tmp_path, redundancy):
    attach(still_encoder, keywords="jieba", redundancy=redundancy).save(str(tmp_path / "once"))
    again = load(str(tmp_path / "once"), device="cpu")
    assert isinstance(again[0], PartialMaskTransformer)
    assert again[0].redundancy == redundancy
    assert again[2].corpus_size == len(TEXTS)
    again[2].fit(TEXTS[:2])
    again[2].tune(*pairs_and_scores())
    again.save(str(tmp_path / "twice"))
    for name in ("once", "twice"):
        card = (tmp_path / name / "README.md").read_text(encoding="utf8")
        assert 'SentenceTransformer("sentence_transformers_model_id", trust_remote_code=True)' in card
        assert 'st_extras.load("sentence_transformers_model_id")' in card


def test_push_to_hub_uploads_a_model_that_loads(still_encoder, tmp_path, monkeypatch):
    class Hub:
        def __init__(self, **_):
            pass

        def create_repo(self, repo_id, **_):
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, *, folder_path, **_):
            shutil.copytree(folder_path, tmp_path / "hub")
            return SimpleNamespace(commit_url="done")

    monkeypatch.setattr("sentence_transformers.base.model.HfApi", Hub)
    attached = attach(still_encoder, keywords="jieba")
    assert attached.push_to_hub("user/refined", replace_model_card=True) == "done"
    assert 'st_extras.load("user/refined")' in (tmp_path / "hub" / "README.md").read_text(encoding="utf8")
    assert np.array_equal(load(str(tmp_path / "hub"), device="cpu").encode(TEXTS), attached.encode(TEXTS))


def test_without_the_flag_it_is_refused_with_the_way_out(still_encoder, tmp_path):
    attach(still_encoder, keywords="jieba").save(str(tmp_path / "saved"))
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "saved"), device="cpu")


def test_load_lets_in_this_package_alone(still_encoder, tmp_path):
    attach(still_encoder, keywords="jieba").save(str(tmp_path / "saved"))
    listing = tmp_path / "saved" / "modules.json"
    modules = json.loads(listing.read_text())
    modules[1]["type"] = "evil.Pooling"
    listing.write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=r"evil\.Pooling"):
        load(str(tmp_path / "saved"))


def test_a_callable_cannot_be_saved(still_encoder, tmp_path):
    with pytest.raises(ValueError, match=r"callable, which cannot be saved.*'jieba', 'tfidf', 'rake'"):
        attach(still_encoder).save(str(tmp_path / "saved"))
    attach(still_encoder, keywords=TfidfKeywords.fit(TEXTS)).save(str(tmp_path / "fine"))


# --- training ---


def test_training_is_refused(still_encoder, tmp_path):
    attached = attach(still_encoder, keywords="jieba")
    arguments = SentenceTransformerTrainingArguments(str(tmp_path), max_steps=1, report_to=[], use_cpu=True)
    data = Dataset.from_dict({"anchor": TEXTS[:4], "positive": TEXTS[:4]})
    trainer = SentenceTransformerTrainer(
        attached, arguments, train_dataset=data, loss=MultipleNegativesRankingLoss(attached)
    )
    with pytest.raises(ValueError, match=r"cannot be trained.*detach"):
        trainer.train()
    with torch.no_grad():
        assert attached(attached.preprocess(TEXTS))["sentence_embedding"].shape == (len(TEXTS), 16)
    assert attached.eval()(attached.preprocess(TEXTS))["sentence_embedding"].requires_grad
    attached[2].lambda_1 = 0.0  # no masked copies: the last module refuses
    with pytest.raises(ValueError, match="cannot be trained"):
        attached.train()(attached.preprocess(TEXTS))


# --- errors ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lambda_1": float("nan")}, "lambda_1 must be a finite number >= 0, got nan"),
        ({"lambda_2": float("inf")}, "lambda_2 must be a finite number >= 0, got inf"),
        ({"lambda_1": -0.1}, "lambda_1 .* got -0.1"),
        ({"lambda_2": "1"}, "lambda_2 .* got '1'"),
        ({"redundancy": "both"}, 'redundancy must be "encoder" or "pooled"; got \'both\''),
        ({"keywords": "yake"}, "keywords must be 'jieba'.*got 'yake'"),
        ({"keywords": "tfidf", "corpus": None}, "corpus"),
        ({"on_missing_mask": "skip"}, "on_missing_mask .* got 'skip'"),
        ({"corpus": "one text"}, "sentences must be a list of texts, not one text; got 'one text'"),
        ({"corpus": []}, "at least one text"),
        ({"corpus": ["a", 3]}, "number 1 is 3"),
    ],
)
def test_bad_settings_are_named(still_encoder, options, message):
    with pytest.raises(ValueError, match=message):
        attach(still_encoder, **options)


def test_models_that_repal_cannot_work_on(still_encoder):
    attached = attach(still_encoder)
    with pytest.raises(ValueError, match="already"):
        attach(attached)
    static = SentenceTransformer(modules=[StaticEmbedding(still_encoder.tokenizer.backend_tokenizer, embedding_dim=4)])
    with pytest.raises(ValueError, match="Transformer module; got StaticEmbedding"):
        attach(static)
    with pytest.raises(ValueError, match="whiten"):
        WhiteningPostProcessor.attach(attached)
    still_encoder[1] = Pooling(16, "cls", include_prompt=False)
    with pytest.raises(ValueError, match="CLS pooling"):
        attach(still_encoder, redundancy="pooled")


def test_an_unfitted_module_and_a_wrong_dimension(still_encoder):
    attached = attach(still_encoder, corpus=None)
    with pytest.raises(ValueError, match=r"lambda_2=1.3 needs the corpus mean.*fit\(sentences\)"):
        attached.encode(TEXTS)
    attached[2].lambda_2 = 0.0
    attached.encode(TEXTS)
    with pytest.raises(ValueError, match="every input must be a str"):
        attached.encode([("a", "b")])
    attached[2] = RepALPostProcessor(8, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"embedding_dimension=8.*16 dimensions"):
        attached.encode(TEXTS)
    with pytest.raises(ValueError, match="not part of a model"):
        RepALPostProcessor(8).fit(TEXTS)
    alone = SentenceTransformer(modules=[*still_encoder, RepALPostProcessor(16, 0.5)], device="cpu")
    with pytest.raises(ValueError, match=r"lambda_1=0.5 needs masked copies.*attach"):
        alone.encode(TEXTS)
    with pytest.raises(ValueError, match="no PartialMaskTransformer"):
        alone[2].parts(TEXTS)


def test_bad_pairs(still_encoder):
    processor = attach(still_encoder)[2]
    for pairs, scores in (([], []), ([("a", "b")] * 2, [1.0]), ([("a", "b")] * 2, [1.0, 1.0])):
        with pytest.raises(ValueError, match=r"at least two pairs.*got"):
            processor.tune(pairs, scores)
    with pytest.raises(ValueError, match="lambda_2_grid"):
        processor.tune([("a", "b"), ("cat", "mat")], [1.0, 2.0], lambda_2_grid=[float("nan")])


def test_a_tokenizer_without_a_mask_token(still_encoder, tmp_path):
    still_encoder.tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r"no mask token.*on_missing_mask=\"delete\""):
        attach(still_encoder)
    attached = attach(still_encoder, on_missing_mask="delete")
    assert attached[0].partial_mask("a cat sat on the mat") == "a on the"

    def deleted(text):
        return attached[0].partial_mask(text)

    assert np.abs(attached.encode(TEXTS) - reference(still_encoder, TEXTS, mask=deleted)).max() < 1e-5
    attach(still_encoder, on_missing_mask="delete", keywords="jieba").save(str(tmp_path / "saved"))
    assert load(str(tmp_path / "saved"))[0].on_missing_mask == "delete"
    assert np.isfinite(attach(still_encoder, redundancy="pooled").encode(TEXTS)).all()


def test_the_docstring_runs(still_encoder, sentences):
    import doctest

    from st_extras.modules import repal, whitening

    for module in (repal, whitening):
        outcome = doctest.testmod(module, extraglobs={"model": still_encoder, "sentences": sentences})
        assert outcome.attempted >= 3
        assert outcome.failed == 0


def test_with_real_data(data_folder: Path, still_encoder):
    with gzip.open(data_folder / "zh_stsb_dev.tsv.gz", "rt", encoding="utf8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:201]
    pairs = [(first, second) for _, _, first, second in rows]
    attached = RepALPostProcessor.attach(still_encoder, lambda_1=0, lambda_2=0)
    result = attached[2].tune(pairs, [float(row[1]) for row in rows])
    assert result.spearman >= result.plain_spearman
    assert "[MASK]" in attached[0].partial_mask(pairs[0][0])
