"""The model card of a trained encoder: Sentence Transformers' own, with what its trainer leaves out.

It names the base model and its licence, has the scores of the weights that are kept beside the base model's, and shows
no sentence of the training text, which may be private.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn

from st_extras.encoder_names import DEMO_ID, is_packaged

_CACHED = re.compile(r"models--([^/\\]+)--([^/\\]+)[/\\]snapshots")
"""In the path of a model in the hub's cache."""
_ID = re.compile(r"[\w.-]+/[\w.-]+")
_EXAMPLES = ("examples", "examples_table", "_example_columns")


def name_base_model(model: SentenceTransformer) -> None:
    """Put the base model and its licence on the card, as far as the encoder's files name them; what is there stays.

    A folder is named by its own card, if that has a base model.
    """
    card: Any = model.model_card_data
    transformer = model.transformers_model
    path = str(getattr(getattr(transformer, "config", None), "_name_or_path", ""))
    found: Any = {}
    if path and Path(path, "README.md").is_file():
        try:
            found = ModelCard.load(Path(path, "README.md"), ignore_metadata_errors=True).data.to_dict()
        except (OSError, ValueError):  # a card without readable metadata names nothing
            found = {}
    if card.base_model is None:
        base = found.get("base_model")
        if is_packaged(path):
            base = DEMO_ID
        elif cached := _CACHED.search(path):
            base = "/".join(cached.groups())
        elif not Path(path).exists() and _ID.fullmatch(path):
            base = path
        card.base_model = base[0] if isinstance(base, list) and base else base or None
    if card.license is None:
        card.license = found.get("license")


class TrainedCard:
    """What the card of a model is to say of one training. Made before the trainer, which fills the card in.

    Args:
        model: the model.
        loss: its loss, which the title names.
        evaluator: scores the model; its last figures are those of the base model.
    """

    def __init__(self, model: SentenceTransformer, loss: nn.Module, evaluator: BaseEvaluator | None) -> None:
        self.card: Any = model.model_card_data
        self.evaluator = evaluator
        self.widget = list(self.card.widget)
        self.card.widget = self.widget or [{}]  # else the trainer puts sentences there, which takes time as well
        scores = self.card.eval_results_dict or {}
        self.before = {} if evaluator is None else dict(scores.get(evaluator, {}))
        name_base_model(model)
        if self.card.model_name is None and self.card.base_model is not None:
            self.card.model_name = f"{self.card.base_model.rpartition('/')[2]} trained with {type(loss).__name__}"

    def leave_out_sentences(self) -> None:
        """Take the sentences of the training text off the card; those that the user put there stay."""
        self.card.widget = self.widget
        for dataset in self.card.train_datasets:
            for key in _EXAMPLES:
                dataset.pop(key, None)

    def keep_scores(self, trainer: SentenceTransformerTrainer, best_step: int) -> None:
        """Put the scores of the kept weights on the card, and those of the base model at step 0 of its log.

        Args:
            trainer: the trainer, at its end.
            best_step: the step whose weights are kept; 0: the base model's.
        """
        if self.evaluator is None:
            return
        for line in self.card.training_logs:
            if line["Step"] < 0:  # an evaluation outside of the training
                line |= {"Epoch": 0, "Step": 0}
        history = trainer.state.log_history
        logged = {key: value for entry in history if entry["step"] == best_step for key, value in entry.items()}
        scores = {name: logged.get(f"eval_{name}", value) for name, value in self.before.items()}
        self.card.eval_results_dict[self.evaluator] = scores
        self.card.set_best_model_step(best_step)
