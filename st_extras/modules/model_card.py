"""The model card of a model with post-processing: how it was trained, what was added since, how to load it."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, fields
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

_ADDED = "## Post-processing\n\nFitted to the finished encoder, without training, and applied in this order:"
_OF_THE_OLD_MODEL = {  # of another model, its embeddings, or the moment of its saving
    "model", "model_id", "model_name", "eval_results_dict", "similarities", "usage_examples_display", "save_dir",
    "first_save", "evaluation_duration", "version",
}  # fmt: skip


@dataclass
class PostProcessedModelCardData(SentenceTransformerModelCardData):
    """Model card data that describes post-processing, and how to load it, beside the training of the encoder.

    Attributes:
        added: the line and the citation of each linear layer that was put after the encoder, by the method's name.
    """

    added: dict[str, tuple[str, str]] = field(default_factory=dict, init=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what the card's template prints."""
        data: dict[str, Any] = super().to_dict()
        described = self.added | descriptions(self.model)
        data["citations"] = data["citations"] | {name: citation for name, (_, citation) in described.items()}
        if described:
            lines = "\n".join(line for line, _ in described.values())
            data["usage_snippet"] = f"{data['usage_snippet']}\n\n{_ADDED}\n\n{lines}"
        return data

    def generate_usage_snippet(self) -> str:
        """Return the usual snippet; for modules of this package, it shows both ways to load them."""
        snippet: str = super().generate_usage_snippet()
        if self.model is None or not any(type(m).__module__.startswith("st_extras.") for m in self.model.modules()):
            return snippet
        name = self.model_id or "sentence_transformers_model_id"
        plain = f'model = SentenceTransformer("{name}")'
        both = (
            "# Needs its post-processing module: pip install st-extras\n"
            f'model = SentenceTransformer("{name}", trust_remote_code=True)\n'
            f'# or, without that flag:  from st_extras.modules import load; model = load("{name}")'
        )
        return snippet.replace(plain, both)


def card_of(model: SentenceTransformer) -> PostProcessedModelCardData:
    """Return the card data of a new model that post-processes ``model``: its training, datasets, losses, citations.

    Its evaluation is left out, as it is not of the new model.
    """
    old: Any = model.model_card_data
    card = PostProcessedModelCardData(generate_widget_examples=old.generate_widget_examples)
    kept = {item.name for item in fields(card) if not item.name.startswith("_")} - _OF_THE_OLD_MODEL
    for name in kept & vars(old).keys():
        setattr(card, name, copy.copy(getattr(old, name)))
    ours = descriptions(model)
    card.citations = {name: entry for name, entry in card.citations.items() if name not in ours}
    return card


def add_card_line(model: SentenceTransformer, method: str, line: str, citation: str) -> None:
    """Add a line about a layer after the encoder to the card of a model that was rebuilt with it.

    Args:
        model: its card is that of :func:`card_of`.
        method: name of the method; a line of that name is replaced.
        line: a bullet point of Markdown.
        citation: BibTeX.
    """
    card: Any = model.model_card_data
    card.added = card.added | {method: (line, citation)}


def renew_card(model: SentenceTransformer) -> None:
    """Let a loaded model write a new card: after ``fit`` or ``tune``, the loaded one is out of date."""
    # Sentence Transformers saves the text of a loaded card again, and nothing public makes it write a new one.
    if getattr(model, "_model_card_text", None):
        card = card_of(model)
        card.register_model(model)
        model.model_card_data = card
        model._model_card_text = None  # noqa: SLF001


def descriptions(model: SentenceTransformer | None) -> dict[str, tuple[str, str]]:
    """Return a line of Markdown and a citation for each post-processing module, by the name of its class.

    Such a module has a ``citation``, BibTeX. The card names its ``card_settings``, JSON-able, or its
    configuration; ``corpus_size`` is the number of sentences that it was fitted on.
    """
    parts: list[Any] = [part for part in (model.modules() if model else ()) if hasattr(part, "citation")]
    return {type(part).__name__: (_line(part), part.citation) for part in parts}


def _line(part: Any) -> str:
    settings = dict(getattr(part, "card_settings", None) or part.get_config_dict())
    size = settings.pop("corpus_size", 0)
    corpus = f"fitted on {size:,} sentences" if size else "not fitted on a corpus"
    return f"* **{type(part).__name__}**, {corpus}: `{json.dumps(settings, ensure_ascii=False)}`"
