"""``adapt`` for a causal language model: which layer, pooling, prompt and linear step make it a sentence encoder.

A language model was never trained for similarity: its last layer prepares the next word, its cosines are all high, and
its tokens have seen only what stands before them. Tried are some of its layers, each as the last one; poolings; a text
alone, or in PromptEOL's prompt; and behind them nothing, EmbedFilter, or whitening, full and soft. One pass over a text
in each of the two prompts gives all of them. The score, over texts x that were not fitted on and the graded pairs p of
general English that come with the package:

    100 AP(x) + 100 Spearman(p)

AP is the average precision with which a text finds the five others that share most words with it. Either alone errs:
words favour the first layers, and the pairs know nothing of the text.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from st_extras.adaptation.candidates import Candidate
from st_extras.adaptation.encode import Encoded, EncodeTexts, looked_at
from st_extras.adaptation.judge import Judged, Row, development, general_english
from st_extras.citations import CITATIONS
from st_extras.encoders.loading import keep_layers, with_modules, with_pooling
from st_extras.encoders.prompt_template import PLAIN, PROMPT_EOL, set_prompt_template
from st_extras.evaluation import LabeledTexts, STSDataset
from st_extras.evaluation.label_free import LabelFreeComparison
from st_extras.modules import CorpusStatistics, WhiteningPostProcessor

PASSES = 4
"""What a text costs, in passes of it alone: it is also encoded in PromptEOL's prompt, which is longer than most."""
MOST_TEXTS = 2_500
EMBED_FILTER = "EmbedFilter"
_LAYERS = 6
_POOLINGS = ("mean", "weightedmean", "lasttoken")
_TEMPLATES = {"": PLAIN, "PromptEOL, ": PROMPT_EOL}
_DIMENSIONS = 256
_SOFT = 0.1  # epsilon of soft whitening
_EDGE = 1 / 16  # of all dimensions, at either end of the spectrum, which EmbedFilter leaves out

Affine = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Reading(Candidate):
    """A way to read sentences with a language model.

    Attributes:
        template: what stands around a text.
        layer: number of the layer that is the last one, from 1.
        pooling: of that layer's tokens.
        embeddings: (M, D) of all texts, before the step.
    """

    template: str = PLAIN
    layer: int = 1
    pooling: str = "mean"
    embeddings: Tensor = field(default_factory=lambda: torch.zeros(0, 0), repr=False)

    @property
    def method(self) -> tuple[str, str]:
        """Name and citation of what follows the encoder."""
        if self.name.endswith(EMBED_FILTER):
            return EMBED_FILTER, CITATIONS["wu2026unembedding"]
        return "Whitening", WhiteningPostProcessor(1).citation

    def as_encoder(self) -> Reading:
        """Return this with a model of its own: a copy of the language model, cut to the layer."""
        model = copy.deepcopy(self.model)
        keep_layers(model, self.layer)
        model = with_pooling(model, self.pooling)  # type: ignore[arg-type]
        set_prompt_template(model, self.template)
        return dataclasses.replace(self, model=model)


def is_language_model(model: SentenceTransformer) -> bool:
    """Whether a causal language model is read as it was saved: texts alone, and nothing behind one pooling."""
    modules: list[Any] = list(model)
    if model.transformers_model is None or len(modules) != 2 or not isinstance(modules[1], Pooling):
        return False
    kind = model.transformers_model.config.model_type  # its weights may have been saved without the output layer
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES  # not BERT
    alone = "message" not in modules[0].modality_config and model.default_prompt_name is None
    return causal and alone and isinstance(modules[1].pooling_mode, str)


