"""The architectures: a tiny configuration of each, its tokenizer, and how its tokens are pooled."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from tests.architectures import tokenizers as own

D, HEADS, LAYERS = 16, 2, 2
_USUAL: dict[str, Any] = {
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * D,
    "max_position_embeddings": 64,
}
_DECODER = _USUAL | {"num_key_value_heads": HEADS, "head_dim": D // HEADS}
_T5 = {"d_model": D, "d_kv": D // HEADS, "d_ff": 2 * D, "num_layers": LAYERS, "num_heads": HEADS}
_BART = {
    "d_model": D, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS, "encoder_ffn_dim": 2 * D, "decoder_ffn_dim": 2 * D,
    "max_position_embeddings": 64, "forced_eos_token_id": None,
}  # fmt: skip
_XLM = {"emb_dim": D, "n_layers": LAYERS, "n_heads": HEADS, "max_position_embeddings": 64, "embed_init_std": 0.1}

_DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
_DEBERTA_V3 = _DEBERTA | {"position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True}
_FUNNEL = {
    "block_sizes": [1, 1], "block_repeats": [1, 1], "num_decoder_layers": 1, "d_model": D, "n_head": HEADS,
    "d_head": 8, "d_inner": 2 * D,
}  # fmt: skip

_WORD_PIECES = ("word pieces", own.BERT, "[CLS] $A [SEP]", {"token_types": True})
_PLAIN_PIECES = ("word pieces", own.BERT, "[CLS] $A [SEP]", {})
_BYTES = ("byte-level", own.ROBERTA, "<s> $A </s>", {})
_BERT_BYTES = ("byte-level", own.BERT, "[CLS] $A [SEP]", {})
_PIECES = ("unigram", own.ROBERTA, "<s> $A </s>", {})
_BERT_UNIGRAM = ("unigram", own.UNIGRAM_BERT, "[CLS] $A [SEP]", {"token_types": True})
_GPT = ("byte-level", own.GPT, "$A", {"side": "left"})
_LLAMA = ("unigram", own.LLAMA, "<s> $A", {"side": "left"})
_QWEN = ("byte-level", own.QWEN, "$A <|endoftext|>", {"side": "left"})
_GEMMA = ("unigram", own.GEMMA, "<bos> $A", {"side": "left"})
_T5_PIECES = ("unigram", own.T5, "$A </s>", {})


@dataclass(frozen=True)
class Architecture:
    """One row of the table.

    Attributes:
        config: the class of its configuration in transformers; "" for an encoder without one.
        tokenizer: algorithm, special tokens, template and further options of ``build_tokenizer``.
        options: of the configuration; dropouts stay as transformers has them.
        pooling: as models of this kind are pooled.
        model: the class that makes the weights; "": what AutoModel takes.
    """

    config: str
    tokenizer: tuple[Any, ...] = _WORD_PIECES
    options: dict[str, Any] = field(default_factory=lambda: _USUAL)
    pooling: str = "mean"
    model: str = ""


def _decoder(config: str, tokenizer: tuple[Any, ...] = _LLAMA, **options: Any) -> Architecture:
    return Architecture(config, tokenizer, _DECODER | options, "lasttoken")


ARCHITECTURES: dict[str, Architecture] = {
    "BERT": Architecture("BertConfig"),
    "RoBERTa": Architecture("RobertaConfig", _BYTES),
    "XLM-R": Architecture("XLMRobertaConfig", _PIECES),
    "DistilBERT": Architecture(
        "DistilBertConfig", _PLAIN_PIECES, {"dim": D, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 2 * D}
    ),
    "ALBERT": Architecture("AlbertConfig", _BERT_UNIGRAM, _USUAL | {"embedding_size": 8}),
    "MPNet": Architecture("MPNetConfig", _PLAIN_PIECES),
    "ELECTRA": Architecture("ElectraConfig", _WORD_PIECES, _USUAL | {"embedding_size": 8}),
    "DeBERTa": Architecture("DebertaConfig", _BERT_BYTES, _USUAL | _DEBERTA),
    "DeBERTa-v3": Architecture("DebertaV2Config", _BERT_UNIGRAM, _USUAL | _DEBERTA_V3),
    "ModernBERT": Architecture("ModernBertConfig", _BERT_BYTES, _USUAL | {"local_attention": 8}),
    "NomicBERT": Architecture("NomicBertConfig", _WORD_PIECES, _USUAL | {"head_dim": 8}),
    "EuroBERT": Architecture(
        "EuroBertConfig", ("byte-level", own.EUROBERT, "<|begin|> $A <|end|>", {}), _USUAL | {"num_key_value_heads": 1}
    ),
    "CamemBERT": Architecture("CamembertConfig", _PIECES),
    "ConvBERT": Architecture("ConvBertConfig", _WORD_PIECES, _USUAL | {"embedding_size": D, "head_ratio": 1}),
    "MobileBERT": Architecture(
        "MobileBertConfig", _WORD_PIECES, _USUAL | {"embedding_size": 8, "intra_bottleneck_size": D}
    ),
    "SqueezeBERT": Architecture("SqueezeBertConfig", _WORD_PIECES, _USUAL | {"embedding_size": D}),
    "RoFormer": Architecture("RoFormerConfig", _WORD_PIECES, _USUAL | {"embedding_size": D}),
    "XLNet": Architecture(
        "XLNetConfig",
        ("unigram", own.XLNET, "$A <sep> <cls>", {"side": "left", "token_types": True}),
        {"d_model": D, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 2 * D},
    ),
    "Funnel": Architecture("FunnelConfig", _WORD_PIECES, _FUNNEL, model="FunnelModel"),
    "Longformer": Architecture("LongformerConfig", _BYTES, _USUAL | {"attention_window": 8}),
    "BigBird": Architecture("BigBirdConfig", _BERT_UNIGRAM, _USUAL | {"attention_type": "original_full"}),
    "Nystromformer": Architecture("NystromformerConfig", _BERT_UNIGRAM, _USUAL),
    "FNet": Architecture("FNetConfig", _BERT_UNIGRAM),
    "ERNIE": Architecture("ErnieConfig"),
    "RemBERT": Architecture(
        "RemBertConfig", _BERT_UNIGRAM, _USUAL | {"input_embedding_size": 8, "output_embedding_size": 8}
    ),
    "XMOD": Architecture("XmodConfig", _PIECES, _USUAL | {"default_language": "en_XX"}),
    "Data2VecText": Architecture("Data2VecTextConfig", _BYTES),
    "XLM": Architecture("XLMConfig", ("unigram", own.XLM, "</s> $A </s>", {}), _XLM),
    "FlauBERT": Architecture("FlaubertConfig", ("unigram", own.XLM, "</s> $A </s>", {}), _XLM),
    "T5 encoder": Architecture("T5Config", _T5_PIECES, _T5, model="T5EncoderModel"),
    "mT5 encoder": Architecture("MT5Config", _T5_PIECES, _T5, model="MT5EncoderModel"),
    "BART": Architecture("BartConfig", _BYTES, _BART),
    "mBART": Architecture("MBartConfig", ("unigram", own.ROBERTA, "$A </s>", {}), _BART),
    "CLIP text": Architecture(
        "CLIPTextConfig", ("byte-level", own.CLIP, "<|startoftext|> $A <|endoftext|>", {}), pooling="mean"
    ),
    "GPT-2": Architecture(
        "GPT2Config", _GPT, {"n_embd": D, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64}, "lasttoken"
    ),
    "GPT-NeoX": Architecture("GPTNeoXConfig", _GPT, pooling="lasttoken"),
    "OPT": Architecture(
        "OPTConfig",
        ("byte-level", own.OPT, "</s> $A", {"side": "left"}),
        _USUAL | {"ffn_dim": 2 * D, "word_embed_proj_dim": D},
        "lasttoken",
    ),
    "BLOOM": Architecture(
        "BloomConfig",
        ("byte-level", own.BLOOM, "$A", {"side": "left"}),
        {"hidden_size": D, "n_layer": LAYERS, "n_head": HEADS},
        "lasttoken",
    ),
    "MPT": Architecture(
        "MptConfig", _GPT, {"d_model": D, "n_layers": LAYERS, "n_heads": HEADS, "max_seq_len": 64}, "lasttoken"
    ),
    "Falcon": Architecture("FalconConfig", _GPT, _USUAL | {"new_decoder_architecture": False}, "lasttoken"),
    "Phi": _decoder("PhiConfig", _GPT),
    "Llama": _decoder("LlamaConfig"),
    "Mistral": _decoder("MistralConfig"),
    "Qwen2": _decoder("Qwen2Config", _QWEN),
    "Qwen3": _decoder("Qwen3Config", _QWEN),
    "Gemma": _decoder("GemmaConfig", _GEMMA),
    "Gemma 2": _decoder("Gemma2Config", _GEMMA),
    "Gemma 3": _decoder("Gemma3TextConfig", _GEMMA, sliding_window=8),
    "StaticEmbedding": Architecture("", _PLAIN_PIECES),
    "WordEmbeddings": Architecture("", _PLAIN_PIECES),
}


def build(name: str, folder: Path) -> SentenceTransformer:
    """The tiny random encoder, saved to ``folder`` and loaded from there; equal at every call."""
    row = ARCHITECTURES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if not row.config:
            return _without_transformer(name)
        algorithm, special, template, options = row.tokenizer
        tokenizer = own.build_tokenizer(algorithm, special, template, **options)
        tokenizer.save_pretrained(folder)
        _body(row, tokenizer).save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=own.MAX_LENGTH)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode=row.pooling)
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")


def _body(row: Architecture, tokenizer: Any) -> Any:
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "bos", "eos")}
    config = getattr(transformers, row.config)(vocab_size=len(tokenizer), **ids, **row.options)
    if hasattr(config, "initializer_range"):
        config.initializer_range = 0.2  # large enough for attention to see positions
    return getattr(transformers, row.model)(config) if row.model else transformers.AutoModel.from_config(config)


def _without_transformer(name: str) -> SentenceTransformer:
    if name == "StaticEmbedding":
        backend = own.build_tokenizer("word pieces", own.BERT, "$A").backend_tokenizer
        return SentenceTransformer(modules=[StaticEmbedding(backend, embedding_dim=D)], device="cpu")
    words = sorted({word for text in own.CORPUS for word in text.split()})
    module = WordEmbeddings(
        WhitespaceTokenizer(words, do_lower_case=True), torch.randn(len(words), D).numpy(), update_embeddings=True
    )
    return SentenceTransformer(modules=[module, Pooling(D)], device="cpu")
