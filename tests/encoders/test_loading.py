"""Encoders loaded, cut and pooled: against hidden states by hand, and loadable without this package."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData
from sentence_transformers.sentence_transformer.modules import BoW, Normalize
from torch import Tensor
from transformers import AutoModel

from st_extras import modules
from st_extras.encoders.adapters import lora_adapters
from st_extras.encoders.dropout import set_dropout
from st_extras.encoders.loading import check_length, keep_layers, load_encoder, with_modules, with_pooling
from st_extras.encoders.prompt_template import set_prompt_template
from st_extras.encoders.structure import token_embedding_dimension
from st_extras.losses import SimCSELoss
from st_extras.modules import SIFPooling, whitening
from st_extras.training import train_encoder
from tests.architectures.encoders import build
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES, build_encoder
from tests.helpers import Recorder, some_fast

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


@pytest.mark.parametrize("pooling", some_fast(POOLINGS, ("cls", "mean", "first-last")))
def test_pooling_by_hand_and_after_saving(folder, tmp_path, pooling):
    model = load_encoder(folder, pooling=pooling, layers=3, device="cpu")
    states, mask = hidden_states(folder, model)
    assert 0 in mask
    expected = pooled_by_hand(pooling, states[:4], mask)
    found = model.encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), found)
    assert "st_extras" not in (tmp_path / "saved" / "modules.json").read_text()
    # Every pooling differs from every other one, or the comparison above would say nothing.
    others = [pooled_by_hand(other, states[:4], mask) for other in POOLINGS]
    assert sum(np.allclose(found, other, atol=1e-3) for other in others) == 1
    trainable = {name.split(".")[0] for name, value in model.named_parameters() if value.requires_grad}
    assert trainable == {"0"}, "the averages are of fixed layers"


def test_a_models_own_modules_stay_unless_a_pooling_is_given(folder, tmp_path):
    model = load_encoder(folder, pooling="cls", dtype="bfloat16", device="cpu", model_kwargs={"torch_dtype": "float32"})
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    model.append(Normalize())
    model.save(str(tmp_path / "own"))
    own = load_encoder(tmp_path / "own", device="cpu")
    assert [type(module).__name__ for module in own] == ["Transformer", "Pooling", "Normalize"]
    assert own[1].pooling_mode == "cls"
    card = SentenceTransformerModelCardData(license="mit")
    replaced = load_encoder(tmp_path / "own", pooling="mean", device="cpu", truncate_dim=8, model_card_data=card)
    assert [type(module).__name__ for module in replaced] == ["Transformer", "Pooling"]
    assert (replaced.truncate_dim, replaced.model_card_data.license) == (8, "mit")


def test_a_rebuilt_model_keeps_its_settings(encoder):
    settings = {
        "prompts": {"query": "q: ", "document": "d: ", "other": "o: "}, "default_prompt_name": "other",
        "truncate_dim": 8, "similarity_fn_name": "dot",
    }  # fmt: skip
    for name, value in settings.items():
        setattr(encoder, name, value)
    rebuilt = with_modules(encoder, list(encoder))
    assert {name: getattr(rebuilt, name) for name in settings} == settings


def test_arguments_of_encode_reach_the_modules_that_stay_and_what_replaces_one(encoder):
    encoder.module_kwargs = {"0": ["task"], "1": ["other"]}
    first, pooling = encoder
    for kept, expected in (
        ([first, pooling], {"0": ["task"], "1": ["other"]}),
        ([first, Normalize(), pooling], {"0": ["task"], "1": [], "2": ["other"]}),
        ([first, Normalize()], {"0": ["task"], "1": ["other"]}),
        ([pooling], {"0": ["other"]}),
    ):
        assert with_modules(encoder, kept).module_kwargs == expected


def test_settings_of_each_layer_are_cut_with_them(folder):
    model = load_encoder(folder, device="cpu")
    config = model[0].auto_model.config
    config.attention_window, config.layer_types, config.others, config.layer_sizes = (
        [*"abcd"],
        ("a",) * 4,
        [*"abcd"],
        [1],
    )
    keep_layers(model, 3)
    assert (config.attention_window, config.layer_types, config.num_hidden_layers) == ([*"abc"], ("a",) * 3, 3)
    assert (config.others, config.layer_sizes) == ([*"abcd"], [1])


def test_keep_layers_keeps_the_first(folder):
    model = load_encoder(folder, device="cpu")
    first = [id(layer) for layer in model[0].auto_model.encoder.layer][:2]
    keep_layers(model, 4)
    assert len(model[0].auto_model.encoder.layer) == 4
    keep_layers(model, 2)
    assert [id(layer) for layer in model[0].auto_model.encoder.layer] == first
    with pytest.raises(ValueError, match=r"^layers must"):
        keep_layers(model, 3)


def test_a_pooling_over_layers_cannot_lose_them(folder, tmp_path):
    with pytest.raises(ValueError, match=r"^pooling must"):
        load_encoder(folder, layers=1, pooling="last-two", device="cpu")
    load_encoder(folder, pooling="first-last", device="cpu").save(str(tmp_path))
    with pytest.raises(ValueError, match=r"^pooling must"):
        load_encoder(tmp_path, layers=2, device="cpu")
    assert load_encoder(tmp_path, layers=2, pooling="first-last", device="cpu").encode(TEXTS).shape == (4, 16)


def test_the_longest_text_of_roberta(tmp_path):
    build("RoBERTa", tmp_path)
    config = AutoModel.from_pretrained(tmp_path).config
    longest = config.max_position_embeddings - config.pad_token_id - 1
    with pytest.raises(ValueError, match=r"^max_seq_length must"):
        load_encoder(tmp_path, max_seq_length=longest + 1, device="cpu")
    tokenizer = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"model_max_length": 10**30}))
    model = load_encoder(tmp_path, device="cpu")
    assert model.max_seq_length == longest, "Sentence Transformers takes all rows of the table of positions"
    assert np.isfinite(model.encode(["a cat " * longest])).all()
    model.max_seq_length = longest + 1
    uses = (
        lambda model: train_encoder(model, SimCSELoss, SENTENCES, tmp_path / "out"),
        lambda model: whitening(model, ["a cat", "a dog"]),
    )
    for use in uses:
        with pytest.raises(ValueError, match=r"^max_seq_length must"):
            use(model)


def test_each_route_has_a_length_of_its_own(encoder, make_encoder):
    """A Router's max_seq_length is the largest of its routes', infinite for a table of words."""
    words = build("StaticEmbedding", Path())
    model = SentenceTransformer(modules=[Router({"query": [*words], "document": [*encoder]})], device="cpu")
    check_length(model)
    several = SentenceTransformer(modules=[Router({"query": [*make_encoder()], "document": [*encoder]})], device="cpu")
    check_length(several)
    encoder[0].max_seq_length = 65
    for one in (model, several):
        with pytest.raises(ValueError, match=r"^max_seq_length must be <= 64 for this encoder, got 65\.$"):
            check_length(one)


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


def test_a_tokenizer_without_padding_token_pads_with_the_end_of_a_text(tmp_path):
    """Sentence Transformers loads such a decoder and fails at the first batch."""
    build_decoder(tmp_path)
    model = load_encoder(tmp_path, device="cpu", processor_kwargs={"padding_side": "left"})
    assert (model.tokenizer.pad_token, model.tokenizer.padding_side) == ("</s>", "right")
    assert model[1].pooling_mode == "lasttoken"  # as Sentence Transformers decides for a causal language model
    np.testing.assert_allclose(model.encode(TEXTS), model.encode(TEXTS, batch_size=1), atol=1e-5)


@pytest.mark.parametrize("name", some_fast(["ModernBERT", "Longformer", "Gemma 3", "T5 encoder"], ["ModernBERT"]))
def test_a_cut_encoder_loads_as_it_was_saved_or_is_refused(name, tmp_path):
    build(name, tmp_path / "whole")
    if name == "ModernBERT" and Version(transformers.__version__) < Version("5.17"):
        pytest.skip("this transformers saves no ModernBERT whose layers are all of one kind")
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

LOADERS = (load_encoder, modules.load)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pooling", "median"),
        ("dtype", "float8"),
        ("dropout", 1.0),
        ("layers", 5),
        ("max_seq_length", 65),
    ],
)
def test_options_are_checked(folder, option, value):
    with pytest.raises(ValueError, match=f"^{option} must be .* got {value!r}"):
        load_encoder(folder, device="cpu", **{option: value})


@pytest.mark.parametrize(
    "change",
    [
        lambda model: with_pooling(model, "mean"),
        lambda model: keep_layers(model, 1),
        lambda model: set_dropout(model, 0.1),
        lambda model: set_prompt_template(model, "{} is"),
        lambda model: lora_adapters(model, 2).__enter__(),
        token_embedding_dimension,
    ],
)
def test_an_encoder_without_a_transformer_is_refused(change):
    words = SentenceTransformer(modules=[BoW(["a", "b"])], device="cpu")
    with pytest.raises(ValueError, match=r"(starts? with a transformer|token embeddings).* BoW"):
        change(words)


@pytest.mark.parametrize("config", [None, "{", '{"model_type": "bert"}'])
def test_a_folder_without_an_encoder_is_one_line(tmp_path, config):
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match="could not be loaded as an encoder") as caught:
        load_encoder(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)
    for path, named in ((tmp_path / "a.bin", "there is no such folder"), (["bert"], "^path must be")):
        with pytest.raises(ValueError, match=named):
            load_encoder(path, device="cpu")


def test_code_of_others_is_run_where_that_is_allowed(encoder, tmp_path):
    SIFPooling.attach(encoder, corpus=SENTENCES).save(str(tmp_path))
    with pytest.raises(ValueError, match=r"load_encoder\(path, trust_remote_code=True\) runs it in Python\.$"):
        load_encoder(tmp_path, device="cpu")
    assert load_encoder(tmp_path, device="cpu", trust_remote_code=True).encode(TEXTS).shape == (4, 16)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json", "tokenizer.json"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    """The loader says "EOFError" of an empty pytorch_model.bin, and nothing else."""
    build_encoder(tmp_path)
    if name == "pytorch_model.bin":
        next(tmp_path.rglob("model.safetensors")).unlink()
    file = next(tmp_path.rglob(name), tmp_path / name)
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=f"{name} cannot be read: .*Error: it is empty.$"):
        load_encoder(tmp_path, device="cpu")


@pytest.mark.parametrize("kind", [CrossEncoder, SparseEncoder])
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
    for content, match in (
        (modules, "could not be loaded .*Pooling"),
        (modules[:1], "without pooling"),
        (modules[::2], "without pooling"),
    ):
        (tmp_path / "saved" / "modules.json").write_text(json.dumps(content))
        for load in LOADERS:
            with pytest.raises(ValueError, match=match):
                load(str(tmp_path / "saved"))
    assert load_encoder(tmp_path / "saved", pooling="mean").encode(["a"]).shape == (1, 16)
    (tmp_path / "saved" / "modules.json").unlink()
    for load in LOADERS:
        with pytest.raises(ValueError, match="incomplete"):
            load(str(tmp_path / "saved"))


@pytest.mark.parametrize("load", LOADERS)
def test_options_reach_the_library(tmp_path, load):
    build_encoder(tmp_path).save(str(tmp_path / "saved"))
    model = load(str(tmp_path / "saved"), device="meta", truncate_dim=8, prompts={"query": "q: "})
    assert (model.device.type, model.truncate_dim, model.prompts["query"]) == ("meta", 8, "q: ")


def test_where_the_files_are_is_asked_with_the_place(tmp_path, monkeypatch):
    recorder = Recorder(monkeypatch)
    recorder.on("st_extras.encoders.loading:find_encoder", "st_extras.encoders.loading:load_file_path")
    build_encoder(tmp_path).save(str(tmp_path / "saved"))
    place = {"cache_folder": str(tmp_path), "local_files_only": True, "revision": "main"}
    load_encoder(str(tmp_path / "saved"), truncate_dim=8, **place)
    assert recorder.one("find_encoder")["revision"] == "main"
    assert [{name: call[name] for name in place} for call in recorder.calls["load_file_path"]] == [place, place]


@pytest.mark.parametrize("load", LOADERS)
def test_weights_that_no_file_has_are_named_but_for_an_unused_pooler(tmp_path, caplog, load):
    build_encoder(tmp_path / "body", layers=3).save(str(tmp_path / "saved"))
    file = tmp_path / "saved" / "model.safetensors"
    messages = []
    for lacking in ("pooler", "layer.2.output"):
        weights = {name: value for name, value in load_file(file).items() if lacking not in name}
        save_file(weights, file, metadata={"format": "pt"})
        caplog.clear()
        load(str(tmp_path / "saved"))
        messages.append([record.getMessage() for record in caplog.records if record.name.startswith("st_extras")])
    none, (message,) = messages
    assert none == []
    assert "4 weights of the encoder, such as 'encoder.layer.2.output" in message
    save_file({f"body.{name}": value for name, value in weights.items()}, file, metadata={"format": "pt"})
    caplog.clear()
    load(str(tmp_path / "saved"))
    assert "weights of the encoder, such as 'embeddings." in caplog.text, "no name fits: all of them are random"


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
