"""Encoders loaded, cut and pooled: against hidden states by hand, and loadable without this package."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor
from transformers import AutoModel

import st_extras
from st_extras.encoders.loading import keep_layers, load_encoder, with_pooling
from st_extras.losses import SimCSELoss
from st_extras.modules import WhiteningPostProcessor
from st_extras.training import train_encoder
from tests.architectures.encoders import build
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES, build_encoder
from tests.helpers import some_fast

TEXTS = ["a cat", *SENTENCES[:3]]  # of different lengths, so that padding is there
POOLINGS = ("cls", "mean", "max", "first-last", "last-two")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plain transformer of 4 layers with dropout."""
    path = tmp_path_factory.mktemp("loading") / "bert"
    build_encoder(path, layers=4)
    return path


def hidden_states(folder: Path, model: SentenceTransformer) -> tuple[list[Tensor], Tensor]:
    """Embeddings and every layer's output (B, L, D), from transformers alone, and the attention mask."""
    features = model.preprocess(TEXTS)
    body = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        out = body(**{name: features[name] for name in ("input_ids", "attention_mask")}, output_hidden_states=True)
    return list(out.hidden_states), features["attention_mask"]


def pooled_by_hand(pooling: str, states: list[Tensor], mask: Tensor) -> list[list[float]]:
    """states: embeddings, layer 1, ..., last layer."""
    rows = []
    for i in range(mask.size(0)):
        kept = [t for t in range(mask.size(1)) if mask[i, t]]
        if pooling == "cls":
            row = states[-1][i, 0]
        elif pooling == "max":
            row = torch.stack([states[-1][i, t] for t in kept]).amax(dim=0)
        else:
            layers = {"mean": [states[-1]], "first-last": [states[1], states[-1]], "last-two": states[-2:]}[pooling]
            row = sum((layer[i, t] for layer in layers for t in kept), torch.zeros(16)) / (len(layers) * len(kept))
        rows.append(row.tolist())
    return rows


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_by_hand_and_after_saving(folder, tmp_path, pooling):
    layers = 3
    model = load_encoder(folder, pooling=pooling, layers=layers, device="cpu")
    states, mask = hidden_states(folder, model)
    assert 0 in mask
    expected = pooled_by_hand(pooling, states[: layers + 1], mask)
    found = model.encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), found)
    assert "st_extras" not in (tmp_path / "saved" / "modules.json").read_text()
    # Every pooling differs from every other one, or the comparison above would say nothing.
    others = [pooled_by_hand(other, states[: layers + 1], mask) for other in POOLINGS]
    assert sum(np.allclose(found, other, atol=1e-3) for other in others) == 1


def test_training_keeps_the_layer_weights(folder):
    """The averages are of fixed layers: only the transformer has something to learn."""
    model = load_encoder(folder, pooling="first-last", device="cpu")
    model(model.preprocess(TEXTS))["sentence_embedding"].sum().backward()
    trainable = {name.split(".")[0] for name, value in model.named_parameters() if value.requires_grad}
    assert trainable == {"0"}
    assert model[1].layer_weights.grad is None
    assert model[0].auto_model.encoder.layer[0].output.dense.weight.grad.abs().sum() > 0


