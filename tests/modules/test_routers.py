"""RepAL and whitening on Routers."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_extras.modules import RepALPostProcessor, load, whitening
from tests.modules.cases import TEXTS, attach


def routed(model, query=None, **options):
    """A Router whose routes share the encoder and, by default, the pooling."""
    encoder, pooling = model
    routes = {"query": [encoder, query or pooling], "document": [encoder, pooling]}
    router = Router(routes, **{"default_route": "document", **options})
    return SentenceTransformer(modules=[router, Normalize()], device="cpu", similarity_fn_name="dot")


@pytest.mark.parametrize("redundancy", ["encoder", "pooled"])
def test_a_router_whose_routes_share_an_encoder(make_encoder, tmp_path, redundancy):
    model = make_encoder()
    router = routed(model, query=Pooling(16, "lasttoken", include_prompt=False))
    attached = attach(router, redundancy=redundancy, keywords="rake")
    assert [type(module).__name__ for module in attached] == ["Router", "RepALPostProcessor", "Normalize"]
    for task, pooling in (("document", model[1]), ("query", Pooling(16, "lasttoken"))):
        alone = SentenceTransformer(modules=[model[0], pooling, Normalize()], device="cpu")
        twin = attach(alone, redundancy=redundancy, keywords="rake", corpus=None)
        twin[2].corpus_mean.copy_(attached[1].corpus_mean)
        twin[2].corpus_size = 1
        assert np.abs(attached.encode(TEXTS, task=task) - twin.encode(TEXTS)).max() < 1e-5
    assert np.abs(attached.encode_query(TEXTS) - attached.encode_document(TEXTS)).max() > 1e-3
    attached.save(str(tmp_path))
    again = load(str(tmp_path), device="cpu")
    assert np.array_equal(again.encode_query(TEXTS), attached.encode_query(TEXTS))
    for model in (attached, again):
        routes = model[0].sub_modules
        assert routes["query"][0] is routes["document"][0]
    for model in (router, RepALPostProcessor.detach(again)):
        query = model[0].sub_modules["query"]
        assert [type(part) for part in query] == [Transformer, Pooling], "the given model stays plain"
        assert not query[1].include_prompt
        assert np.abs(model.encode_query(TEXTS) - router.encode_query(TEXTS)).max() < 1e-6


def test_routers_that_are_refused(make_encoder):
    first, second = make_encoder(), make_encoder(seed=1)
    separate = Router({"query": list(first), "document": list(second)})
    inside = Router({"query": [*first, Normalize()], "document": [*first, Normalize()]})
    for router, message in ((separate, "one encoder for all routes"), (inside, "not normalize inside")):
        with pytest.raises(ValueError, match=rf"^model must .*{message}|^model must {message}"):
            whitening(SentenceTransformer(modules=[router], device="cpu"), TEXTS)
