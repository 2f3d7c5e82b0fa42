"""Encoding in parts that are kept, the texts that the judge gets, and the folder of an interrupted run."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation import encode as module
from st_extras.adaptation.encode import WorkFolder, encode, encode_texts, seconds_per_text, source_of
from tests.fixtures import SENTENCES
from tests.helpers import draw

encoded = partial(encode_texts, batch_size=2, show_progress_bar=False)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(module, "_PART", 3)


def test_parts_are_put_together_in_order_and_not_encoded_again(still_encoder, tmp_path, monkeypatch):
    expected = still_encoder.encode(SENTENCES, convert_to_tensor=True).double()
    for kept in (None, tmp_path):
        found = encoded(still_encoder, SENTENCES, kept=kept)
        assert found.dtype == torch.float64
        assert torch.allclose(found, expected, atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{first:06d}.safetensors" for first in (0, 3, 6)]
    (tmp_path / "000003.safetensors").unlink()
    again: list[str] = []
    original = SentenceTransformer.encode
    monkeypatch.setattr(
        SentenceTransformer,
        "encode",
        lambda self, texts, **options: again.extend(texts) or original(self, texts, **options),
    )
    assert torch.equal(encoded(still_encoder, SENTENCES, kept=tmp_path), found)
    assert again == SENTENCES[3:6]


def test_the_speed_is_that_of_some_texts(still_encoder):
    assert seconds_per_text(still_encoder, SENTENCES, encoded) > 0
    assert seconds_per_text(still_encoder, [], encoded) == 0


def test_the_first_fifth_is_judged_and_the_others_are_fitted(still_encoder):
    texts = [f"text {number}" for number in range(603)]
    vectors = draw(603, 4)
    vectors[5] = 0  # a table of words gives 0 to unknown words

    def given(model: SentenceTransformer, asked: list[str], **options: Any) -> Tensor:
        assert asked == texts
        return vectors

    found = encode(still_encoder, texts, given)
    left = [*texts[:5], *texts[6:]]
    assert (found.judged, found.fitted, found.reason) == (left[:120], left[120:], "")
    rows = torch.cat([vectors[:5], vectors[6:]])
    assert torch.equal(found.of_judged, rows[:120])
    assert torch.equal(found.of_fitted, rows[120:])
    assert (found.facts["texts"], found.facts["judged"], found.facts["mean_words"]) == (602, 120, 2.0)
    same = encode(still_encoder, texts, lambda *_, **__: torch.ones(603, 4))
    assert same.reason == "Left as it is: the encoder gives all texts about the same embedding."


def test_the_folder_of_a_run_is_resumed_by_the_same_run_and_removed_by_no_other(still_encoder, tmp_path):
    work = WorkFolder(tmp_path / "adapting")
    work.path.mkdir()
    (work.path / "notes.txt").write_text("mine")
    work.remove()
    assert (work.path / "notes.txt").exists()
    work.begin(source_of(still_encoder), SENTENCES, 1, 5)
    assert work.resumed(source_of(still_encoder), SENTENCES, 1) == 5
    for texts, seed, named in ((SENTENCES[1:], 1, "text"), (SENTENCES, 2, "seed"), (SENTENCES[1:], 2, "text and seed")):
        with pytest.raises(ValueError, match=f"got one with another {named}: give the same again"):
            work.resumed(source_of(still_encoder), texts, seed)
    with torch.no_grad():
        next(still_encoder.parameters()).mul_(-3)
    with pytest.raises(ValueError, match="got one with another encoder"):
        work.resumed(source_of(still_encoder), SENTENCES, 1)
    (work.path / "settings.json").write_text("{}")
    with pytest.raises(ValueError, match=r"one whose settings\.json is missing or broken: start again with overwrite"):
        work.resumed(source_of(still_encoder), SENTENCES, 1)
    work.remove()
    assert {path.name for path in work.path.iterdir()} == {"settings.json", "notes.txt"}  # nothing says that it is ours


@pytest.mark.parametrize("spoil", ["cut", "fewer rows", "swapped", "bytes"])
def test_a_part_is_not_trusted_because_it_is_there(still_encoder, tmp_path, spoil):
    whole = encoded(still_encoder, SENTENCES, kept=tmp_path)
    first, second = (tmp_path / f"{number:06d}.safetensors" for number in (0, 3))
    content = first.read_bytes()
    if spoil == "cut":
        first.write_bytes(content[:-20])
    elif spoil == "fewer rows":
        first.write_bytes((tmp_path / "000006.safetensors").read_bytes())
    elif spoil == "swapped":
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    else:
        first.write_bytes(content[:-1] + bytes([content[-1] ^ 64]))
    torch.testing.assert_close(encoded(still_encoder, SENTENCES, kept=tmp_path), whole, rtol=0, atol=1e-6)


def test_another_default_prompt_is_another_encoder(still_encoder, tmp_path):
    still_encoder.prompts = {"a": "the cat ", "b": "the dog "}
    still_encoder.default_prompt_name = "a"
    work = WorkFolder(tmp_path / "adapting")
    work.begin(source_of(still_encoder), SENTENCES, 1, 5)
    assert work.resumed(source_of(still_encoder), SENTENCES, 1) == 5
    still_encoder.default_prompt_name = "b"
    with pytest.raises(ValueError, match="got one with another encoder"):
        work.resumed(source_of(still_encoder), SENTENCES, 1)


def test_a_kill_before_the_settings_are_written_leaves_what_can_be_begun_again(still_encoder, tmp_path):
    work = WorkFolder(tmp_path / "adapting")
    assert not work.is_one()
    for killed in (work.path.mkdir, (work.path / ".settings.json.1.partial").touch):
        killed()
        assert work.is_one()
        with pytest.raises(ValueError, match=r"settings\.json is missing or broken: start again with overwrite"):
            work.resumed(source_of(still_encoder), SENTENCES, 1)
    work.remove()
    assert not work.path.exists()


def test_what_others_put_there_stays_and_the_settings_go_last(still_encoder, tmp_path, monkeypatch):
    """A kill while it is removed leaves a folder that is known as an adaptation's."""
    work = WorkFolder(tmp_path / "adapting")
    work.path.mkdir()
    (work.path / "settings.json").write_text('{"mine": 1}')
    (work.path / "thesis.txt").write_text("mine")
    work.remove()
    assert (work.path / "thesis.txt").exists()
    assert not work.is_one()
    work.begin(source_of(still_encoder), SENTENCES, 1, 5)
    encoded(still_encoder, SENTENCES, kept=work.path)
    removed: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda self, **options: removed.append(self.name) or unlink(self, **options))
    work.remove()
    assert sorted(removed[:-1]) == [f"{number:06d}.safetensors" for number in (0, 3, 6)]
    assert removed[-1] == "settings.json"
    assert [path.name for path in work.path.iterdir()] == ["thesis.txt"]
