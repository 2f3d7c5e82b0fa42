"""The tokenizers of the architectures, built here: word pieces, byte-level BPE and a unigram model."""

import functools
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.architectures.sentences import CORPUS

MAX_LENGTH = 32


@dataclass(frozen=True)
class Special:
    """The special tokens of a tokenizer, in the order of their ids, by role; a token may have several roles."""

    pad: str
    unk: str
    cls: str | None = None
    sep: str | None = None
    bos: str | None = None
    eos: str | None = None
    mask: str | None = None

    def roles(self) -> dict[str, str]:
        return {f"{role}_token": token for role, token in vars(self).items() if token is not None}


BERT = Special("[PAD]", "[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")
ROBERTA = Special("<pad>", "<unk>", cls="<s>", sep="</s>", bos="<s>", eos="</s>", mask="<mask>")
ENDOFTEXT = "<|endoftext|>"
GPT = Special(ENDOFTEXT, ENDOFTEXT, bos=ENDOFTEXT, eos=ENDOFTEXT)
CLIP = Special(ENDOFTEXT, ENDOFTEXT, bos="<|startoftext|>", eos=ENDOFTEXT)
LLAMA = Special("</s>", "<unk>", bos="<s>", eos="</s>")
QWEN = Special("<|endoftext|>", "<|endoftext|>", eos="<|endoftext|>")
GEMMA = Special("<pad>", "<unk>", bos="<bos>", eos="<eos>", mask="<mask>")
EUROBERT = Special("<|pad|>", "<|unk|>", bos="<|begin|>", eos="<|end|>", mask="<|mask|>")
T5 = Special("<pad>", "<unk>", eos="</s>")
XLNET = Special("<pad>", "<unk>", cls="<cls>", sep="<sep>", mask="<mask>")
XLM = Special("<pad>", "<unk>", cls="</s>", sep="</s>", bos="<s>", mask="<special1>")


def _word_pieces(special: list[str]) -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=320, special_tokens=special))
    return backend


def _byte_level(special: list[str]) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, initial_alphabet=alphabet)
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def _unigram(special: list[str]) -> Tokenizer:
    words = sorted({word for text in CORPUS for word in text.split()})
    letters = sorted({letter for word in words for letter in word})
    scores = [(token, 0.0) for token in special] + [(f"\u2581{word}", -4.0) for word in words]
    scores += [(piece, -9.0) for piece in ("\u2581", *letters)]
    backend = Tokenizer(models.Unigram(scores, unk_id=special.index("<unk>")))
    backend.add_special_tokens(special)
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


_ALGORITHMS = {"word pieces": _word_pieces, "byte-level": _byte_level, "unigram": _unigram}


@functools.cache
def _trained(algorithm: str, special: tuple[str, ...]) -> str:
    """The trained backend as JSON, so that every tokenizer is its own."""
    return _ALGORITHMS[algorithm](list(special)).to_str()


def build_tokenizer(
    algorithm: str, special: Special, template: str, *, side: str = "right", token_types: bool = False
) -> PreTrainedTokenizerFast:
    """A tokenizer whose texts look like ``template``, such as "[CLS] $A [SEP]"."""
    tokens = tuple(dict.fromkeys(special.roles().values()))
    backend = Tokenizer.from_str(_trained(algorithm, tokens))
    if template != "$A":
        used = [(token, backend.token_to_id(token)) for token in template.split() if token != "$A"]
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=list(dict(used).items()))
    names: dict[str, Any] = dict(special.roles())
    names["model_input_names"] = ["input_ids", *["token_type_ids"] * token_types, "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, padding_side=side, model_max_length=MAX_LENGTH, clean_up_tokenization_spaces=False,
        **names,
    )  # fmt: skip
