"""RepAL and whitening on an encoder of the user's own class, on Routers, and on what is no sentence encoder."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

from st_extras.modules import PartialMaskTransformer, RepALPostProcessor, WhiteningPostProcessor, load
from tests.modules.cases import LAMBDA_1, TEXTS, attach, reference

pytest.importorskip("jieba")


class LoudTransformer(Transformer):
    """A user's subclass: it lowers the text, doubles what the encoder returns, and has a setting of its own."""

    config_keys = [*Transformer.config_keys, "volume"]  # noqa: RUF012

    def __init__(self, model_name_or_path, volume=2.0, **kwargs):
        super().__init__(model_name_or_path, **kwargs)
        self.volume = volume

    def preprocess(self, inputs, prompt=None, **kwargs):
        inputs = [text.replace("kitten", "cat") if isinstance(text, str) else text for text in inputs]
        return super().preprocess(inputs, prompt=prompt, **kwargs)

    def forward(self, features, **kwargs):
        features = super().forward(features, **kwargs)
        features["token_embeddings"] = self.volume * features["token_embeddings"]
        return features


@pytest.fixture
def loud(make_encoder, tmp_path):
    make_encoder(dropout=0.0).save(str(tmp_path / "plain"))
    encoder = LoudTransformer(str(tmp_path / "plain"), volume=3.0, max_seq_length=16)
    return SentenceTransformer(modules=[encoder, Pooling(16)], device="cpu")


def routed(model, query=None, **options):
    """A Router whose routes share the encoder and, where not told otherwise, the pooling."""
    encoder, pooling = model
    routes = {"query": [encoder, query or pooling], "document": [encoder, pooling]}
    router = Router(routes, **{"default_route": "document", **options})
    return SentenceTransformer(modules=[router, Normalize()], device="cpu", similarity_fn_name="dot")


# --- a subclass of Transformer ---


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_what_a_subclass_does_is_kept(loud, redundancy):
    texts = ["a kitten sat", *TEXTS[:3]]
    attached = attach(loud, redundancy=redundancy, lambda_2=0.0, corpus=None)
    assert isinstance(attached[0], LoudTransformer)
    assert isinstance(attached[0], PartialMaskTransformer)
    embeddings, redundant = attached[2].parts(texts)
    assert np.abs(embeddings.numpy() - loud.encode(texts)).max() < 1e-5
    if redundancy == "encoder":
        expected = reference(loud, texts, lambda_2=0.0, corpus=texts)
        assert np.abs(attached.encode(texts) - expected).max() < 1e-5
    quiet = copy.deepcopy(loud)
    quiet[0].volume = 1.0
    half = attach(quiet, redundancy=redundancy, lambda_2=0.0, corpus=None)[2].parts(texts)[1]
    assert (redundant - 3 * half).abs().max() < 1e-5


def test_a_subclass_is_saved_and_loaded(loud, tmp_path):
    attached = attach(loud, keywords="rake")
    expected = attached.encode(TEXTS)
    attached.save(str(tmp_path / "saved"))
    listed = json.loads((tmp_path / "saved" / "modules.json").read_text())
    assert listed[0]["type"] == "st_extras.modules.partial_mask.PartialMaskTransformer"
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert type(again[0]) is type(attached[0])
    assert again[0].volume == 3.0
    assert np.array_equal(again.encode(TEXTS), expected)
    assert np.array_equal(load(str(tmp_path / "saved"), trust_remote_code=True, device="cpu").encode(TEXTS), expected)
    with pytest.raises(ValueError, match=r"(?s)LoudTransformer.*trust_remote_code=True"):
        load(str(tmp_path / "saved"), device="cpu")
    plain = RepALPostProcessor.detach(again)
    assert type(plain[0]) is LoudTransformer
    assert np.array_equal(plain.encode(TEXTS), loud.encode(TEXTS))


def test_a_subclass_is_copied_and_pickled(loud):
    attached = attach(loud, keywords="rake")
    expected = attached.encode(TEXTS)
    for twin in (copy.deepcopy(attached), pickle.loads(pickle.dumps(attached))):
        assert type(twin[0]) is type(attached[0])
        assert np.array_equal(twin.encode(TEXTS), expected)


def test_a_subclass_that_cannot_be_imported_is_not_saved(still_encoder, tmp_path):
    class Local(Transformer):
        pass

    still_encoder.save(str(tmp_path / "plain"))
    model = SentenceTransformer(modules=[Local(str(tmp_path / "plain")), Pooling(16)], device="cpu")
    attached = attach(model, keywords="rake")
    assert np.isfinite(attached.encode(TEXTS)).all()
    with pytest.raises(ValueError, match=r"class must be one that can be imported.*Local.*detach\(model\)\."):
        attached.save(str(tmp_path / "saved"))


@pytest.mark.parametrize(
    "name", ["sentence_transformers.base.modules.Dense", "sentence_transformers.none.Such", "", 3, "os.path"]
)
def test_a_saved_class_that_is_no_encoder_is_named(loud, tmp_path, name):
    attach(loud, keywords="rake").save(str(tmp_path / "saved"))
    path = tmp_path / "saved" / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"encoder_class": name}))
    with pytest.raises(ValueError, match="encoder_class"):
        PartialMaskTransformer.load(str(tmp_path / "saved"), trust_remote_code=True)


# --- unpad_inputs ---


