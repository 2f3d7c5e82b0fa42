"""The card of a post-processed model: its training stays, its post-processing is added, and goes with it again."""

import re
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from st_extras.losses import SimCSELoss
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor, load
from st_extras.training import save_model
from tests.helpers import columns, train
from tests.modules.cases import TEXTS

pytest.importorskip("jieba")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TRAINING = [
    "SimCSELoss", "loss:SimCSELoss", "### Training Dataset", "* Size: 8 training samples", "`learning_rate`: 0.01",
    "### Training Logs", "gao2021simcse",
]  # fmt: skip
WHITENING = ["* **WhiteningPostProcessor**, fitted on 8 sentences:", '"dimensions": 6', "#### WhiteningPostProcessor"]
REPAL = [
    "* **RepALPostProcessor**, fitted on 5 sentences:", '"lambda_1": 0.5', '"keywords": "tfidf"', "shen2023repal",
    '"redundancy": "encoder"', "#### RepALPostProcessor",
]  # fmt: skip
NEEDS_US = ["pip install st-extras", "trust_remote_code=True", "st_extras.load("]


def card(model: SentenceTransformer, folder: Path) -> str:
    model.save(str(folder))
    return (folder / "README.md").read_text(encoding="utf8")


def missing(text: str, *groups: list[str]) -> list[str]:
    return [wanted for group in groups for wanted in group if wanted not in text]


def present(text: str, *groups: list[str]) -> list[str]:
    return [unwanted for group in groups for unwanted in group if unwanted in text]


def citations(text: str) -> list[str]:
    return re.findall(r"^#### (\S[^\n]*)\n```bibtex", text, re.M)


@pytest.fixture
def trained(still_encoder, sentences, tmp_path):
    train(still_encoder, SimCSELoss(still_encoder), columns(sentences), tmp_path / "training", logging_steps=1)
    return still_encoder


@pytest.mark.parametrize("reloaded", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_card_along_the_way(trained, sentences, tmp_path, reloaded):
    def step(model, name):
        text = card(model, tmp_path / name)
        assert re.search(r"\*\*Output Dimensionality:\*\* (\d+)", text)[1] == str(model.get_embedding_dimension())
        assert text.count("## Training of the Encoder") == (reloaded and name != "plain")
        return text, load(str(tmp_path / name), device="cpu") if reloaded else model

    text, model = step(trained, "plain")
    assert not missing(text, TRAINING)
    assert not present(text, WHITENING, REPAL, NEEDS_US)
    model = WhiteningPostProcessor.attach(model, dimensions=6, corpus=sentences)
    text, model = step(model, "whitened")
    assert not missing(text, TRAINING, WHITENING, NEEDS_US)
    model = RepALPostProcessor.attach(model, lambda_1=0.5, lambda_2=0.25, keywords="tfidf", corpus=sentences[:5])
    text, model = step(model, "repal")
    assert not missing(text, TRAINING, WHITENING, REPAL, NEEDS_US)
    assert citations(text) == [
        "Sentence Transformers", "SimCSELoss", "WhiteningPostProcessor", "RepALPostProcessor",
    ]  # fmt: skip
    model = RepALPostProcessor.detach(model)
    text, model = step(model, "detached")
    assert not missing(text, TRAINING, WHITENING, NEEDS_US)
    assert not present(text, REPAL)
    plain = RepALPostProcessor.detach(RepALPostProcessor.attach(trained, lambda_1=0.5, lambda_2=0, keywords="rake"))
    text = card(plain, tmp_path / "plain again")
    assert not missing(text, TRAINING)
    assert not present(text, REPAL, WHITENING, NEEDS_US)


def test_the_evaluation_of_the_plain_model_is_not_the_new_one_s(still_encoder, sentences, tmp_path):
    scores = list(range(7))
    evaluator = EmbeddingSimilarityEvaluator(sentences[:7], sentences[1:], scores, name="mine", show_progress_bar=False)
    evaluator(still_encoder)
    assert "`mine`" not in card(WhiteningPostProcessor.attach(still_encoder, corpus=sentences), tmp_path / "whitened")
    assert "`mine`" in card(still_encoder, tmp_path / "still"), "the given model keeps its own"


def test_a_card_that_is_not_of_sentence_transformers_gives_what_it_can(still_encoder, tmp_path):
    still_encoder.save(str(tmp_path / "plain"))
    for text in (
        "---\nlanguage: [en]\nlicense: mit\ntags: [mine]\n---\n# My model\n## Training Details\nsecret\n",
        "---\nlicense: [broken\n---\n# My model\n",
        "---\ntags: 5\nlanguage: 7\ndatasets: mine\n---\n",
    ):
        (tmp_path / "plain" / "README.md").write_text(text, encoding="utf8")
        model = SentenceTransformer(str(tmp_path / "plain"), device="cpu")
        written = card(WhiteningPostProcessor.attach(model, corpus=TEXTS), tmp_path / "whitened")
        assert not present(written, ["My model", "secret"])
        assert ("fitted on 12 sentences" in written, "license: mit" in written) == (True, "license: mit" in text)


def test_a_local_base_model_is_named_and_the_folder_to_load(encoder, tmp_path):
    encoder.save(str(tmp_path / "start"))
    for title, name in (("# SentenceTransformer\n# Download\n", "start"), ("---\na: 1\n---\n\n# Mini LM\n", "Mini LM")):
        (tmp_path / "start/README.md").write_text(title)
        model = WhiteningPostProcessor.attach(SentenceTransformer(str(tmp_path / "start")), corpus=TEXTS)
        save_model(model, tmp_path / "my-encoder")
        text = (tmp_path / "my-encoder/README.md").read_text(encoding="utf8")
        assert not missing(text, [f"- **Base model:** {name}\n", f" made from {name}. ", '.load("my-encoder")'])
        assert not present(text, ["Unknown](", "sentence_transformers_model_id"])