class LayerPooling(nn.Module):
    """Pools layers of one pass as encoders that are cut to them would: behind the final norm, in several ways.

    Args:
        layers: K numbers, from 1.
        norm: what the last layer's output goes through.
        pooling: P poolings, side by side.
    """

    def __init__(self, layers: Sequence[int], norm: nn.Module, pooling: Pooling) -> None:
        super().__init__()
        self.layers, self.norm, self.pooling = layers, norm, pooling

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add the sentence embeddings (B, K P D)."""
        states, pooled = features["all_layer_embeddings"], []
        for layer in self.layers:
            tokens = states[layer] if layer == len(states) - 1 else self.norm(states[layer])
            pooled.append(self.pooling({**features, "token_embeddings": tokens})["sentence_embedding"].float())
        return {**features, "sentence_embedding": torch.cat(pooled, dim=1)}


def final_norm(model: SentenceTransformer) -> nn.Module:
    """Return the module whose output is that of the whole transformer, found by encoding a word; or none of effect."""
    outputs: dict[nn.Module, Any] = {}
    body: Any = model.transformers_model
    hooks = [
        module.register_forward_hook(lambda module, _, output: outputs.setdefault(module, output))
        for module in body.modules()
        if module is not body and not list(module.children())
    ]
    try:
        with torch.inference_mode():
            features = model.preprocess(["word"])
            final = model[0](
                {name: value.to(model.device) for name, value in features.items() if torch.is_tensor(value)}
            )
    finally:
        for hook in hooks:
            hook.remove()
    last = final["token_embeddings"]
    same = (one for one, found in outputs.items() if torch.is_tensor(found) and found.shape == last.shape)
    return next((one for one in same if torch.equal(outputs[one], last)), nn.Identity())


@dataclass(frozen=True, eq=False)
class Grid:
    """What all readings make of M texts.

    Attributes:
        embeddings: (T, M, K, P, D): T prompts, K layers, P poolings. The first prompt is none, the last layer the
            model's last, the first pooling the model's own.
        layers: their numbers.
        poolings: their names.
    """

    embeddings: Tensor
    layers: list[int]
    poolings: list[str]


def encode_readings(model: SentenceTransformer, lines: Sequence[str], encode_texts: EncodeTexts, kept: Path) -> Grid:
    """Encode texts by all readings, in one pass for each prompt."""
    config, pooling = cast(Any, model.transformers_model).config, cast(Any, model[1])
    total, dimension = int(config.num_hidden_layers), int(pooling.embedding_dimension)
    layers = sorted({max(1, round(total * k / _LAYERS)) for k in range(1, _LAYERS + 1)})
    poolings = list(dict.fromkeys([pooling.pooling_mode, *_POOLINGS]))
    several = LayerPooling(layers, final_norm(model), Pooling(dimension, pooling_mode=tuple(poolings)))
    texts = [template.replace("{}", line) for template in _TEMPLATES.values() for line in lines]
    before, config.output_hidden_states = config.output_hidden_states, True
    try:
        found = encode_texts(with_modules(model, [model[0], several]), texts, kept=kept)
    finally:
        config.output_hidden_states = before
    shape = (len(_TEMPLATES), len(lines), len(layers), len(poolings), dimension)
    return Grid(found.view(shape), layers, poolings)


def embed_filter(model: SentenceTransformer, edge: float = _EDGE) -> Affine | None:
    """Return the matrix (D, k) and offset (k,) of EmbedFilter (arXiv 2606.07502), a linear step that needs no text.

    It leaves out the first and the last singular vectors of the unembedding matrix, where frequent words stand. That
    matrix is not read by Sentence Transformers: None is returned unless it is that of the input embeddings.

    Args:
        model: starts with a language model.
        edge: which share of the D singular vectors is left out at either end.
    """
    body = cast(Any, model.transformers_model)
    if not body.config.tie_word_embeddings:
        return None
    words = body.get_input_embeddings().weight.detach().cpu()
    _, vectors = torch.linalg.eigh(sum(rows.double().T @ rows.double() for rows in words.split(16_384)))
    kept = vectors[:, round(edge * len(vectors)) : len(vectors) - round(edge * len(vectors))]
    return kept, torch.zeros(kept.size(1))


def whitenings(fitted: Tensor) -> Iterator[tuple[str, Affine]]:
    """Yield the names, and the matrix and offset, of both whitenings of (F, D) embeddings."""
    statistics = CorpusStatistics(fitted.size(1)).update(fitted)
    if not statistics.varies:
        return
    variances, directions = statistics.principal_directions()
    soft = (directions * (variances.clamp(min=0) + _SOFT * variances.mean()).rsqrt()) @ directions.T
    count = min(_DIMENSIONS, len(fitted) // 2, fitted.size(1))
    full = directions[:, :count] * variances[:count].clamp(min=1e-10 * float(variances[0])).rsqrt()
    for name, kernel in ((", soft whitening", soft), (f", whitening to {count}", full)):
        yield name, (kernel, -statistics.mean @ kernel)


def proposed(
    model: SentenceTransformer,
    grid: Grid,
    prompt: int,
    layer: int,
    fitted: slice,
    filtered: Affine | None,
) -> Iterator[Reading]:
    """Yield the readings of a layer in a prompt: each pooling alone, filtered, and with each whitening.

    The fitted texts give the whitening. The texts of the judge stand before those.
    """
    name, template = list(_TEMPLATES.items())[prompt]
    of_words = [] if filtered is None else [(f", {EMBED_FILTER}", filtered)]
    for p, pooling in enumerate(grid.poolings):
        found = grid.embeddings[prompt, :, layer, p]
        for after, step in (("", None), *of_words, *whitenings(found[fitted])):
            title = f"{name}layer {grid.layers[layer]}, {pooling}{after}"
            judged = found[: fitted.start]
            yield Reading(title, model, judged, step, 0.0, False, template, grid.layers[layer], pooling, found)


def judge_readings(
    model: SentenceTransformer,
    texts: Sequence[str],
    encode_texts: EncodeTexts,
    kept: Path,
    dev: STSDataset | LabeledTexts | None,
    end: float,
) -> tuple[Encoded, Judged]:
    """Encode, propose and judge: what :func:`~st_extras.adaptation.adapt` does for a language model.

    Args:
        model: a language model, see :func:`is_language_model`.
        texts: different ones, in random order: a fifth of them is kept for the judge.
        encode_texts: encodes them.
        kept: folder for their embeddings.
        dev: chooses in place of the judge.
        end: the time of ``time.perf_counter`` after which no further layer is tried.

    Returns:
        The texts with the embeddings of the start; and a row for each layer in each prompt, with its best pooling and
        step.

    Raises:
        ValueError: if an embedding is not finite, or ``dev`` cannot be scored.
    """
    general, chooser = general_english(), None if dev is None else development(dev)
    of_general = slice(len(texts), len(texts) + len(general.texts))
    of_dev = slice(of_general.stop, None)
    lines = [*texts, *general.texts, *([] if chooser is None else chooser.texts)]
    grid = encode_readings(model, lines, encode_texts, kept)
    start = grid.embeddings[0, :, -1, 0]
    encoded = looked_at(texts, start[: len(texts)])
    if encoded.reason:
        return encoded, Judged(reason=encoded.reason)
    compared = LabelFreeComparison(encoded.judged, encoded.of_judged)
    known = general.score(start[of_general])
    facts: dict[str, Any] = {"general": known}
    if chooser is not None:
        facts["dev"] = chooser.score(start[of_dev])

    def scored(one: Reading) -> tuple[float, float, Reading]:
        """Return the gain over the start, the score on general pairs, and the reading."""
        score = general.score(one.after(one.embeddings[of_general]))
        if chooser is not None:
            return chooser.score(one.after(one.embeddings[of_dev])) - facts["dev"], score, one
        lexical = compared.compare(one.after(one.judged), resamples=100).word_overlap
        return 100 * lexical + score - known, score, one

    rows: list[Row] = []
    chosen: list[Candidate] = []
    fitted, filtered = slice(len(encoded.judged), len(texts)), embed_filter(model)
    for layer, prompt in itertools.product(reversed(range(len(grid.layers))), range(len(_TEMPLATES))):
        began = time.perf_counter()
        if began > end:
            facts["not tried"] = "further layers, as the time was up"
            break
        tried = map(scored, proposed(model, grid, prompt, layer, fitted, filtered))
        gain, score, one = max(tried, key=lambda found: found[0])
        why = "" if gain > 0 else "not better than the start"
        rows.append(Row(one.name, gain, None, None, score, not why, why, round(time.perf_counter() - began, 1)))
        chosen.append(one)
    return encoded, Judged(rows, chosen, facts)
