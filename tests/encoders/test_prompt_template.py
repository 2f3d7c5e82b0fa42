"""A text around every sentence: token for token what stands in the text, saved, and kept when a text is cut."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_extras.encoders import load_encoder
from st_extras.encoders.prompt_template import PROMPT_EOL, set_prompt_template
from tests.architectures.encoders import build
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES

TEXTS = ["a cat", *SENTENCES[:2], "{{ 7 * 7 }} {% if %}", 'say "hi" {}', "\u00e9\U0001f600", "<|x|>", ""]
TEMPLATES = [PROMPT_EOL, "{} {{x}} {% y %} \\n 'z'"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("templates")
    build("RoBERTa", root / "roberta")
    build_decoder(root / "llama")
    return root


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", ["roberta", "llama"])
def test_it_stands_around_every_text(folders, tmp_path, kind, template):
    pooling = "mean" if kind == "roberta" else "lasttoken"
    plain = load_encoder(folders / kind, pooling=pooling, device="cpu")
    plain.max_seq_length = 60
    model = load_encoder(folders / kind, pooling=pooling, prompt_template=template, device="cpu")
    model.max_seq_length = 60
    filled = [template.replace("{}", text, 1) for text in TEXTS]
    ids = plain.tokenizer(filled)["input_ids"]
    for side in ("right", "left"):
        model.tokenizer.padding_side = plain.tokenizer.padding_side = side
        features = model.preprocess(TEXTS)
        rows = zip(features["input_ids"], features["attention_mask"], strict=True)
        assert [row[kept.bool()].tolist() for row, kept in rows] == ids
        np.testing.assert_allclose(model.encode(TEXTS), plain.encode(filled), atol=2e-6)
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert "st_extras" not in (tmp_path / "saved" / "modules.json").read_text()


@pytest.mark.parametrize("kind", ["roberta", "llama"])
def test_a_long_text_loses_its_own_end(folders, kind):
    model = load_encoder(folders / kind, prompt_template=PROMPT_EOL, device="cpu")
    short = model.tokenizer.decode(model.preprocess(["a"])["input_ids"][0])
    model.max_seq_length = model.preprocess([""])["input_ids"].size(1) + 4
    ids = model.preprocess([" ".join(SENTENCES)])["input_ids"]
    assert ids.shape == (1, model.max_seq_length)
    found = model.tokenizer.decode(ids[0])
    ending = PROMPT_EOL.split("{}")[1] + ("" if kind == "llama" else "</s>")
    assert short.endswith(ending)
    assert found.endswith(ending)
    assert "cat" in found


def test_a_prompt_stands_inside_and_a_chat_template_is_replaced(folders):
    model = load_encoder(folders / "llama", prompt_template="x {} y", device="cpu")
    set_prompt_template(model, "z {} y")
    other = load_encoder(folders / "llama", prompt_template="z a{} y", device="cpu")
    np.testing.assert_array_equal(model.encode(TEXTS, prompt="a"), other.encode(TEXTS))


@pytest.mark.parametrize("template", ["no place", "{} and {}", 3])
def test_what_is_refused(folders, template):
    with pytest.raises(ValueError, match=r"^prompt_template must"):
        load_encoder(folders / "llama", prompt_template=template, device="cpu")