def test_without_options_nothing_changes(folder, tmp_path):
    transformer, pooling = SentenceTransformer(str(folder), device="cpu").children()
    pooling = Pooling(16, pooling_mode="cls")
    SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu").save(str(tmp_path / "own"))
    model = load_encoder(tmp_path / "own", device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert model[1].pooling_mode == "cls"
    np.testing.assert_array_equal(
        model.encode(TEXTS), SentenceTransformer(str(tmp_path / "own"), device="cpu").encode(TEXTS)
    )
    card = SentenceTransformerModelCardData(license="mit")
    replaced = load_encoder(tmp_path / "own", pooling="mean", device="cpu", truncate_dim=8, model_card_data=card)
    assert replaced.encode(TEXTS).shape == (len(TEXTS), 8)
    assert replaced.model_card_data.license == "mit"
    assert [type(module).__name__ for module in replaced] == ["Transformer", "Pooling"]


def test_keep_layers_keeps_the_first(folder):
    model = load_encoder(folder, device="cpu")
    first = [id(layer) for layer in model[0].auto_model.encoder.layer][:2]
    keep_layers(model, 4)
    assert len(model[0].auto_model.encoder.layer) == 4
    keep_layers(model, 2.0)  # as a whole number may be written
    assert [id(layer) for layer in model[0].auto_model.encoder.layer] == first
    with pytest.raises(ValueError, match=r"^layers must"):
        keep_layers(model, 3)


def test_a_pooling_over_layers_cannot_lose_them(folder, tmp_path):
    with pytest.raises(ValueError, match=r"^pooling must"):
        load_encoder(folder, layers=1, pooling="last-two", device="cpu")
    load_encoder(folder, pooling="first-last", device="cpu").save(str(tmp_path))
    with pytest.raises(ValueError, match=r"^pooling must"):
        load_encoder(tmp_path, layers=2, device="cpu")
    assert load_encoder(tmp_path, layers=4, device="cpu").encode(TEXTS).shape == (4, 16)
    assert load_encoder(tmp_path, layers=2, pooling="first-last", device="cpu").encode(TEXTS).shape == (4, 16)


def test_adapters_on_a_cut_encoder_are_not_saved_as_those_of_the_whole_one(folder, tmp_path):
    """Whoever saves: the adapters alone would be written, and loaded onto the checkpoint with all its layers."""
    peft = pytest.importorskip("peft")
    model = load_encoder(folder, layers=2, device="cpu")
    model.save(str(tmp_path / "cut"))
    for one in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model):
        assert one[0].auto_model.save_pretrained.__self__ is one[0].auto_model
    for one in (copy.deepcopy(model), model, SentenceTransformer(modules=[*model], device="cpu")):
        if not getattr(one[0].auto_model, "_hf_peft_config_loaded", False):
            one.add_adapter(peft.LoraConfig(r=2, target_modules=["query"]))
        with pytest.raises(ValueError, match=r"^model has adapters"):
            one.save(str(tmp_path / "adapted"))
    again = load_encoder(tmp_path / "cut", device="cpu")
    again.add_adapter(peft.LoraConfig(r=2, target_modules=["query"]))
    again.save(str(tmp_path / "again"))
    loaded = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS), again.encode(TEXTS), atol=1e-6)


def test_the_longest_text_of_roberta(tmp_path):
    path = tmp_path / "roberta"
    build("RoBERTa", path)
    config = AutoModel.from_pretrained(path).config
    longest = config.max_position_embeddings - config.pad_token_id - 1
    model = load_encoder(path, max_seq_length=longest, device="cpu")
    assert np.isfinite(model.encode(["a cat " * longest])).all()
    with pytest.raises(ValueError, match=r"^max_seq_length must"):
        load_encoder(path, max_seq_length=longest + 1, device="cpu")
    tokenizer = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"model_max_length": 10**30}))
    model = load_encoder(path, device="cpu")
    assert model.max_seq_length == longest, "Sentence Transformers takes all rows of the table of positions"
    assert np.isfinite(model.encode(["a cat " * longest])).all()


def test_an_encoder_with_longer_texts_than_positions_is_refused_before_it_reads_them(folder, tmp_path):
    model = load_encoder(folder, device="cpu")
    model.max_seq_length = 65
    with pytest.raises(ValueError, match=r"^max_seq_length must"):
        WhiteningPostProcessor.attach(model, corpus=["a cat", "a dog"])
    with pytest.raises(ValueError, match=r"^max_seq_length must"):
        train_encoder(model, SimCSELoss, ["a cat", "a dog"], tmp_path / "out", show_progress_bar=False)


