"""The card of a post-processed model: its training stays, its post-processing is added, and goes with it again."""

import re

import pytest
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from st_extras.losses import SimCSELoss
from st_extras.modules import RepALPostProcessor, load, whitening
from tests.helpers import columns, train

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TRAINING = ["loss:SimCSELoss", "### Training Dataset", "`learning_rate`: 0.01", "### Training Logs", "gao2021simcse"]
WHITENING = ["* **Whitening**, fitted on 8 sentences:", '"dimensions": 6', "#### Whitening"]
REPAL = ["* **RepALPostProcessor**, fitted on 5 sentences:", '"keywords": "tfidf"', "#### RepALPostProcessor"]
NEEDS_US = ["pip install st-extras", "trust_remote_code=True", "st_extras.modules import load"]


def card(model, folder):
    model.save(str(folder))
    return (folder / "README.md").read_text(encoding="utf8")


def found(text, *groups):
    """Which groups are in a card; none of them may be there in part."""
    present = [[wanted in text for wanted in group] for group in groups]
    assert all(len(set(group)) == 1 for group in present), text
    return [group[0] for group in present]


def test_the_card_along_the_way(still_encoder, sentences, tmp_path):
    train(still_encoder, SimCSELoss(still_encoder), columns(sentences), tmp_path / "training", logging_steps=1)

    def step(model, name, whitened=False, refined=False):
        text = card(model, tmp_path / name)
        assert re.search(r"\*\*Output Dimensionality:\*\* (\d+)", text)[1] == str(model.get_embedding_dimension())
        assert found(text, TRAINING, WHITENING, REPAL, NEEDS_US) == [True, whitened, refined, refined]
        assert text.count("#### SimCSELoss\n") == text.count("#### Sentence Transformers\n") == 1
        return model

    model = step(still_encoder, "plain")
    model = step(whitening(model, sentences, dimensions=6), "whitened", whitened=True)
    options = {"lambda_1": 0.5, "lambda_2": 0.25, "keywords": "tfidf", "corpus": sentences[:5]}
    model = step(RepALPostProcessor.attach(model, **options), "repal", whitened=True, refined=True)
    step(RepALPostProcessor.detach(model), "detached", whitened=True)


def test_a_loaded_model_that_was_fitted_again_gets_a_new_card(still_encoder, sentences, tmp_path):
    options = {"lambda_1": 0.5, "lambda_2": 0.25, "keywords": "rake", "corpus": sentences[:5]}
    RepALPostProcessor.attach(still_encoder, **options).save(str(tmp_path / "once"))
    again = load(str(tmp_path / "once"), device="cpu")
    assert "fitted on 5 sentences" in card(again, tmp_path / "unchanged")
    again[2].fit(sentences[:7])
    assert "fitted on 7 sentences" in card(again, tmp_path / "again")


def test_the_evaluation_of_the_plain_model_is_not_the_new_one_s(still_encoder, sentences, tmp_path):
    scores = list(range(7))
    evaluator = EmbeddingSimilarityEvaluator(sentences[:7], sentences[1:], scores, name="mine", show_progress_bar=False)
    evaluator(still_encoder)
    assert "`mine`" not in card(whitening(still_encoder, sentences), tmp_path / "whitened")
    assert "`mine`" in card(still_encoder, tmp_path / "still"), "the given model keeps its own"
