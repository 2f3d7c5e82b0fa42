"""Models exported as stock ones: the same embeddings, in a process that cannot import this package."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize

from st_extras.losses import SimCSELoss
from st_extras.modules import RepALPostProcessor, WhiteningPostProcessor
from st_extras.modules.export import to_stock
from tests.helpers import columns, train
from tests.modules.cases import TEXTS, attach
from tests.modules.test_masked_pipeline import routed

pytest.importorskip("jieba")

LOAD_WITHOUT_US = """
import importlib.abc, json, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "st_extras":
            raise ImportError("st_extras is not installed here")
sys.meta_path.insert(0, Block())
try:
    import st_extras
except ImportError:
    pass
else:
    sys.exit("the block does not work")
import numpy
from sentence_transformers import SentenceTransformer
for path in sys.argv[2:]:
    model = SentenceTransformer(path, device="cpu")
    numpy.save(path + "/embeddings.npy", model.encode(json.loads(sys.argv[1])))
"""


@pytest.fixture
def trained(make_encoder, sentences, tmp_path) -> SentenceTransformer:
    model = make_encoder()
    model = SentenceTransformer(modules=[*model, Normalize()], device="cpu")
    train(model, SimCSELoss(model), columns(sentences), tmp_path / "training")
    return model


@pytest.mark.slow
def test_exported_models_load_without_this_package(trained, tmp_path):
    whitened = WhiteningPostProcessor.attach(trained, dimensions=6, corpus=TEXTS)
    centred = RepALPostProcessor.attach(trained, lambda_1=0.0, lambda_2=0.7, keywords="rake", corpus=TEXTS)
    pooled = RepALPostProcessor.attach(
        whitened, lambda_1=0.0, lambda_2=0.7, keywords="rake", corpus=TEXTS, redundancy="pooled"
    )
    models = {"trained": trained, "whitened": whitened, "centred": centred, "both": pooled}
    folders = {name: str(tmp_path / name) for name in models}
    for name, model in models.items():
        to_stock(model).save(folders[name])
        for path in (tmp_path / name).rglob("*.json"):
            assert "st_extras" not in path.read_text(encoding="utf8"), path
        card = (tmp_path / name / "README.md").read_text(encoding="utf8")
        assert "trust_remote_code" not in card
        assert "st-extras" not in card
        assert "SimCSELoss" in card
        assert ("WhiteningPostProcessor**, fitted on 12" in card) == (name in ("whitened", "both"))
        assert ("shen2023repal" in card) == (name in ("centred", "both"))
    command = [sys.executable, "-c", LOAD_WITHOUT_US, json.dumps(TEXTS), *folders.values()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, model in models.items():
        expected = model.encode(TEXTS)
        assert np.abs(np.load(tmp_path / name / "embeddings.npy") - expected).max() < 1e-5, name
        assert np.abs(np.linalg.norm(expected, axis=1) - 1).max() < 1e-5, "Normalize is still the last"


def test_the_order_of_the_modules(trained):
    model = attach(WhiteningPostProcessor.attach(trained, dimensions=6, corpus=TEXTS), lambda_1=0.0)
    assert [type(part) for part in to_stock(model)][2:] == [Dense, Dense, Normalize]
    assert [type(part) for part in to_stock(trained)] == [type(part) for part in trained]


def test_what_cannot_be_exported(still_encoder):
    with pytest.raises(ValueError, match="lambda_1 must be 0 to export"):
        to_stock(attach(still_encoder))
    with pytest.raises(ValueError, match="to_dense needs the statistics of a corpus"):
        to_stock(WhiteningPostProcessor.attach(still_encoder))
    with pytest.raises(ValueError, match="model must be a SentenceTransformer, got 3"):
        to_stock(3)
    still_encoder[1] = type("Pooling", (type(still_encoder[1]),), {"__module__": "st_extras.modules.sif"})(16)
    with pytest.raises(
        ValueError, match=r"^model must hold only steps that are linear .*got Pooling: [^.]*st_extras.load\.$"
    ):
        to_stock(still_encoder)


def test_a_router_is_exported(still_encoder):
    model = attach(routed(still_encoder), lambda_1=0.0)
    stock = to_stock(model)
    assert [type(part).__name__ for part in stock] == ["Router", "Dense", "Normalize"]
    assert np.abs(stock.encode_query(TEXTS) - model.encode_query(TEXTS)).max() < 1e-6


def test_the_card_of_an_export_of_an_export_tells_of_both(still_encoder):
    whitened = to_stock(WhiteningPostProcessor.attach(still_encoder, dimensions=6, corpus=TEXTS))
    both = RepALPostProcessor.attach(whitened, lambda_1=0.0, lambda_2=0.7, keywords="rake", corpus=TEXTS)
    card = to_stock(both).model_card_data
    assert list(card.exported) == ["WhiteningPostProcessor", "RepALPostProcessor"]
    snippet = card.to_dict()["usage_snippet"]
    assert snippet.index("WhiteningPostProcessor") < snippet.index("RepALPostProcessor")
