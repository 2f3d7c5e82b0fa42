"""``--set NAME=VALUE``: values read by the types that a loss's constructor or a module's attach declares."""

import pytest

from st_extras import losses
from st_extras.cli.set_option import parse_settings
from st_extras.modules import LocalityPreservingPostProcessor, RepALPostProcessor, SIFPooling, WhiteningPostProcessor

METHODS = (LocalityPreservingPostProcessor, RepALPostProcessor, SIFPooling, WhiteningPostProcessor)
LOSSES = [getattr(losses, f"{name}Loss") for name in ("SimCSE", "ConSERT", "DCLR", "AdCSE", "SLTFAI", "PaSeR")]


@pytest.mark.parametrize(
    ("target", "pair", "value"),
    [
        *((losses.SimCSELoss, f"projection={text}", True) for text in ("true", "True", "YES", "yes", "1")),
        *((losses.AdCSELoss, f"projection={text}", False) for text in ("false", "False", "FALSE", "No", "0")),
        (losses.DCLRLoss, "threshold=0.5", 0.5),
        (losses.DCLRLoss, "noise_steps=2", 2),
        (losses.AdCSELoss, "num_adversaries=1e2", 100),
        (losses.DCLRLoss, "noise_norm=unit", "unit"),
        (losses.DCLRLoss, "noise_temperature=null", None),
        (losses.DCLRLoss, "noise_temperature=0.1", 0.1),
        (WhiteningPostProcessor.attach, "epsilon=1", 1.0),
        (LocalityPreservingPostProcessor.attach, "tfidf=no", False),
        (losses.SimCSELoss, "augmentations=feature_cutoff+shuffle", ["feature_cutoff", "shuffle"]),
        (losses.SimCSELoss, 'augmentations=["dropout", "shuffle"]', ["dropout", "shuffle"]),
    ],
)
def test_a_value_is_read_by_its_type(target, pair, value):
    read = parse_settings("--set", [pair], target)
    assert read == {pair.partition("=")[0]: value}
    assert type(next(iter(read.values()))) is type(value)


@pytest.mark.parametrize(
    ("target", "pair", "message"),
    [
        (losses.SimCSELoss, "projection=off-ish", "--set projection must be true or false, got 'off-ish'."),
        (losses.SimCSELoss, "temperature=nan", "--set temperature must be a finite number, got 'nan'."),
        (losses.SimCSELoss, "temperature=1e999", "--set temperature must be a finite number, got '1e999'."),
        (losses.DCLRLoss, "noise_steps=\uff11", "--set noise_steps must be a whole number, got '\uff11'."),
        (losses.DCLRLoss, "noise_steps=2.5", "--set noise_steps must be a whole number, got '2.5'."),
        (losses.DCLRLoss, "noise_norm=big", "--set noise_norm must be gaussian or unit, got 'big'."),
        (losses.DCLRLoss, "noise_temperature=x", "--set noise_temperature must be a finite number or none, got 'x'."),
        (losses.SimCSELoss, "augmentations=[1, 2]", "must be names joined by + or a JSON list of names, got '[1, 2]'."),
        (losses.SimCSELoss, "threshold", "--set must be NAME=VALUE, got 'threshold'."),
        (losses.SimCSELoss, "threshold=0.5", "--set must name a setting of SimCSELoss (temperature, augmentations, "),
        (losses.SimCSELoss, "self=1", "--set must name a setting of SimCSELoss"),
        (SIFPooling.attach, "b=1", "--set must name a setting of SIFPooling.attach (a), got 'b'."),
        (losses.SimCSELoss, "model=x", "--set cannot give model: use the argument ENCODER instead."),
        (losses.PaSeRLoss, "base_loss=null", "--set cannot give base_loss: use PaSeRLoss in Python instead."),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(target, pair, message):
    with pytest.raises(ValueError) as error:
        parse_settings("--set", [pair], target)
    assert message in str(error.value)
    assert len(str(error.value)) < 500


def test_the_option_and_a_name_given_twice_are_named():
    with pytest.raises(ValueError, match=r"^--base-set cutoff_rate must be a finite number, got 'x'\.$"):
        parse_settings("--base-set", ["cutoff_rate=x"], losses.ConSERTLoss)
    with pytest.raises(ValueError, match=r"^--set must give each setting once, got 'temperature' twice\.$"):
        parse_settings("--set", ["temperature=1", "temperature=2"], losses.SimCSELoss)


@pytest.mark.parametrize(
    "target", [*LOSSES, *(kind.attach for kind in METHODS)], ids=lambda target: target.__qualname__
)
def test_every_setting_can_be_given_or_says_where(target):
    declared = target.__init__.__annotations__ if isinstance(target, type) else target.__annotations__
    for setting in {*declared} - {"return", "keywords", "redundancy", "on_missing_mask"}:  # RepAL's take any text
        with pytest.raises(ValueError, match=rf"^--set ({setting} must be |cannot give {setting}: use )"):
            parse_settings("--set", [f"{setting}=[nonsense"], target)
