from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.encoders.rows import content_mask, template_mask, try_stack_columns
from st_extras.losses import SimCSELoss
from tests.architectures.encoders import build

TURNS = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s> {% endfor %}reply:"
TURNS_WITH_DEFAULT = "{% if messages[0]['role'] != 'system' %}<s>system: be kind</s> {% endif %}" + TURNS
QUOTED = 'This sentence: "{{ messages[-1][\'content\'] }}" means in one word: "'
ONE_TURN = "<s>user: {% for m in messages %}{{ m['content'] }}{% if not loop.last %} | {% endif %}{% endfor %}</s>"
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
    "<s>{{ messages[0]['content'] }}</s>"
)
TEXTS = ["dog", "the old man read a red book", "a cat sat on the mat", ""]


def with_template(folder: Path, template: str, side: str = "right") -> SentenceTransformer:
    """A byte-level encoder whose texts go through a chat template, as those of instruction-tuned decoders do."""
    model = build("RoBERTa", folder)
    model.tokenizer.chat_template = template
    model.tokenizer.padding_side = side
    model[0].modality_config["message"] = {"method": "forward", "method_output_name": "last_hidden_state"}
    model[0].input_formatter.message_format = "flat"
    return model


def contents(model: SentenceTransformer, texts: list[str]) -> list[str]:
    features = model.preprocess(texts)
    assert features["modality"] == "message"
    rows = zip(features["input_ids"], content_mask(model, features), strict=True)
    return [model.tokenizer.decode(ids[kept]).strip() for ids, kept in rows]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("template", [TURNS, TURNS_WITH_DEFAULT, QUOTED, ONE_TURN, NO_SYSTEM])
def test_a_template_is_no_content(tmp_path, template, side):
    model = with_template(tmp_path, template, side)
    model.max_seq_length = 200
    assert contents(model, TEXTS) == TEXTS
    assert contents(model, TEXTS[1:2]) == TEXTS[1:2]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_cut_row_keeps_its_end(tmp_path, side):
    model = with_template(tmp_path, TURNS, side)
    whole = model.preprocess([TEXTS[1]])["input_ids"].size(1)
    model.max_seq_length = whole - 3
    (kept,) = contents(model, TEXTS[1:2])
    assert 0 < len(kept) < len(TEXTS[1])
    assert TEXTS[1].startswith(kept)


def test_views_of_a_templated_row(tmp_path):
    model = with_template(tmp_path, TURNS)
    model.max_seq_length = 200
    features = model.preprocess(TEXTS)
    loss = SimCSELoss(model, augmentations=("token_cutoff", "shuffle"))
    rows = loss.view_maker.rows(model, [features])
    assert content_mask(model, rows).sum() == 2 * content_mask(model, features).sum()
    cut = (rows["inputs_embeds"] == 0).all(dim=2)
    assert cut.any()
    assert not (cut & template_mask(model, rows)).any()
    assert loss([features]).isfinite()


def test_stacked_columns_of_other_widths(tmp_path):
    model = with_template(tmp_path, TURNS, "left")
    model.max_seq_length = 200
    stacked = try_stack_columns([model.preprocess(TEXTS[:1]), model.preprocess(TEXTS[1:2])])
    assert stacked is not None
    rows = zip(stacked["input_ids"], content_mask(model, stacked), strict=True)
    assert [model.tokenizer.decode(ids[kept]).strip() for ids, kept in rows] == TEXTS[:2]
