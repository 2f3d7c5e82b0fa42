"""Which tokens are content, against what the tokenizer says of each: on both sides of padding, with a prompt too."""

from typing import Any

import torch

from st_extras.encoders.structure import content_mask
from tests.architectures.sentences import SENTENCES
from tests.architectures.world import World, check, padding_side

PROMPT = "query: "


def content(world: World) -> None:
    if not world.is_transformer:
        return
    model = world.model
    tokenizer: Any = model.tokenizer
    texts = [*SENTENCES, "a \u2603 cat", f"the {tokenizer.mask_token} sat" if tokenizer.mask_token else "dog"]
    for side in ("right", "left"):
        for prompt in (None, PROMPT):
            with padding_side(model, side):
                features = dict(model.preprocess(texts, prompt=prompt))
                told = tokenizer(
                    [(prompt or "") + text for text in texts],
                    padding=True,
                    return_offsets_mapping=True,
                    return_special_tokens_mask=True,
                    return_tensors="pt",
                )
            check(torch.equal(told["input_ids"], features["input_ids"]), "Sentence Transformers tokenizes otherwise")
            added = told["special_tokens_mask"].bool() | ~told["attention_mask"].bool()
            of_text = told["offset_mapping"][..., 1] > len(prompt or "")
            found = content_mask(model, features)
            where = f"padded on the {side}" + (", with a prompt" if prompt else "")
            check(torch.equal(found, ~added & of_text), f"the content mask is wrong {where}")
