from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from torch import Tensor
from transformers import AutoConfig, AutoModel, T5EncoderModel

from st_extras.encoders.forward import forward_pass
from st_extras.losses import SimCSELoss
from st_extras.losses.parts.views import (
    TwoViews,
    check_augmentations,
    feature_cutoff,
    shuffled_positions,
    span_cutoff,
    token_cutoff,
)
from tests.helpers import count_rows, generator


def rows_of_content(*lengths: int, width: int = 14) -> Tensor:
    """[CLS] content ... [SEP] padding ...: where rows of these lengths have content."""
    places = torch.arange(width)
    return torch.stack([(places >= 1) & (places <= length) for length in lengths])


def test_token_cutoff_zeroes_the_rounded_share_of_the_content() -> None:
    content = rows_of_content(10, 4, 1, 0)
    cut = token_cutoff(content, 0.3, generator())
    assert cut.sum(dim=1).tolist() == [3, 1, 0, 0]
    assert not (cut & ~content).any()


def test_token_cutoff_hits_every_token_alike() -> None:
    content = rows_of_content(5).expand(20_000, -1)
    hits = token_cutoff(content, 0.4, generator()).float().mean(dim=0)[1:6]
    assert torch.allclose(hits, torch.full((5,), 0.4), atol=0.02)


def test_span_cutoff_is_one_run_anywhere_in_the_content() -> None:
    content = rows_of_content(6).expand(3000, -1)
    cut = span_cutoff(content, 0.34, generator())
    starts = cut.int().argmax(dim=1)
    assert (cut.sum(dim=1) == 2).all()
    assert cut[torch.arange(3000), starts + 1].all()
    assert set(starts.tolist()) == {1, 2, 3, 4, 5}
    assert span_cutoff(rows_of_content(0, 1), 0.2, generator()).sum() == 0


def test_feature_cutoff_zeroes_the_share_of_the_features() -> None:
    cut = feature_cutoff(2000, 10, 0.2, generator(), torch.device("cpu"))
    assert (cut.sum(dim=1) == 2).all()
    assert torch.allclose(cut.float().mean(dim=0), torch.full((10,), 0.2), atol=0.03)


def test_shuffle_permutes_the_positions_of_the_content_alone() -> None:
    content = rows_of_content(6, 2, 1, 0)
    positions = torch.arange(14).expand(4, -1)
    shuffled = shuffled_positions(positions, content, generator(1))
    assert torch.equal(shuffled[~content], positions[~content])
    assert torch.equal(shuffled.sort(dim=1).values, positions)
    assert not torch.equal(shuffled[0], positions[0])
    many = shuffled_positions(positions[:1].expand(3000, -1), rows_of_content(3).expand(3000, -1), generator())
    assert len({tuple(row) for row in many[:, 1:4].tolist()}) == 6


@pytest.mark.parametrize("name", ["token_cutoff", "span_cutoff", "shuffle"])
def test_padding_changes_no_draw(name: str) -> None:
    def cut(content: Tensor) -> Tensor:
        if name == "shuffle":
            return shuffled_positions(torch.arange(content.size(1)).expand(content.shape), content, generator())
        return {"token_cutoff": token_cutoff, "span_cutoff": span_cutoff}[name](content, 0.4, generator())

    narrow, wide = rows_of_content(6, 3, width=8), rows_of_content(6, 3, width=20)
    assert torch.equal(cut(narrow), cut(wide)[:, :8])


def augmented(model: SentenceTransformer, texts: list[str], names: tuple[str, str], seed: int = 0) -> dict[str, Tensor]:
    two_views = TwoViews(model, names, generator=generator(seed))
    return two_views.rows(model, [model.preprocess(texts)])