def test_loading_draws_nothing_that_anyone_sees(tmp_path):
    """The checkpoint has no pooler: a fresh one is the same at every call, and the random state stays."""
    build_encoder(tmp_path / "whole")
    body = AutoModel.from_pretrained(tmp_path / "whole", add_pooling_layer=False)
    body.save_pretrained(tmp_path / "whole")
    poolers = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        model = load_encoder(tmp_path / "whole", pooling="mean", device="cpu")
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.initial_seed() == seed
        poolers.append(model[0].auto_model.pooler.dense.weight)
    assert torch.equal(*poolers)
    assert poolers[0].std() > 0


# ------------------------------------------------------------------------------------------- decoders


def test_a_tokenizer_without_padding_token_gets_one(tmp_path, caplog):
    """Sentence Transformers loads such a decoder and fails at the first batch."""
    build_decoder(tmp_path / "llama")
    with pytest.raises(ValueError, match="pad"):
        SentenceTransformer(str(tmp_path / "llama"), device="cpu").encode(TEXTS)
    with caplog.at_level("INFO", logger="st_extras"):
        model = load_encoder(tmp_path / "llama", device="cpu", processor_kwargs={"padding_side": "left"})
    assert [record.getMessage() for record in caplog.records if record.name.startswith("st_extras")] == [
        "The tokenizer has no padding token: batches are padded with its end-of-text token '</s>'."
    ]
    assert model[1].pooling_mode == "lasttoken"  # as Sentence Transformers decides for a causal language model
    assert model.tokenizer.padding_side == "right"
    np.testing.assert_allclose(model.encode(TEXTS), model.encode(TEXTS, batch_size=1), atol=1e-5)
    caplog.clear()
    build_decoder(tmp_path / "padded", pad=True)
    assert load_encoder(tmp_path / "padded", device="cpu").tokenizer.pad_token == "<pad>"
    assert "padding token" not in caplog.text


def test_a_tokenizer_without_padding_and_end_is_refused(tmp_path):
    build_decoder(tmp_path / "llama")
    path = tmp_path / "llama" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in settings.items() if name != "eos_token"}))
    with pytest.raises(ValueError, match=r"^tokenizer must"):
        load_encoder(tmp_path / "llama", device="cpu")
    model = load_encoder(tmp_path / "llama", device="cpu", processor_kwargs={"pad_token": "<pad>"})
    assert model.tokenizer.pad_token_id == 2


def test_the_precision_of_the_weights(folder):
    model = load_encoder(folder, dtype="bfloat16", device="cpu", model_kwargs={"torch_dtype": "float32"})
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("name", some_fast(["ModernBERT", "Longformer", "Gemma 3", "T5 encoder"], ["ModernBERT"]))
def test_a_cut_encoder_loads_as_it_was_saved_or_is_refused(name, tmp_path):
    build(name, tmp_path / "whole")
    if name == "T5 encoder":
        with pytest.raises(ValueError, match=r"^layers=1 is not possible"):
            load_encoder(tmp_path / "whole", layers=1, device="cpu")
        return
    model = load_encoder(tmp_path / "whole", pooling="mean", layers=1, device="cpu")
    model.save(str(tmp_path / "cut"))
    again = SentenceTransformer(str(tmp_path / "cut"), device="cpu")
    assert len(again[0].auto_model.state_dict()) == len(model[0].auto_model.state_dict())
    torch.testing.assert_close(again.encode(SENTENCES), model.encode(SENTENCES))


# ------------------------------------------------------------------------------------------- refusals

LOADERS = (load_encoder, st_extras.load)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pooling", "median"),
        ("dtype", "float8"),
        ("dropout", 1.0),
        ("layers", 5),
        ("layers", True),
        ("max_seq_length", 2),
        ("max_seq_length", 65),
    ],
)
def test_options_are_checked(folder, option, value):
    with pytest.raises(ValueError, match=f"^{option} must be .* got {value!r}"):
        load_encoder(folder, device="cpu", **{option: value})


def test_an_encoder_must_start_with_a_transformer():
    words = SentenceTransformer(modules=[Pooling(4)], device="cpu")
    for change in (lambda: with_pooling(words, "mean"), lambda: keep_layers(words, 1)):
        with pytest.raises(ValueError, match="starts with a transformer, got Pooling"):
            change()


