"""The card of a post-processed model: its training stays, its post-processing is added, and goes with it again."""

import re

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from st_extras.losses import SimCSELoss
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor, load
from st_extras.training import save_model
from tests.helpers import columns, train
from tests.modules.cases import TEXTS

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TRAINING = ["loss:SimCSELoss", "### Training Dataset", "`learning_rate`: 0.01", "### Training Logs", "gao2021simcse"]
WHITENING = ["* **WhiteningPostProcessor**, fitted on 8 sentences:", '"dimensions": 6', "#### WhiteningPostProcessor"]
REPAL = ["* **RepALPostProcessor**, fitted on 5 sentences:", '"keywords": "tfidf"', "#### RepALPostProcessor"]
NEEDS_US = ["pip install st-extras", "trust_remote_code=True", "st_extras.load("]


def card(model, folder):
    model.save(str(folder))
    return (folder / "README.md").read_text(encoding="utf8")


def found(text, *groups):
    """Which groups are in a card; none of them may be there in part."""
    present = [[wanted in text for wanted in group] for group in groups]
    assert all(len(set(group)) == 1 for group in present), text
    return [group[0] for group in present]


@pytest.mark.parametrize("reloaded", [False, True])
def test_the_card_along_the_way(still_encoder, sentences, tmp_path, reloaded):
    train(still_encoder, SimCSELoss(still_encoder), columns(sentences), tmp_path / "training", logging_steps=1)

    def step(model, name, whitened=False, refined=False):
        text = card(model, tmp_path / name)
        assert re.search(r"\*\*Output Dimensionality:\*\* (\d+)", text)[1] == str(model.get_embedding_dimension())
        assert found(text, TRAINING, WHITENING, REPAL, NEEDS_US) == [True, whitened, refined, whitened or refined]
        assert text.count("#### SimCSELoss\n") == text.count("#### Sentence Transformers\n") == 1
        return load(str(tmp_path / name), device="cpu") if reloaded else model

    model = step(still_encoder, "plain")
    model = step(WhiteningPostProcessor.attach(model, dimensions=6, corpus=sentences), "whitened", whitened=True)
    options = {"lambda_1": 0.5, "lambda_2": 0.25, "keywords": "tfidf", "corpus": sentences[:5]}
    model = step(RepALPostProcessor.attach(model, **options), "repal", whitened=True, refined=True)
    step(RepALPostProcessor.detach(model), "detached", whitened=True)


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
        assert not re.search("My model|secret", written)
        assert ("fitted on 12 sentences" in written, "license: mit" in written) == (True, "license: mit" in text)


def test_a_local_base_model_is_named_and_the_folder_to_load(encoder, tmp_path):
    encoder.save(str(tmp_path / "start"))
    for title, name in (("# SentenceTransformer\n# Download\n", "start"), ("---\na: 1\n---\n\n# Mini LM\n", "Mini LM")):
        (tmp_path / "start/README.md").write_text(title)
        model = WhiteningPostProcessor.attach(SentenceTransformer(str(tmp_path / "start")), corpus=TEXTS)
        save_model(model, tmp_path / "my-encoder")
        text = (tmp_path / "my-encoder/README.md").read_text(encoding="utf8")
        assert found(text, [f"- **Base model:** {name}\n", f" made from {name}. ", '.load("my-encoder")']) == [True]
        assert not re.search(r"Unknown\]\(|sentence_transformers_model_id", text)
