"""How a causal language model can be made a sentence encoder: the extractions that :func:`adapt_language_model` tries.

An extraction is a prompt around the text, a layer that becomes the last one, a pooling of its tokens, and a linear
transform after it or none. One pass over a text in each prompt gives the embeddings of all of them.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from st_extras.adaptation.transforms import transformed
from st_extras.checks import check_interval
from st_extras.citations import CITATIONS
from st_extras.encoders.loading import keep_layers, with_modules, with_pooling
from st_extras.encoders.prompt_template import PLAIN, PROMPT_EOL, set_prompt_template
from st_extras.modules import CorpusStatistics
from st_extras.modules.linear import Affine

EMBED_FILTER = ("EmbedFilter", CITATIONS["wu2026unembedding"])
WHITENING = ("Whitening", CITATIONS["su2021whitening"])
"""Names and citations of transforms, for the model card."""
PROMPTS = {"": PLAIN, "PromptEOL ": PROMPT_EOL}
"""By how they begin an extraction's name."""
_LAYERS = 6
_POOLINGS = ("mean", "weightedmean", "lasttoken")
_DIMENSIONS = 256
_SOFT = 0.1  # epsilon of soft whitening
_EDGE = 1 / 16  # of all dimensions, at either end of the spectrum, which EmbedFilter leaves out


def is_language_model(model: SentenceTransformer) -> bool:
    """Whether this is a causal language model alone: no default prompt or template, nothing after one pooling."""
    modules: list[Any] = list(model)
    if model.transformers_model is None or len(modules) != 2 or not isinstance(modules[1], Pooling):
        return False
    kind = model.transformers_model.config.model_type  # its weights may have been saved without the output layer
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES  # not BERT
    alone = "message" not in modules[0].modality_config and model.default_prompt_name is None
    return causal and alone and isinstance(modules[1].pooling_mode, str)


class LayerPooling(nn.Module):
    """Pools layers of one pass as encoders that are cut to them would: after the final norm, in several ways.

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
    """Return the module whose output is that of the whole transformer, found by encoding a word; else an identity."""
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
    same = (one for one, output in outputs.items() if torch.is_tensor(output) and output.shape == last.shape)
    return next((one for one in same if torch.equal(outputs[one], last)), nn.Identity())


@dataclass(frozen=True, eq=False)
class Grid:
    """The embeddings of M texts by all prompts, layers and poolings.

    M is less than the number of texts given where encoding stopped at its deadline: the first M are there.

    Attributes:
        embeddings: (T, M, K, P, D): T prompts, K layers, P poolings. The first prompt is none, the last layer the
            model's last, the first pooling the model's own.
        layers: their numbers.
        poolings: their names.
    """

    embeddings: Tensor = field(repr=False)
    layers: list[int]
    poolings: list[str]

    @property
    def base(self) -> Tensor:
        """(M, D) by the base model: the text alone, its last layer and its own pooling."""
        return self.embeddings[0, :, -1, 0]

    def of_texts(self, rows: Tensor) -> Grid:
        """Return the grid of the texts with these numbers, in this order."""
        return dataclasses.replace(self, embeddings=self.embeddings[:, rows])


def encode_grid(
    model: SentenceTransformer, texts: Sequence[str], encode: Callable[[SentenceTransformer, list[str]], Tensor]
) -> Grid:
    """Encode texts by all prompts, layers and poolings, in one pass for each prompt.

    Args:
        model: a language model.
        texts: N texts.
        encode: returns the embeddings of texts by a model, or those of the first of them, an even number. The prompts
            of a text stand side by side, so that M <= N texts have all of theirs.
    """
    config, pooling = cast(Any, model.transformers_model).config, cast(Any, model[1])
    total, dimension = int(config.num_hidden_layers), int(pooling.embedding_dimension)
    layers = sorted({max(1, round(total * k / _LAYERS)) for k in range(1, _LAYERS + 1)})
    poolings = list(dict.fromkeys([pooling.pooling_mode, *_POOLINGS]))
    several = LayerPooling(layers, final_norm(model), Pooling(dimension, pooling_mode=tuple(poolings)))
    prompted = [prompt.replace("{}", text) for text in texts for prompt in PROMPTS.values()]
    before, config.output_hidden_states = config.output_hidden_states, True
    try:
        embeddings = encode(with_modules(model, [model[0], several]), prompted)  # (M T, K P D)
    finally:
        config.output_hidden_states = before
    count = len(embeddings) // len(PROMPTS)
    by_text = embeddings.view(count, len(PROMPTS), len(layers), len(poolings), dimension)
    return Grid(by_text.transpose(0, 1), layers, poolings)


@dataclass(frozen=True, eq=False)
class Extraction:
    """A way to make sentence embeddings with a language model.

    Attributes:
        prompt: the template around a text.
        layer: number of the layer that becomes the last one, from 1.
        pooling: of that layer's tokens.
        place: prompt, layer and pooling in a :class:`Grid`.
        title: of prompt, layer and pooling.
        transform_name: what follows, for the table; empty if nothing does.
        transform: what follows.
        method: its name and citation for the model card.
    """

    prompt: str
    layer: int
    pooling: str
    place: tuple[int, int, int]
    title: str
    transform_name: str = ""
    transform: Affine | None = field(default=None, repr=False)
    method: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """In the table."""
        return f"{self.title} + {self.transform_name}" if self.transform_name else self.title

    def embeddings(self, grid: Grid) -> Tensor:
        """Return the (M, k) embeddings of a grid's texts."""
        prompt, layer, pooling = self.place
        return transformed(grid.embeddings[prompt, :, layer, pooling], self.transform)

    def encoder(self, model: SentenceTransformer) -> SentenceTransformer:
        """Return a copy of the language model with the prompt, cut to the layer, with the pooling, no transform."""
        encoder = copy.deepcopy(model)
        keep_layers(encoder, self.layer)
        encoder = with_pooling(encoder, self.pooling)  # type: ignore[arg-type]
        set_prompt_template(encoder, self.prompt)
        return encoder


