"""The study of smaller embeddings of an adapted encoder."""

import copy
import dataclasses
import random

import pytest
import torch

from benchmarks import deployment, domains
from benchmarks.records import records
from benchmarks.studies import Options
from st_extras.evaluation import label_scores
from st_extras.evaluation.geometry import moved_threshold
from tests.benchmarks.test_domains import domain  # noqa: F401, a fixture

STUDY = {"name": "deployment", "encoder": "tiny", "texts": 280, "fitted": 110, "tested": 40, "seeds": [0, 1]}


def test_a_record_has_map_at_r_and_the_threshold_of_each_form(domain, encoder, tmp_path, monkeypatch):  # noqa: F811
    """Before and after, of each seed's own texts and of two domains; int8 has the ranges of the fitted texts."""
    other = dataclasses.replace(domain, name="clinc150", train=domain.train[:290], labels=domain.labels[::-1])
    parts = {"banking77": dataclasses.replace(domain, name="banking77"), "clinc150": other}
    fitted: dict[tuple[int, int], list[str]] = {}

    def stretched(options, model, texts, seed, facts):
        """Stand in for ``adapt``: another length of each dimension, which changes all forms."""
        fitted[len(fitted), seed] = texts
        facts["chosen"] = f"stretched {seed}"
        model = copy.deepcopy(model)
        model[0].embedding.weight.data *= torch.linspace(1, 3 + seed, model[0].embedding.weight.size(1))
        return model

    monkeypatch.setattr(domains, "encoder", lambda name: encoder)
    monkeypatch.setattr(deployment, "adapted", stretched)
    monkeypatch.setattr(deployment, "DIMENSIONS", 4)
    monkeypatch.setattr(deployment, "HELD_OUT", domains.HELD_OUT)
    monkeypatch.setattr(deployment.Domain, "load", lambda name, data: parts[name])
    options = Options(tmp_path, tmp_path, tmp_path, sets=list(parts))
    deployment.run(STUDY, options)

    found = {(one["domain"], one["seed"]): one for one in records("deployment", root=tmp_path)}
    assert list(found) == [(name, seed) for name in parts for seed in (0, 1)]
    for (place, (name, seed)), texts_of_row in zip(enumerate(found), fitted.values(), strict=True):
        record, part = found[name, seed], parts[name]
        assert (place, seed) in fitted
        places = sorted(random.Random(0).sample(range(len(part.test)), STUDY["tested"]))
        sampled = dataclasses.replace(part, train=random.Random(0).sample(part.train, len(part.train))[:280])
        assert texts_of_row == [sampled.train[i] for i in sampled.order(seed)[100:][:110]]
        assert (record["fitted"], record["chosen"], record["encoder"]) == (110, f"stretched {seed}", "tiny")
        scale = torch.linspace(1, 3 + seed, 16, dtype=torch.float64)
        test, train = (domains.encoded(encoder, rows) for rows in ([part.test[i] for i in places], texts_of_row))
        labels = [part.labels[i] for i in places]
        forms = {}
        for when, by in {"before": torch.ones(16, dtype=torch.float64), "after": scale}.items():
            unit, ranges = (torch.nn.functional.normalize(rows.float().double() * by) for rows in (test, train))
            forms[when] = {form: deployment.smaller(form, unit, ranges) for form in deployment.FORMS}
            expected = {form: 100 * label_scores(rows, labels)["map_at_r"] for form, rows in forms[when].items()}
            assert record["scores"][when] == pytest.approx(expected, abs=1e-3), when
        moved = moved_threshold(0.8, forms["before"]["float32"], forms["after"]["float32"]).after
        later = {
            form: moved_threshold(moved, forms["after"]["float32"], forms["after"][form]).after
            for form in deployment.FORMS[1:]
        }
        assert record["threshold"] == pytest.approx({"before": 0.8, "after": moved} | later, abs=1e-3)
    deployment.run(STUDY, dataclasses.replace(options, seeds=[1, 7]))
    assert [key for *_, key in fitted] == [0, 1, 0, 1, 7, 7], "only what has no record"


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