def test_each_view_gets_its_own_augmentation(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    rows = augmented(still_encoder, sentences, ("feature_cutoff", "shuffle"))
    first, second = rows["inputs_embeds"].chunk(2)
    words = still_encoder.transformers_model.get_input_embeddings()(rows["input_ids"]).chunk(2)[0]
    zeroed = (first == 0).all(dim=1)  # (B, E): in all tokens
    assert (zeroed.sum(dim=1) == round(0.2 * first.size(2))).all()
    assert len(zeroed.unique(dim=0)) > 1  # each sentence loses features of its own
    assert torch.equal(first[~zeroed.unsqueeze(1).expand_as(first)], words[~zeroed.unsqueeze(1).expand_as(first)])
    assert torch.equal(second, words)
    natural, permuted = rows["position_ids"].chunk(2)
    assert torch.equal(natural, torch.arange(natural.size(1)).expand_as(natural))
    assert not torch.equal(natural, permuted)


def test_dropout_and_none_leave_the_features_unchanged(encoder: SentenceTransformer, sentences: list[str]) -> None:
    features = encoder.preprocess(sentences)
    before = {key: value.clone() for key, value in features.items() if isinstance(value, Tensor)}
    assert set(augmented(encoder, sentences, ("dropout", "dropout"))) == set(features)
    TwoViews(encoder, ("shuffle", "shuffle")).augment(encoder, features, ("shuffle",))
    assert all(torch.equal(features[key], value) for key, value in before.items())
    assert "position_ids" not in features


@pytest.mark.parametrize("name", ["token_cutoff", "span_cutoff", "feature_cutoff", "shuffle"])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "mpnet", "albert", "modernbert"])
def test_families_of_encoders(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, family: str, name: str
) -> None:
    model = family_encoder(encoder, family, tmp_path).eval()
    texts = [*sentences[:3], "a"]
    plain = model(model.preprocess(texts))["sentence_embedding"]
    rows = augmented(model, texts, (name, "none"))
    changed, unchanged = forward_pass(model, rows)["sentence_embedding"].chunk(2)
    assert torch.allclose(unchanged, plain, atol=1e-5)  # also where positions count from padding_idx + 1
    assert (changed - plain)[:3].norm(dim=1).min() > 1e-6


def family_encoder(encoder: SentenceTransformer, family: str, folder: Path) -> SentenceTransformer:
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if family == "distilbert":
        size = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    config = AutoConfig.for_model(
        family, vocab_size=len(encoder.tokenizer), pad_token_id=0, max_position_embeddings=64, **size
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder / family)
    encoder.tokenizer.save_pretrained(folder / family)
    transformer = Transformer(str(folder / family), max_seq_length=16)
    return SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu")


def test_encoders_that_cannot_be_augmented_are_refused(encoder: SentenceTransformer, tmp_path: Path) -> None:
    config = AutoConfig.for_model("t5", vocab_size=105, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    T5EncoderModel(config).save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    relative = SentenceTransformer(modules=[Transformer(str(tmp_path)), Pooling(16)], device="cpu")
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)])
    TwoViews(relative, ("token_cutoff", "shuffle"))
    for name in ("shuffle", "token_cutoff"):
        with pytest.raises(ValueError, match=f"'{name}'.*transformer .* StaticEmbedding is not: give two columns"):
            TwoViews(static, (name, name))


def test_two_columns_are_augmented_side_by_side(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    first, second = (still_encoder.preprocess(texts) for texts in (sentences, [s + " ." for s in sentences]))
    plain = SimCSELoss(still_encoder, augmentations=("none", "none"))
    cut = SimCSELoss(still_encoder, augmentations=("none", "feature_cutoff"))
    with count_rows(still_encoder) as passes:
        assert not torch.equal(plain([first, second]), cut([first, second]))
    assert passes == [16, 16]
    prompted = {**second, "prompt_length": 3}  # cannot share a pass with the first column
    with count_rows(still_encoder) as passes:
        assert cut([{**first, "prompt_length": 2}, prompted]).isfinite()
    assert passes == [8, 8]


def test_pair_is_one_pass_and_equals_separate_passes(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    one = still_encoder.preprocess(sentences)
    two = still_encoder.preprocess([f"{sentence} near a red book" for sentence in sentences])
    assert one["input_ids"].shape != two["input_ids"].shape
    with count_rows(still_encoder) as passes:
        anchors, positives = TwoViews(still_encoder).encode(still_encoder, [one, two])
    assert passes == [2 * len(sentences)]
    torch.testing.assert_close(anchors, still_encoder(dict(one))["sentence_embedding"])
    torch.testing.assert_close(positives, still_encoder(dict(two))["sentence_embedding"])


@pytest.mark.parametrize("wrong", [("dropout",), ("dropout", "cuttoff"), ("dropout", "none")])
def test_augmentations_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="augmentations"):
        check_augmentations(wrong)
