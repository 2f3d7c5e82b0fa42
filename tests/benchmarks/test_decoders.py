"""The study of decoders: its embeddings and transforms are those of the library, and it resumes."""

from typing import Any

import numpy as np
import pytest

from benchmarks import decoders
from benchmarks.records import records
from benchmarks.studies import Options
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, STSDataset
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES

TEXTS = ["a cat", *SENTENCES[:3], "a", *SENTENCES[3:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "tiny"
    return build_decoder(path, num_hidden_layers=4, pad=True, tie_word_embeddings=True)


def test_one_pass_gives_what_cut_encoders_give(folder):
    template = decoders.TEMPLATES["eol"]
    model = load_encoder(folder, prompt_template=template, device="cpu")
    found = decoders.encode(model, TEXTS, [1, 3, 4])
    for k, layer in enumerate((1, 3, 4)):
        for p, pooling in enumerate(decoders.POOLINGS):
            cut: Any = {"layers": layer, "prompt_template": template, "device": "cpu"}
            other = load_encoder(folder, pooling="mean" if pooling == "rest" else pooling, **cut)
            wanted = other.encode(TEXTS)
            if pooling == "rest":
                counts = other.preprocess(TEXTS)["attention_mask"].sum(dim=1, keepdim=True).numpy()
                first = load_encoder(folder, pooling="cls", **cut).encode(TEXTS)
                wanted = (counts * wanted - first) / (counts - 1)
            np.testing.assert_allclose(found[k, p], wanted, atol=5e-6)


def test_echo_pools_the_second_copy(folder):
    model = load_encoder(folder, device="cpu")
    found = decoders.encode(model, TEXTS, [4], "echo")[0]
    for i, text in enumerate(TEXTS):
        head = f"Rewrite the sentence: {text}, rewritten sentence: "
        read = model.tokenizer(head + text, return_tensors="pt", return_offsets_mapping=True)
        tokens = model.transformers_model(read["input_ids"]).last_hidden_state[0].detach()
        second = [k for k, (_, end) in enumerate(read["offset_mapping"][0].tolist()) if end > len(head)]
        assert 0 < len(second) < len(tokens)
        np.testing.assert_allclose(found[0, i], tokens[second].mean(dim=0), atol=5e-6)
        np.testing.assert_allclose(found[3, i], tokens[-1], atol=5e-6)


def test_a_study_resumes(folder, tmp_path, monkeypatch):
    sets = {
        name: STSDataset(name, TEXTS[:4], TEXTS[4:8], [1.0, 3.0, 2.0, 5.0], ["a"] * 4)
        for name in (decoders.DEV, "stsb_test", *SEVEN_STS)
    }
    fitted = {"sts": SENTENCES, "wiki": [f"{text} again" for text in SENTENCES]}
    monkeypatch.setattr(decoders, "groups", lambda study, data: (dict(sets), fitted))
    monkeypatch.setattr(decoders, "baselines", lambda study, data: {"rows": {}})
    entry = {"layers": [2, 4], "ways": ["plain", "filtered"], "brief": {"filtered": []}}
    study = {"name": "decoders", "dtype": "float32", "encoders": {"tiny": entry}}
    options = Options(tmp_path, tmp_path / "work", tmp_path / "results", methods=entry["ways"])
    (options.work / "encoders").mkdir(parents=True)
    (options.work / "encoders" / "tiny").symlink_to(folder)
    decoders.run(study, options)
    found = {record["run"]: record["rows"] for record in records("decoders", root=options.root)}
    assert {run: len(rows) for run, rows in found.items()} == {"baselines": 0, "tiny-plain": 40, "tiny-filtered": 16}
    assert set(found["tiny-plain"]["4 mean plain -"]) == set(sets)
    assert set(found["tiny-filtered"]["4 mean filter-8 -"]) == {"stsb_dev", "stsb_test"}
    monkeypatch.setattr(decoders, "encode", None)  # all of it is in the cache
    (options.root / "decoders.jsonl").unlink()
    decoders.run(study, options)
    assert records("decoders", "tiny-plain", root=options.root)[0]["rows"] == found["tiny-plain"]
    with pytest.raises(ValueError, match="was made from other texts"):
        decoders.cached(options.work / "decoders" / "tiny-plain-wiki.npz", ["else"], None)
