"""RepAL and whitening on Routers."""

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router

from st_extras.modules import whitening
from tests.modules.cases import TEXTS, attach


def routed(model, query=None, **options):
    """A Router whose routes share the encoder and, by default, the pooling."""
    encoder, pooling = model
    routes = {"query": [encoder, query or pooling], "document": [encoder, pooling]}
    router = Router(routes, **{"default_route": "document", **options})
    return SentenceTransformer(modules=[router, Normalize()], device="cpu", similarity_fn_name="dot")


def test_repal_refuses_a_router_of_encoders(make_encoder):
    with pytest.raises(ValueError, match=r"^model must start with .* got Router"):
        attach(routed(make_encoder()))


def test_routers_that_are_refused(make_encoder):
    first, second = make_encoder(), make_encoder(seed=1)
    separate = Router({"query": list(first), "document": list(second)})
    inside = Router({"query": [*first, Normalize()], "document": [*first, Normalize()]})
    for router, message in ((separate, "one encoder for all routes"), (inside, "not normalize inside")):
        with pytest.raises(ValueError, match=rf"^model must .*{message}|^model must {message}"):
            whitening(SentenceTransformer(modules=[router], device="cpu"), TEXTS)
