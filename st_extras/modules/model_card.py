"""The model card of a model with post-processing: how it was trained, what was added since, how to load it."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData
from yaml import YAMLError  # type: ignore[import-untyped]

_HEADING, _END = "## Training of the Encoder", "<!-- end of the training of the encoder -->"
_ADDED = "## Post-processing\n\nFitted to the finished encoder, without training, and applied in this order:"
_OF_THE_OLD_MODEL = {  # of another model, its embeddings, or the moment of its saving
    "model", "model_id", "model_name", "eval_results_dict", "similarities", "usage_examples_display", "save_dir",
    "first_save", "_asset_cache", "_cached_dict", "_training_start_time", "evaluation_duration", "version",
}  # fmt: skip


@dataclass
class PostProcessedModelCardData(SentenceTransformerModelCardData):
    """Model card data that describes post-processing, and how to load it, beside the training of the encoder.

    Attributes:
        training_text: the section on training in the card of a loaded model; None where the other fields hold that.
        exported: the line and the citation of each post-processing module that became a stock one, by its name.
    """

    training_text: str | None = field(default=None, init=False, repr=False)
    exported: dict[str, tuple[str, str]] = field(default_factory=dict, init=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what the card's template prints."""
        data: dict[str, Any] = super().to_dict()
        described = self.exported | descriptions(self.model)
        data["citations"] = data["citations"] | {name: citation for name, (_, citation) in described.items()}
        sections = [f"{_ADDED}\n\n" + "\n".join(line for line, _ in described.values())] if described else []
        if self.training_text:
            sections.append(f"{_HEADING}\n\n{self.training_text}\n\n{_END}")
        data["usage_snippet"] = "\n\n".join([data["usage_snippet"], *sections])
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
            f'# or, without that flag:  import st_extras; model = st_extras.load("{name}")'
        )
        return snippet.replace(plain, both)


def card_of(model: SentenceTransformer) -> PostProcessedModelCardData:
    """Return the card data of a new model that post-processes ``model``: its training, datasets, losses, citations.

    Its evaluation is left out, as it is not of the new model. A model that was loaded has its training in the text of
    its card alone: then that is read.
    """
    old: Any = model.model_card_data
    card = PostProcessedModelCardData(generate_widget_examples=old.generate_widget_examples)
    kept = {item.name for item in fields(card)} - _OF_THE_OLD_MODEL
    for name in kept & vars(old).keys():
        setattr(card, name, copy.copy(getattr(old, name)))
    text = getattr(model, "_model_card_text", None)  # Sentence Transformers offers no other way to a loaded card
    if text and "generated_from_trainer" not in old.tags:
        _read_card(text, card)
    ours = descriptions(model)
    card.citations = {name: entry for name, entry in card.citations.items() if name not in ours}
    return card


def renew_card(model: SentenceTransformer) -> None:
    """Let a loaded model write a new card: after ``fit`` or ``tune``, the loaded one is out of date."""
    if getattr(model, "_model_card_text", None):
        card = card_of(model)
        card.register_model(model)
        model.model_card_data = card
        model._model_card_text = None


def name_folders(model: SentenceTransformer, card: Path, output: str) -> None:
    """Write into a saved card the name of a local base model, by its card's title or its folder, and of ``output``.

    Sentence Transformers names models of the hub alone: from a folder, its card says "Unknown" and a placeholder.
    """
    source = str(getattr(getattr(model.transformers_model, "config", None), "_name_or_path", "")) or "an unnamed model"
    written = Path(source, "README.md").read_text(encoding="utf8") if Path(source, "README.md").is_file() else ""
    found = re.search(r"\A(?:---.*?\n---\n)?[^#]*?^# (?!Sentence ?Transformer)(.+?)$", written, re.M | re.S)
    name = found[1].strip() if found else Path(source).name if Path(source).is_dir() else source
    text = card.read_text(encoding="utf8")
    for generated, named in (
        ("<!-- - **Base model:** [Unknown](https://huggingface.co/unknown) -->", f"- **Base model:** {name}"),
        (" model trained. It maps", f" model made from {name}. It maps"),
        ("# Download from the 🤗 Hub\n", ""),
        ("sentence_transformers_model_id", output),
    ):
        text = text.replace(generated, named)
    card.write_text(text, encoding="utf8")


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


def _read_card(text: str, card: PostProcessedModelCardData) -> None:
    """Copy training and citations from the text of a card that Sentence Transformers wrote."""
    try:
        stored = ModelCard(text, ignore_metadata_errors=True).data.to_dict()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, YAMLError):  # metadata that someone wrote by hand
        stored = {}
    card.language = card.language or _texts(stored.get("language"))
    card.license = card.license or next(iter(_texts(stored.get("license"))), None)
    card.base_model = card.base_model or next(iter(_texts(stored.get("base_model"))), None)
    card.add_tags(_texts(stored.get("tags")))
    card.datasets = list(dict.fromkeys([*card.datasets, *_texts(stored.get("datasets"))]))
    start, end = (_HEADING, _END) if _HEADING in text else ("\n## Training Details\n", "\n### Framework Versions\n")
    found = re.search(f"{re.escape(start)}(.*?){re.escape(end)}", text, re.S)
    card.training_text = (found[1].strip() if found else "") or None
    entries = re.findall(r"^#### ([^\n]+)\n```bibtex\n(.*?)\n```", text.partition("\n### BibTeX\n")[2], re.M | re.S)
    card.citations = {**card.citations, **dict(entries)}


def _texts(value: Any) -> list[str]:
    """Return the texts in a value of a card's metadata: one, or a list of them."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
