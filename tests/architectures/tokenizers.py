"""The tokenizers of the architectures, built here: word pieces, byte-level BPE and a unigram model."""

import functools
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.fixtures import SENTENCES

CORPUS = [*SENTENCES, "query: a cat", "query: the dog", "cat", "dog"] * 9
"""What the tokenizers are made from."""
MAX_LENGTH = 32


Special = dict[str, str]
"""The special tokens of a tokenizer by role, in the order of their ids; a token may have several roles."""


def _special(pad: str, unk: str, **others: str) -> Special:
    return {f"{role}_token": token for role, token in {"pad": pad, "unk": unk, **others}.items()}


UNIGRAM_BERT = _special("<pad>", "<unk>", cls="[CLS]", sep="[SEP]", mask="[MASK]")
BERT = _special("[PAD]", "[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")
ROBERTA = _special("<pad>", "<unk>", cls="<s>", sep="</s>", bos="<s>", eos="</s>", mask="<mask>")
ENDOFTEXT = "<|endoftext|>"
OPT = _special("<pad>", "</s>", bos="</s>", eos="</s>")
BLOOM = _special("<pad>", "<unk>", bos="<s>", eos="</s>")
GPT = _special(ENDOFTEXT, ENDOFTEXT, bos=ENDOFTEXT, eos=ENDOFTEXT)
CLIP = _special(ENDOFTEXT, ENDOFTEXT, bos="<|startoftext|>", eos=ENDOFTEXT)
LLAMA = _special("</s>", "<unk>", bos="<s>", eos="</s>")
QWEN = _special("<|endoftext|>", "<|endoftext|>", eos="<|endoftext|>")
GEMMA = _special("<pad>", "<unk>", bos="<bos>", eos="<eos>", mask="<mask>")
EUROBERT = _special("<|pad|>", "<|unk|>", bos="<|begin|>", eos="<|end|>", mask="<|mask|>")
T5 = _special("<pad>", "<unk>", eos="</s>")
XLNET = _special("<pad>", "<unk>", cls="<cls>", sep="<sep>", mask="<mask>")
XLM = _special("<pad>", "<unk>", cls="</s>", sep="</s>", bos="<s>", mask="<special1>")


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
    tokens = tuple(dict.fromkeys(special.values()))
    backend = Tokenizer.from_str(_trained(algorithm, tokens))
    if template != "$A":
        used = [(token, backend.token_to_id(token)) for token in template.split() if token != "$A"]
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=list(dict(used).items()))
    names: dict[str, Any] = dict(special)
    names["model_input_names"] = ["input_ids", *["token_type_ids"] * token_types, "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, padding_side=side, model_max_length=MAX_LENGTH, clean_up_tokenization_spaces=False,
        **names,
    )  # fmt: skip