def extractions(
    grid: Grid, prompt: int, layer: int, fitting_rows: slice, filter_transform: Affine | None
) -> Iterator[Extraction]:
    """Yield the extractions from a layer with a prompt: each pooling alone, filtered, and with each whitening.

    Args:
        grid: embeddings of the corpus.
        prompt: number of the prompt in it.
        layer: number of the layer in it.
        fitting_rows: the texts of it that whitenings are computed from.
        filter_transform: EmbedFilter's, see :func:`embed_filter`; None: it is not tried.
    """
    begins, template = list(PROMPTS.items())[prompt]
    for place, pooling in enumerate(grid.poolings):
        title = f"{begins}layer {grid.layers[layer]} {pooling}"
        alone = Extraction(template, grid.layers[layer], pooling, (prompt, layer, place), title)
        yield alone
        if filter_transform is not None:
            name = EMBED_FILTER[0]
            yield dataclasses.replace(alone, transform_name=name, transform=filter_transform, method=EMBED_FILTER)
        for name, whitening in whitenings(alone.embeddings(grid)[fitting_rows]):
            yield dataclasses.replace(alone, transform_name=name, transform=whitening, method=WHITENING)


def embed_filter(model: SentenceTransformer, edge: float = _EDGE) -> Affine | None:
    """Return the matrix (D, k) and offset (k,) of EmbedFilter (arXiv 2606.07502), a transform that needs no text.

    It leaves out the first and the last singular vectors of the unembedding matrix, where frequent words stand. That
    matrix is not read by Sentence Transformers: None is returned unless it is that of the input embeddings.

    Args:
        model: starts with a language model.
        edge: which share of the D singular vectors is left out at either end, from 0 to below 0.5.

    Raises:
        ValueError: if the model does not start with a transformer, or ``edge`` is not allowed.
    """
    check_interval("edge", edge, 0, 0.5, high_included=False)
    body = cast(Any, model.transformers_model)
    if body is None:
        raise ValueError(f"model must start with a transformer, got {type(model[0]).__name__}.")
    if not body.config.tie_word_embeddings:
        return None
    words = body.get_input_embeddings().weight.detach().cpu()
    _, vectors = torch.linalg.eigh(sum(rows.double().T @ rows.double() for rows in words.split(16_384)))
    kept = vectors[:, round(edge * len(vectors)) : len(vectors) - round(edge * len(vectors))]
    return Affine(kept, torch.zeros(kept.size(1)))


def whitenings(fitting: Tensor) -> Iterator[tuple[str, Affine]]:
    """Yield the names and transforms of both whitenings of (F, D) embeddings; none if these do not vary."""
    statistics = CorpusStatistics(fitting.size(1)).update(fitting)
    if not statistics.varies:
        return
    variances, directions = statistics.principal_directions()
    soft = (directions * (variances.clamp(min=0) + _SOFT * variances.mean()).rsqrt()) @ directions.T
    count = min(_DIMENSIONS, len(fitting) // 2, fitting.size(1))
    full = directions[:, :count] * variances[:count].clamp(min=1e-10 * float(variances[0])).rsqrt()
    for name, kernel in (("soft whitening", soft), (f"whitening to {count}", full)):
        yield name, Affine(kernel, -statistics.mean @ kernel)
