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
        *((losses.SimCSELoss, f"projection={text}", True) for text in ("true", "YES", "1")),
        *((losses.AdCSELoss, f"projection={text}", False) for text in ("False", "No", "0")),
        (losses.DCLRLoss, "noise_steps=2", 2),
        (losses.AdCSELoss, "num_adversaries=1e2", 100),
        (losses.DCLRLoss, "noise_norm=unit", "unit"),
        (losses.DCLRLoss, "noise_temperature=null", None),
        (losses.DCLRLoss, "noise_temperature=0.1", 0.1),
        (WhiteningPostProcessor.attach, "epsilon=1", 1.0),
        (losses.SimCSELoss, "augmentations=feature_cutoff+shuffle", ["feature_cutoff", "shuffle"]),
        (losses.SimCSELoss, 'augmentations=["dropout", "shuffle"]', ["dropout", "shuffle"]),
    ],
)
def test_a_value_is_read_by_its_type(target, pair, value):
    read = parse_settings("--set", [pair], target)
    assert read == {pair.partition("=")[0]: value}
    assert type(next(iter(read.values()))) is type(value)


@pytest.mark.parametrize(
    ("target", "pairs", "message"),
    [
        (losses.SimCSELoss, ["projection=off-ish"], "projection must be true or false"),
        (losses.SimCSELoss, ["temperature=1e999"], "temperature must be a finite number"),
        (losses.DCLRLoss, ["noise_steps=\uff11"], "noise_steps must be a whole number"),
        (losses.DCLRLoss, ["noise_steps=2.5"], "noise_steps must be a whole number"),
        (losses.DCLRLoss, ["noise_norm=big"], "noise_norm must be gaussian or unit"),
        (losses.DCLRLoss, ["noise_temperature=x"], "noise_temperature must be a finite number or none"),
        (losses.SimCSELoss, ["augmentations=[1, 2]"], "augmentations must be names"),
        (losses.SimCSELoss, ["threshold"], "must be NAME=VALUE"),
        (losses.SimCSELoss, ["self=1"], "must name a setting of SimCSELoss"),
        (SIFPooling.attach, ["b=1"], r"must name a setting of SIFPooling.attach \(a\)"),
        (losses.SimCSELoss, ["model=x"], "cannot give model: use the argument ENCODER"),
        (losses.SimCSELoss, ["temperature=1", "temperature=2"], "must give each setting once"),
    ],
)
def test_anything_else_is_refused(target, pairs, message):
    with pytest.raises(ValueError, match=f"^--base-set {message}"):
        parse_settings("--base-set", pairs, target)


@pytest.mark.parametrize("target", [*LOSSES, *(kind.attach for kind in METHODS)], ids=lambda one: one.__qualname__)
def test_every_setting_can_be_given_or_refers_to_what_gives_it(target):
    declared = target.__init__.__annotations__ if isinstance(target, type) else target.__annotations__
    for setting in {*declared} - {"return", "keywords", "redundancy", "on_missing_mask"}:  # RepAL's take any text
        with pytest.raises(ValueError, match=rf"^--set ({setting} must be |cannot give {setting}: use )"):
            parse_settings("--set", [f"{setting}=[nonsense"], target)
