"""Input that changes nothing, changes nothing: on tiny encoders of many architectures, padded on either side."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import AutoConfig, AutoModel

from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.positions import SCHEMES, InputWays, find_input_ways, position_ids
from st_extras.encoders.structure import content_mask
from st_extras.losses.parts.views import TwoViews
from tests.helpers import generator

_SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_DECODER = {**_SIZE, "num_key_value_heads": 2, "head_dim": 8}
_SEQ2SEQ = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip
BY_PLACE, BY_PADDING = InputWays("place", True, True), InputWays("padding", True, True)
TOKENS_MOVE = InputWays(None, False, True)
IDS_ALONE = InputWays()
ARCHITECTURES: dict[str, tuple[dict[str, Any], InputWays]] = {
    "bert": (_SIZE, BY_PLACE),
    "electra": ({**_SIZE, "embedding_size": 8}, BY_PLACE),
    "albert": ({**_SIZE, "embedding_size": 8}, BY_PLACE),
    "distilbert": ({"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}, BY_PLACE),
    "ernie": (_SIZE, BY_PLACE),
    "roberta": (_SIZE, BY_PADDING),
    "xlm-roberta": (_SIZE, BY_PADDING),
    "camembert": (_SIZE, BY_PADDING),
    "roformer": ({**_SIZE, "embedding_size": 16}, TOKENS_MOVE),
    "mpnet": (_SIZE, TOKENS_MOVE),
    "modernbert": (_SIZE, BY_PLACE),
    "nomic_bert": (_SIZE, BY_PLACE),
    "eurobert": (_DECODER, BY_PLACE),
    "deberta": ({**_SIZE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, TOKENS_MOVE),
    "deberta-v2": ({**_SIZE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, TOKENS_MOVE),
    "opt": ({**_SIZE, "ffn_dim": 32, "word_embed_proj_dim": 16}, TOKENS_MOVE),
    "gpt2": ({"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}, TOKENS_MOVE),
    "gpt_neox": (_SIZE, TOKENS_MOVE),
    "gpt_neo": ({"hidden_size": 16, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "num_heads": 2},
                TOKENS_MOVE),
    "llama": (_DECODER, TOKENS_MOVE),
    "qwen2": (_DECODER, TOKENS_MOVE),
    "qwen3": (_DECODER, TOKENS_MOVE),
    "mistral": (_DECODER, TOKENS_MOVE),
    "gemma": (_DECODER, TOKENS_MOVE),
    "gemma2": (_DECODER, TOKENS_MOVE),
    "gemma3_text": (_DECODER, TOKENS_MOVE),
    "phi3": (_DECODER, TOKENS_MOVE),
    "bloom": ({"hidden_size": 16, "n_layer": 2, "n_head": 2}, TOKENS_MOVE),
    "t5": ({"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}, TOKENS_MOVE),
    "mt5": ({"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}, TOKENS_MOVE),
    "bart": (_SEQ2SEQ, IDS_ALONE),
    "xlnet": ({"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32}, TOKENS_MOVE),
    "funnel": ({"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "block_sizes": [1, 1],
               "block_repeats": [1, 1], "num_decoder_layers": 1, "architectures": ["FunnelModel"]},
               TOKENS_MOVE),
    "clip_text_model": (_SIZE, IDS_ALONE),
    "mobilebert": ({**_SIZE, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}, TOKENS_MOVE),
    "convbert": ({**_SIZE, "embedding_size": 16, "head_ratio": 1}, TOKENS_MOVE),
    "squeezebert": ({**_SIZE, "embedding_size": 16, "q_groups": 1, "k_groups": 1, "v_groups": 1,
                     "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1}, BY_PLACE),
    "big_bird": ({**_SIZE, "attention_type": "original_full"}, BY_PLACE),
    "longformer": ({**_SIZE, "attention_window": 4}, InputWays("padding", False, True)),
    "gte": (_SIZE, BY_PLACE),
}  # fmt: skip


def architecture(encoder: SentenceTransformer, name: str, folder: Path, side: str = "right") -> SentenceTransformer:
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    sizes = {"vocab_size": len(encoder.tokenizer), **ARCHITECTURES[name][0]}
    if name not in ("xlnet", "funnel"):  # whose configurations have no such setting
        sizes["max_position_embeddings"] = 64
    config = AutoConfig.for_model(name, **ids, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModel.from_config(config)
        for parameter in model.parameters():  # the usual 0.02 hides what a position does
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder / name)
    encoder.tokenizer.save_pretrained(folder / name)
    transformer = Transformer(str(folder / name), max_seq_length=16)
    transformer.processor = copy.deepcopy(encoder.tokenizer)  # not the one that transformers makes for this name
    transformer.processor.padding_side = side
    return SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").eval()


def _in_place(content: Tensor, source: torch.Generator) -> Tensor:
    """The ranks of an order that leaves every token where it is."""
    return (~content).long().argsort(dim=1, stable=True).argsort(dim=1)


def summaries(model: SentenceTransformer, rows: dict[str, Any]) -> Tensor:
    """One vector a row in evaluation mode: the sum of the content's tokens, in any order, or the embedding."""
    with torch.no_grad(), without_dropout(model):
        output = forward_pass(model, rows)
    tokens = output.get("token_embeddings")
    if tokens is None or tokens.shape[:2] != rows["input_ids"].shape:
        return output["sentence_embedding"]
    return (tokens * content_mask(model, rows).unsqueeze(2)).sum(dim=1)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_change_of_nothing_changes_no_row(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, name: str, side: str, monkeypatch: Any
) -> None:
    model = architecture(encoder, name, tmp_path, side)
    ways = ARCHITECTURES[name][1]
    assert find_input_ways(model) == ways
    features = model.preprocess([*sentences, "a"])
    plain = summaries(model, features).repeat(2, 1)

    two_views = TwoViews(model, ("shuffle", "none"), generator=generator(3))
    with monkeypatch.context() as context:
        context.setattr("st_extras.losses.parts.views._ranks", _in_place)
        rows = two_views.rows(model, [features])
        assert ("position_ids" in rows) == ways.permutes
    torch.testing.assert_close(summaries(model, rows), plain, rtol=1e-3, atol=1e-4)

    rows = two_views.rows(model, [features])
    shuffled, unchanged = summaries(model, rows).chunk(2)
    torch.testing.assert_close(unchanged, plain[: len(unchanged)], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(shuffled[-1], plain[len(unchanged) - 1], rtol=1e-3, atol=1e-4)  # one token: no order
    assert (shuffled - unchanged)[:-1].norm(dim=1).min() > 1e-3

    if ways.embeddings:
        cut = TwoViews(model, ("token_cutoff", "feature_cutoff"), cutoff_rate=1e-9)
        rows = cut.rows(model, [features])
        assert "inputs_embeds" in rows
        torch.testing.assert_close(summaries(model, rows), plain, rtol=1e-3, atol=1e-4)
    else:
        with pytest.raises(ValueError, match=r"'token_cutoff' needs an encoder that takes input embeddings.*'shuffle'"):
            TwoViews(model, ("token_cutoff", "none"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, ways) in ARCHITECTURES.items() if ways.permutes])