@pytest.mark.parametrize("config", [None, "{", '{"model_type": "bert"}'])
def test_a_folder_without_an_encoder_is_one_line(tmp_path, config):
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match="could not be loaded as an encoder") as caught:
        load_encoder(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_path_that_is_no_folder(tmp_path):
    (tmp_path / "a.bin").write_text("x")
    for path in (tmp_path / "a.bin", "nobody/nothing", ["bert"]):
        with pytest.raises(ValueError, match=r"is a file|there is no such folder|^path must be"):
            load_encoder(path, device="cpu")


@pytest.mark.parametrize("kind", [CrossEncoder, SparseEncoder, MultiVectorEncoder])
def test_another_kind_of_model_is_refused(tmp_path, kind):
    build_encoder(tmp_path / "base", with_head=True)
    kind(str(tmp_path / "base")).save(str(tmp_path / "saved"))
    for load in LOADERS:
        with pytest.raises(ValueError, match=f"got a {kind.__name__}: load"):
            load(str(tmp_path / "saved"))
    assert load_encoder(tmp_path / "saved", pooling="mean").encode(["a"]).shape == (1, 16)  # on purpose


def test_a_head_is_refused_unless_it_is_that_of_a_language_model(tmp_path):
    build_encoder(tmp_path, with_head=True)
    assert load_encoder(tmp_path).encode(["a"]).shape == (1, 16)
    config = json.loads((tmp_path / "config.json").read_text())
    for head in ("BertForSequenceClassification", "BertForTokenClassification", "HF_ColBERT"):
        (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": [head]}))
        for load in LOADERS:
            with pytest.raises(ValueError, match=head):
                load(str(tmp_path))


def test_an_incomplete_save_is_refused(tmp_path):
    """Sentence Transformers would guess the pooling, or load what fails at the first text."""
    model = build_encoder(tmp_path / "body", pooling="cls")
    model.append(Normalize())
    model.save(str(tmp_path / "saved"))
    shutil.rmtree(tmp_path / "saved" / "2_Normalize")  # it has no file that is needed, and git loses empty folders
    assert load_encoder(tmp_path / "saved")[1].pooling_mode == "cls"
    shutil.rmtree(tmp_path / "saved" / "1_Pooling")
    modules = json.loads((tmp_path / "saved" / "modules.json").read_text())
    for content, match in ((modules, "1_Pooling"), (modules[:1], "without pooling"), (modules[::2], "without pooling")):
        (tmp_path / "saved" / "modules.json").write_text(json.dumps(content))
        for load in LOADERS:
            with pytest.raises(ValueError, match=match):
                load(str(tmp_path / "saved"))
    assert load_encoder(tmp_path / "saved", pooling="mean").encode(["a"]).shape == (1, 16)
    (tmp_path / "saved" / "modules.json").unlink()
    for load in LOADERS:
        with pytest.raises(ValueError, match="incomplete"):
            load(str(tmp_path / "saved"))


def test_a_transformer_with_a_sentence_embedding_needs_no_pooling(tmp_path):
    """CLIP's, for example."""
    build_encoder(tmp_path / "body")
    pooled = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    body = Transformer(str(tmp_path / "body"), modality_config=pooled, module_output_name="sentence_embedding")
    SentenceTransformer(modules=[body], device="cpu").save(str(tmp_path / "saved"))
    for load in LOADERS:
        assert load(str(tmp_path / "saved")).encode(["a"]).shape == (1, 16)


def test_an_id_in_the_cache_of_the_hub(encoder, tmp_path, monkeypatch):
    """Its modules' folders are in the cache, not below a folder of that name."""
    repository = tmp_path / "models--org--tiny"
    encoder.save(str(repository / "snapshots" / "abc"))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for load in LOADERS:
        model = load("org/tiny", local_files_only=True, device="cpu")
        np.testing.assert_array_equal(model.encode(["a"]), encoder.encode(["a"]))