@pytest.mark.parametrize("given", [None, False, True])
def test_detach_gives_the_setting_of_unpad_inputs_back(still_encoder, tmp_path, given):
    still_encoder[0].unpad_inputs = given
    attached = attach(still_encoder, keywords="rake")
    assert attached[0].unpad_inputs is False
    assert RepALPostProcessor.detach(attached)[0].unpad_inputs is given
    attached.save(str(tmp_path / "saved"))
    again = load(str(tmp_path / "saved"), device="cpu")
    assert again[0].unpad_inputs is False
    assert RepALPostProcessor.detach(again)[0].unpad_inputs is given
    assert still_encoder[0].unpad_inputs is given


# --- a Router ---


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_a_router_whose_routes_share_an_encoder(make_encoder, tmp_path, redundancy):
    model = make_encoder()
    router = routed(model, query=Pooling(16, "lasttoken"))
    attached = attach(router, redundancy=redundancy, keywords="rake")
    assert [type(module).__name__ for module in attached] == ["Router", "RepALPostProcessor", "Normalize"]
    routes = attached[0].sub_modules
    assert routes["query"][0] is routes["document"][0]
    assert isinstance(routes["query"][0], PartialMaskTransformer)
    assert attached[1].corpus_size == len(TEXTS)
    for task, pooling in (("document", model[1]), ("query", Pooling(16, "lasttoken"))):
        alone = SentenceTransformer(modules=[model[0], pooling, Normalize()], device="cpu")
        twin = attach(alone, redundancy=redundancy, keywords="rake", corpus=None)
        twin[2].corpus_mean.copy_(attached[1].corpus_mean)
        twin[2].corpus_size = 1
        assert np.abs(attached.encode(TEXTS, task=task) - twin.encode(TEXTS)).max() < 1e-5
    assert np.abs(attached.encode_query(TEXTS) - attached.encode_document(TEXTS)).max() > 1e-3
    attached.save(str(tmp_path / "saved"))
    again = load(str(tmp_path / "saved"), device="cpu")
    assert np.array_equal(again.encode_query(TEXTS), attached.encode_query(TEXTS))
    assert again[0].sub_modules["query"][0] is again[0].sub_modules["document"][0]
    plain = RepALPostProcessor.detach(again)
    assert type(plain[0].sub_modules["query"][0]) is Transformer
    assert type(plain[0].sub_modules["query"][1]) is Pooling
    assert np.abs(plain.encode_query(TEXTS) - router.encode_query(TEXTS)).max() < 1e-6
    assert type(router[0].sub_modules["query"][0]) is Transformer, "the given model stays plain"


def test_tune_and_parts_behind_a_router(still_encoder):
    attached = attach(routed(still_encoder), lambda_2=0.0, corpus=None)
    embeddings, redundant = attached[1].parts(TEXTS)
    assert np.abs(embeddings.numpy() - still_encoder.encode(TEXTS)).max() < 1e-5
    refined = torch.nn.functional.normalize(embeddings - LAMBDA_1 * redundant)
    assert np.abs(attached.encode(TEXTS) - refined.numpy()).max() < 1e-5
    assert attached[1].tune([("a cat", "a dog"), ("a", "the mat")], [0, 1]).settings > 2


def test_whitening_behind_a_router(still_encoder):
    attached = WhiteningPostProcessor.attach(routed(still_encoder), dimensions=4, corpus=TEXTS)
    alone = WhiteningPostProcessor.attach(
        SentenceTransformer(modules=[*still_encoder, Normalize()], device="cpu"), dimensions=4, corpus=TEXTS
    )
    assert np.abs(attached.encode_query(TEXTS) - alone.encode(TEXTS)).max() < 1e-5
    both = attach(attached)
    assert [type(module).__name__ for module in both][1:] == [
        "WhiteningPostProcessor", "RepALPostProcessor", "Normalize",
    ]  # fmt: skip
    assert np.isfinite(both.encode_query(TEXTS)).all()


@pytest.mark.parametrize("kind", [RepALPostProcessor, WhiteningPostProcessor])
def test_routers_that_are_refused(make_encoder, kind):
    options = {"lambda_1": 0.5, "lambda_2": 0.0} if kind is RepALPostProcessor else {}
    first, second = make_encoder(), make_encoder(seed=1)
    separate = Router({"query": list(first), "document": list(second)})
    with pytest.raises(ValueError, match=r"^model must have one encoder .* query, document: [^.]*\.$"):
        kind.attach(SentenceTransformer(modules=[separate], device="cpu"), **options)
    inside = Router({"query": [*first, Normalize()], "document": [*first, Normalize()]})
    with pytest.raises(ValueError, match=r"^model must not normalize inside .*modules=\[router, Normalize\(\)\]\)\.$"):
        kind.attach(SentenceTransformer(modules=[inside], device="cpu"), **options)


def test_a_router_over_static_embeddings(still_encoder):
    static = StaticEmbedding(still_encoder.tokenizer.backend_tokenizer, embedding_dim=4)
    model = SentenceTransformer(modules=[Router({"query": [static], "document": [static]})], device="cpu")
    with pytest.raises(ValueError, match="Transformer module, got StaticEmbedding"):
        attach(model)
    assert WhiteningPostProcessor.attach(model, corpus=TEXTS).encode(TEXTS).shape == (len(TEXTS), 4)


# --- other kinds of model ---


@pytest.mark.parametrize("kind", [SparseEncoder, MultiVectorEncoder, CrossEncoder])
def test_models_of_another_kind_are_refused_in_one_line(still_encoder, kind):
    other = kind.__new__(kind)
    torch.nn.Module.__init__(other)
    for call in (lambda: attach(other), lambda: WhiteningPostProcessor.attach(other, corpus=TEXTS)):
        with pytest.raises(ValueError, match=r"^model must be a SentenceTransformer, got [^\n]*\.$") as caught:
            call()
        assert kind.__name__ in str(caught.value)
