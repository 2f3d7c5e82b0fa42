"""Keywords are looked for in the user's text alone: in chat templates, behind prompts, in texts that are cut."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_extras.encoders import load_encoder
from st_extras.modules import load
from tests.modules.cases import LAMBDA_1, attach, reference

pytest.importorskip("jieba")

TURNS = (
    "{% for message in messages %}[CLS] {{ message['role'] }} the cat : {{ CONTENT }} [SEP] {% endfor %}"
    "{% if add_generation_prompt %}a dog : {% endif %} man ."
)
TEMPLATES = {
    "verbatim": TURNS.replace("CONTENT", "message['content']"),
    "stripped": TURNS.replace("CONTENT", "message['content'] | trim"),
}
TEXTS = ["a cat sat on the mat", "  the dog ran ", "on the in a", "a"]


@pytest.fixture
def make_chat(make_encoder, tmp_path):
    """An encoder whose texts go through a template that itself holds the words that are keywords in a text."""

    def build(template: str, **options) -> SentenceTransformer:
        model = make_encoder(dropout=0.0, **{"max_seq_length": 40, **options})
        model.tokenizer.chat_template = template
        folder = tmp_path / "chat"
        model.transformers_model.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
        model = load_encoder(folder, pooling=options.get("pooling", "mean"), prompt_template="chat")
        assert "message" in model[0].modality_config
        return model

    return build


def hidden(attached, texts, prompt=None):
    """The tokens that are flagged as keywords, row by row."""
    features = attached.preprocess(texts, prompt=prompt)
    return [
        [token for token, flag in zip(attached.tokenizer.convert_ids_to_tokens(ids), flags, strict=True) if flag]
        for ids, flags in zip(features["input_ids"], features["keyword_tokens"], strict=True)
    ]


@pytest.mark.parametrize(
    ("template", "prompt", "side"), [("verbatim", None, "right"), ("stripped", "the cat: ", "left")]
)
def test_exact_redundancy_masks_the_text_and_not_its_template(make_chat, template, prompt, side):
    model = make_chat(TEMPLATES[template])
    model.tokenizer.padding_side = side
    attached = attach(model, lambda_2=0.0, corpus=None)
    seen = model.tokenizer.decode(attached.preprocess(TEXTS[:1], prompt=prompt)["input_ids"][1])
    assert seen.count("[MASK]") == 3
    assert seen.count("cat") == (1 if prompt is None else 3)
    expected = reference(model, TEXTS, lambda_2=0.0, corpus=TEXTS, prompt=prompt)
    # one by one: with padding on the left, the positions of a BERT would move
    assert np.abs(attached.encode(TEXTS, prompt=prompt, batch_size=1) - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("template", "prompt", "side"),
    [("verbatim", None, "left"), ("verbatim", "the cat: ", "right"), ("stripped", "the cat: ", "left")],
)
def test_pooled_redundancy_finds_the_text_in_its_template(make_chat, template, prompt, side):
    model = make_chat(TEMPLATES[template])
    model.tokenizer.padding_side = side
    attached = attach(model, redundancy="pooled", lambda_2=0.0, corpus=None)
    assert hidden(attached, TEXTS, prompt) == [["cat", "sat", "mat"], ["dog", "ran"], [], []]
    features = model.preprocess(TEXTS, prompt=prompt)
    flags = attached.preprocess(TEXTS, prompt=prompt)["keyword_tokens"].numpy()
    tokens = model[0](dict(features))["token_embeddings"].detach().double().numpy()
    shown = features["attention_mask"].bool().numpy()
    plain = [tokens[i][shown[i]].mean(axis=0) for i in range(len(TEXTS))]
    rest = [tokens[i][shown[i] & ~flags[i]].mean(axis=0) for i in range(len(TEXTS))]
    expected = np.array(plain) - LAMBDA_1 * np.array(rest)
    assert np.abs(attached.encode(TEXTS, prompt=prompt) - expected).max() < 1e-5


def test_the_end_of_a_template_written_over_a_cut_text_is_no_keyword(make_chat):
    model = make_chat(TEMPLATES["verbatim"], max_seq_length=16)
    model.max_seq_length = 16
    attached = attach(model, redundancy="pooled", lambda_2=0.0, corpus=None)
    texts = ["the old " + "dog " * 20, "a cat"]
    features = attached.preprocess(texts)
    assert model.tokenizer.decode(features["input_ids"][0]).endswith("man.")
    flagged = hidden(attached, texts)
    ids = model.tokenizer.convert_ids_to_tokens(features["input_ids"][0])
    assert flagged == [["dog"] * ids.count("dog"), ["cat"]]


@pytest.mark.parametrize(
    "content",
    ["message['content'] | upper", "message['content'] ~ message['content']"],
)
def test_a_template_that_changes_the_text_is_refused_for_pooled_redundancy(make_chat, content):
    model = make_chat(TURNS.replace("CONTENT", content))
    with pytest.raises(ValueError, match=r'^redundancy must be "encoder" for a chat template'):
        attach(model, redundancy="pooled")
    assert np.isfinite(attach(model, lambda_2=0.0, corpus=None).encode(TEXTS)).all()


@pytest.mark.parametrize(("redundancy", "pooling"), [("encoder", "lasttoken"), ("pooled", "mean")])
def test_a_prompt_template_is_never_masked(make_encoder, tmp_path, redundancy, pooling):
    make_encoder(dropout=0.0, max_seq_length=30).save(str(tmp_path / "plain"))
    model = load_encoder(tmp_path / "plain", pooling=pooling, prompt_template='the cat "{}" is a man: "')
    model.max_seq_length = 30
    attached = attach(model, redundancy=redundancy, keywords="rake", lambda_2=0.0, corpus=None)
    features = attached.preprocess(["the dog ran"])
    if redundancy == "pooled":
        assert hidden(attached, ["the dog ran"]) == [["dog", "ran"]]
        assert np.abs(attached.encode(TEXTS, batch_size=2)).max(axis=1).min() > 1e-3
    else:
        texts = model.tokenizer.batch_decode(features["input_ids"])
        assert texts[1] == texts[0].replace("dog ran", "[MASK] [MASK]")
        assert texts[1].count("cat") == 1
    attached.save(str(tmp_path / "saved"))
    again = load(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(again.encode(TEXTS), attached.encode(TEXTS))
