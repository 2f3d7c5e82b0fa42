"""The study of smaller embeddings of an adapted encoder."""

import dataclasses

import pytest
import torch

from benchmarks import deployment, domains
from benchmarks.records import records
from benchmarks.studies import Options
from st_extras.evaluation import label_scores
from tests.benchmarks.test_domains import domain, texts  # noqa: F401, a fixture

STUDY = {"name": "deployment", "encoder": "tiny", "texts": 320, "fitted": 210, "tested": 60, "seeds": [0, 1]}


def test_a_record_has_map_at_r_before_and_after(domain, encoder, tmp_path, monkeypatch):  # noqa: F811
    domain = dataclasses.replace(domain, train=sorted(texts(400, 0)[0]))
    fitted = []

    def doubled(options, model, texts, seed, facts):
        """Stand in for ``adapt``: a transform under which no form changes."""
        fitted.append(texts)
        facts["chosen"] = "twice as long"
        model[0].embedding.weight.data *= 2
        return model

    monkeypatch.setattr(deployment, "HELD_OUT", domains.HELD_OUT)
    monkeypatch.setattr(domains, "FITTED", 300)
    monkeypatch.setattr(domains, "encoder", lambda name: encoder)
    monkeypatch.setattr(deployment, "adapted", doubled)
    monkeypatch.setattr(deployment, "DIMENSIONS", 4)
    monkeypatch.setattr(deployment.Domain, "load", lambda name, data: domain)
    deployment.run(STUDY, Options(tmp_path, tmp_path, tmp_path, sets=["banking77"]))

    first, second = records("deployment", root=tmp_path)
    assert [(one["seed"], one["fitted"], one["chosen"]) for one in (first, second)] == [
        (0, 210, "twice as long"),
        (1, 210, "twice as long"),
    ]
    assert [len(set(one)) for one in fitted] == [210, 210]
    assert fitted[0] != fitted[1]
    expected = 100 * label_scores(domains.encoded(encoder, domain.test).float(), domain.labels)["map_at_r"]
    assert first["scores"]["before"]["float32"] == pytest.approx(expected, abs=1e-4)
    assert first["scores"]["after"] == pytest.approx(first["scores"]["before"])
    assert first["threshold"]["after"] == pytest.approx(deployment.THRESHOLD)


def test_forms_keep_what_they_say():
    rows = torch.tensor([[0.6, -0.8, 0.1], [0.6, 0.8, -0.1], [-0.6, 0.8, 0.1]])
    calibration = torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
    cosines = {form: deployment.smaller(form, rows, calibration) for form in deployment.FORMS}
    for form, of in cosines.items():
        assert of.norm(dim=1).allclose(torch.ones(3, dtype=torch.float64)), form
    signs = (cosines["ubinary"] @ cosines["ubinary"].T)[0].tolist()
    assert signs == pytest.approx([1, -1 / 3, -1 / 3])
    expected = rows.double() / rows.double().norm(dim=1, keepdim=True)
    assert cosines["float32"].allclose(expected)
    assert cosines["int8"].allclose(expected, atol=0.02)
