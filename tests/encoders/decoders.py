"""A tiny random decoder, as people load them: a causal language model whose tokenizer has no padding token."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from st_extras.encoders.prompt_template import PROMPT_EOL
from tests.fixtures import SENTENCES


def build_decoder(folder: Path, kind: str = "llama", *, pad: bool = False, bos: bool = True, **options: Any) -> Path:
    """A causal language model of that kind with a byte-level tokenizer, saved to ``folder``."""
    special = ["<s>", "</s>", "<pad>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([*SENTENCES, *[PROMPT_EOL] * 9], trainer)
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
        )
    names = {"bos_token": "<s>", "eos_token": "</s>"} | ({"pad_token": "<pad>"} if pad else {})
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **names).save_pretrained(folder)
    sizes = {
        "vocab_size": backend.get_vocab_size(), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
    }  # fmt: skip
    heads = {"num_key_value_heads": 1} if kind in ("llama", "qwen2", "qwen3", "mistral") else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**(sizes | heads | options)))
        model.save_pretrained(folder)
    return folder
