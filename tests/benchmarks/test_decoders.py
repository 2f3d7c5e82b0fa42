"""The study of language models: each way on the sets that it was told, and nothing twice."""

import pytest
from scipy.stats import spearmanr

from benchmarks import decoders
from benchmarks.records import records
from benchmarks.studies import Options
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, load_sts
from tests.benchmarks.conftest import write_data
from tests.encoders.decoders import build_decoder
from tests.helpers import cosine


@pytest.mark.usefixtures("tiny_minilm")
def test_the_two_lines_are_scored(tmp_path, monkeypatch):
    write_data(tmp_path)
    monkeypatch.setitem(decoders.BASELINE_TEXTS, "sts", "sentences.txt")
    options = Options(tmp_path, tmp_path / "work", tmp_path / "results")
    folder = build_decoder(options.work / "encoders" / "tiny", num_hidden_layers=2, pad=True, tie_word_embeddings=True)
    seen = []
    monkeypatch.setitem(decoders.WAYS, decoders.DEFAULTS, lambda *given: seen.append(given) or decoders.minilm(*given))
    study = {"name": "decoders", "encoders": ["tiny"], "fitted": 5, "pairs": {"stsb_dev": 9, "others": 6}}
    decoders.run(study, options)
    decoders.run(study, options)
    found = {record["run"]: record["rows"] for record in records("decoders", root=options.root)}
    assert set(found) == {"baselines", "adapt-tiny", "tiny"}
    ((given, fitted),) = seen
    assert (given, len(fitted)) == (folder, 5)
    scores = found["adapt-tiny"][decoders.FILTERED]
    assert set(scores) == {"stsb_dev", *SEVEN_STS}
    model = load_encoder(folder, pooling="lasttoken", prompt_template=decoders.PROMPT_EOL, device="cpu")
    model = decoders.embed_filter(model)
    dev = decoders.thinned(load_sts("stsb_dev", tmp_path), study["pairs"])
    cosines = [cosine(*model.encode([a, b])) for a, b in zip(dev.sentences1, dev.sentences2, strict=True)]
    assert scores["stsb_dev"] == pytest.approx(100 * spearmanr(cosines, dev.scores).statistic, abs=0.01)