def test_moved_tokens_are_permuted_positions(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, name: str
) -> None:
    model = architecture(encoder, name, tmp_path)
    features = model.preprocess([*sentences, "a"])
    by_position = TwoViews(model, ("shuffle", "none"), generator=generator(3))
    by_token = TwoViews(model, ("shuffle", "none"), generator=generator(3))
    by_token.ways = TOKENS_MOVE
    positions, tokens = (two_views.rows(model, [features]) for two_views in (by_position, by_token))
    assert torch.equal(positions["input_ids"].chunk(2)[0], features["input_ids"])
    assert not torch.equal(tokens["input_ids"].chunk(2)[0], features["input_ids"])
    torch.testing.assert_close(summaries(model, tokens), summaries(model, positions), rtol=1e-3, atol=1e-4)


def test_what_bert_and_an_encoder_by_place_are_given(encoder: SentenceTransformer, tmp_path: Path) -> None:
    assert find_input_ways(encoder) == BY_PLACE
    assert find_input_ways(architecture(encoder, "llama", tmp_path)) == TOKENS_MOVE


def test_finding_out_draws_nothing_and_leaves_the_modes(make_encoder: Callable[..., SentenceTransformer]) -> None:
    model = make_encoder(dropout=0.5).train()
    model[0].eval()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    assert find_input_ways(model) == BY_PLACE
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_one_token_tells_nothing_of_order(encoder: SentenceTransformer) -> None:
    encoder.max_seq_length = 3  # [CLS] 1 [SEP]
    assert find_input_ways(encoder) == TOKENS_MOVE


def test_position_schemes(encoder: SentenceTransformer, tmp_path: Path) -> None:
    rows = {
        "input_ids": torch.tensor([[0, 0, 5, 6], [5, 6, 7, 0]]),
        "attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]]),
    }
    roberta = architecture(encoder, "roberta", tmp_path)
    assert [position_ids(roberta, rows, scheme).tolist() for scheme in SCHEMES] == [
        [[0, 1, 2, 3], [0, 1, 2, 3]],
        [[0, 0, 1, 2], [1, 2, 3, 0]],
    ]
    assert torch.equal(position_ids(encoder, rows, "padding"), position_ids(encoder, rows, "place"))
    roberta.transformers_model.embeddings.padding_idx = 1  # as in the published ones: positions begin behind it
    rows["input_ids"] = rows["input_ids"].where(rows["input_ids"] != 0, 1)
    assert position_ids(roberta, rows, "padding").tolist() == [[1, 1, 2, 3], [2, 3, 4, 1]]


def test_flattened_features_are_refused_when_built(encoder: SentenceTransformer, monkeypatch: Any) -> None:
    flat = {"input_ids": torch.tensor([[2, 5, 3]]), "cu_seq_lens_q": torch.tensor([0, 3])}
    monkeypatch.setattr(encoder[0], "preprocess", lambda *_, **__: dict(flat))
    with pytest.raises(ValueError, match="unpad_inputs"):
        TwoViews(encoder, ("shuffle", "none"))


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_would_move_the_padded_rows_of_opt(encoder: SentenceTransformer, tmp_path: Path, side: str) -> None:
    """OPT counts from the attention mask; the probe must see that, on whichever side the tokenizer pads."""
    model = architecture(encoder, "opt", tmp_path, side)
    features = model.preprocess(["a cat sat on the mat", "dog"])
    features = {key: torch.nn.functional.pad(x, (2, 0)) if isinstance(x, Tensor) else x for key, x in features.items()}
    cut = TwoViews(model, ("token_cutoff", "none"), cutoff_rate=1e-9)
    right = summaries(model, cut.rows(model, [features]))
    torch.testing.assert_close(right, summaries(model, features).repeat(2, 1), rtol=1e-3, atol=1e-4)
    cut.ways = InputWays("place", False, True)
    assert (summaries(model, cut.rows(model, [features])) - right).norm(dim=1).min() > 0.01
