"""Loading an encoder: cut to its first layers, with another pooling, dropout, or text around every sentence."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast, get_args

import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from sentence_transformers.util import is_sentence_transformer_model, load_file_path
from torch import nn

from st_extras.checks import check_choice, check_count, shown
from st_extras.encoder_names import find_encoder
from st_extras.encoders.dropout import set_dropout
from st_extras.encoders.prompt_template import PLAIN, set_prompt_template
from st_extras.encoders.prompts import name_prompts
from st_extras.encoders.structure import fix_padding_side, lacks_pooling
from st_extras.files import why_unreadable

logger = logging.getLogger(__name__)
PoolingName = Literal["cls", "mean", "weightedmean", "max", "lasttoken", "first-last", "last-two"]
DtypeName = Literal["float32", "bfloat16", "float16"]
_HEADS = re.compile(r"For(Sequence|Token)Classification|ForQuestionAnswering|ForMultipleChoice|ColBERT", re.IGNORECASE)
"""In the names of architectures whose head makes the output; a masked LM's head may be there for pre-training alone."""
_PER_LAYER = ("attention_window",)
"""Settings with an item for each layer, besides those whose name contains "layer"."""


def load_encoder(
    path: str | PathLike[str],
    *,
    pooling: PoolingName | None = None,
    layers: int | None = None,
    max_seq_length: int | None = None,
    dropout: float | None = None,
    prompt_template: str | None = None,
    dtype: DtypeName | None = None,
    device: str | None = None,
    module_classes: Mapping[str, type[nn.Module]] | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Load a SentenceTransformer or a plain transformer, from a folder or the hub.

    The result has only modules of Sentence Transformers, so that a saved one loads without this package. Weights that
    no file has, such as an unused pooler's, are the same at every call, and no global random state changes. A plain
    transformer gets mean pooling, or that of its last token if it was saved as a causal language model. A tokenizer
    without a padding token (GPT-2, Llama) pads with its end-of-text token, which is masked. Sentence Transformers puts
    the chat template of an instruction-tuned model around every text; here a plain transformer reads the text alone. It
    also lets its empty "document" prompt hide a model's "passage" or "corpus"; here that one stands for it.

    Args:
        path: a folder, a hub id, or "demo", the encoder of the extra ``demo`` (all-MiniLM-L6-v2).
        pooling: "cls", "mean", "max", "first-last" (mean over tokens of the average of the first and the last layer),
            "last-two"; for decoders, whose later tokens have seen more of the text, "weightedmean" (a token's weight is
            its place in the text), or "lasttoken" with a prompt such as PromptEOL. It replaces everything after the
            transformer, including a Normalize, and a head of another kind of model. None: keep the model's own modules.
        layers: number of transformer layers to keep, from the first. None: all. The last layer of a decoder is rarely
            its best for sentences.
        max_seq_length: most tokens of a text, with those of ``prompt_template``. None: the model's own, if
            it has positions for as many.
        dropout: probability of dropping a value in training, in [0, 1), see
            :func:`~st_extras.encoders.dropout.set_dropout`. Most encoders made since 2024 have none, and views by
            dropout need one: 0.1 is BERT's. It is saved with the model. None: the model's own.
        prompt_template: text around every sentence, with one ``{}`` where the sentence goes, see
            :func:`~st_extras.encoders.prompt_template.set_prompt_template`; for decoders with ``pooling="lasttoken"``
            'This sentence: "{}" means in one word: "' (PromptEOL). "{}": the sentence alone. It is saved with the
            model. None: a model of Sentence Transformers keeps its own, a plain transformer reads the sentence alone.
        dtype: "float32", "bfloat16" or "float16": what the weights are loaded as. None: as SentenceTransformer does,
            which is for most models what they were saved as. Train all weights in float32, and in bfloat16 only
            adapters (``lora`` of :func:`~st_extras.training.train_encoder`).
        device: None: a GPU if there is one.
        module_classes: classes of modules besides those of Sentence Transformers that the files may name, by the name
            that they have there: :func:`st_extras.modules.load` gives those of this package.
        options: further arguments of SentenceTransformer.

    Raises:
        ValueError: if no encoder can be loaded from the path, it is a model whose output is no pooled embedding (a
            cross-encoder, a classifier, SPLADE, ColBERT) and no ``pooling`` is given, or an option does not fit it.
    """
    if max_seq_length is not None:
        max_seq_length = check_count("max_seq_length", max_seq_length, at_least=3)
    if dtype is not None:
        check_choice("dtype", dtype, get_args(DtypeName))
        options["model_kwargs"] = (options.get("model_kwargs") or {}) | {"dtype": dtype}
    if not isinstance(path, str | PathLike):
        raise ValueError(f"path must be a folder or a hub id, got {shown(path)}.")
    path = find_encoder(path, revision=options.get("revision"))
    options_of_files = {"device": device, **options}
    model = _load_files(path, options_of_files, module_classes or {}, replaces_pooling=pooling is not None)
    name_prompts(model)
    fix_padding_side(model)
    _give_padding_token(model)
    if layers is not None:
        keep_layers(model, layers)
        averages = [module for module in model if isinstance(module, WeightedLayerPooling)]
        if pooling is None and any(module.num_hidden_layers > layers for module in averages):
            raise ValueError(
                f"pooling must be given with layers={layers}: the encoder's own averages layers by their number."
            )
    if pooling is not None:
        model = with_pooling(model, pooling, **{k: v for k, v in options.items() if k == "model_card_data"})
    if dropout is not None:
        set_dropout(model, dropout)
    if prompt_template is None and _gets_chat_template(model, path, options):
        prompt_template = PLAIN
        logger.warning(
            "The tokenizer's chat template is not used: each text is encoded alone, as with prompt_template='{}'."
        )
    if prompt_template is not None:
        set_prompt_template(model, prompt_template)
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
        check_length(model)
    else:
        longest = _most_positions(model)
        if longest is not None and longest < (model.max_seq_length or 0):
            model.max_seq_length = longest  # RoBERTa's, as the library counts them
    return model


def _load_files(
    path: str, options: Mapping[str, Any], module_classes: Mapping[str, type[nn.Module]], *, replaces_pooling: bool
) -> SentenceTransformer:
    """Return the model of an encoder's files as Sentence Transformers has it; whatever goes wrong names the path."""
    folder = Path(path)
    if not replaces_pooling:
        _check_model_kind(path, options)
    if folder.is_file():
        raise ValueError(f"{path!r} is a file: give the encoder's folder or hub id.")
    if (folder / "config_sentence_transformers.json").is_file() and not (folder / "modules.json").is_file():
        raise ValueError(  # the pooling would be guessed, and what follows it lost
            f"{path!r} is incomplete: config_sentence_transformers.json is there and modules.json, which names the "
            "pooling, is not: save the model again."
        )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # weights that no file has, such as an unused pooler's
            # no public argument allows known modules without allowing any code in the folder
            model = SentenceTransformer._load_with_module_classes(path, module_classes, **options)  # noqa: SLF001
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no reason given"]
        reason = " ".join(" ".join(lines[: 2 if lines[0].endswith(":") else 1]).split()).rstrip(".")
        where = "" if folder.exists() else "there is no such folder, and from the hub: "
        files = sorted(file for ending in ("safetensors", "bin", "json") for file in folder.rglob(f"*.{ending}"))
        damaged = {file: why for file in files if (why := why_unreadable(file)) is not None}
        if damaged:  # what the loader reports of such a file may be an EOFError without a word
            file, reason = next(iter(damaged.items()))
            where, reason = f"{file.relative_to(folder)} cannot be read: ", reason.rstrip(".")
        elif "trust_remote_code=True" in str(error):
            reason += "; load_encoder(path, trust_remote_code=True) runs it in Python"
        raise ValueError(
            f"{path!r} could not be loaded as an encoder: {where}{type(error).__name__}: {reason}."
        ) from error
    _warn_of_missing_weights(model, path)
    if not replaces_pooling:
        _check_pooling(model, path)
    return model


def _warn_of_missing_weights(model: SentenceTransformer, path: str) -> None:
    """Warn if the files of a model lack weights of its transformer: those are random now. An unused pooler's may lack.

    transformers reports them too, which the command line hides. It returns their names only to who loads the
    transformer, which is Sentence Transformers; so this reads its mark of loaded weights, which quantized ones lack.
    """
    bodies = [module.auto_model for module in model.modules() if isinstance(module, Transformer)]
    plain = [body for body in bodies if isinstance(body, nn.Module) and not hasattr(body.config, "quantization_config")]
    weights = [pair for body in plain for pair in body.named_parameters() if "pooler" not in pair[0]]
    missing = [name for name, value in weights if not hasattr(value, "_is_hf_initialized")]
    if missing:
        logger.warning(
            "The files of %r lack %d weights of the encoder, such as %r, which are random now: get all of its files.",
            path,
            len(missing),
            missing[0],
        )


def _check_model_kind(path: str, options: Mapping[str, Any]) -> None:
    """Refuse a model of another kind, which Sentence Transformers would load without its head, with mean pooling.

    Args:
        path: a folder or a hub id.
        options: of SentenceTransformer, among them where the files are.

    Raises:
        ValueError: if its output is not a pooled embedding: scores of pairs or classes, sparse or token embeddings.
    """
    kind = _read_config(path, "config_sentence_transformers.json", options).get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        ours = f"sentence_transformers.{kind}" if hasattr(sentence_transformers, kind) else "the package that saved it"
        raise ValueError(
            f"{path!r} must be an encoder with one pooled embedding of each text, got a {kind}: load it with "
            f"{ours}, or use the encoder that it was made from."
        )
    if _read_config(path, "modules.json", options):
        return
    for architecture in _read_config(path, "config.json", options).get("architectures") or []:
        if _HEADS.search(architecture):
            raise ValueError(
                f"{path!r} must be an encoder with one pooled embedding of each text, got a {architecture}, whose "
                "output is another one: use the encoder that it was made from, or a model of Sentence Transformers."
            )


def _read_config(path: str, name: str, options: Mapping[str, Any]) -> Any:
    """Return what a model's JSON file holds; nothing if it is not there or is damaged, which loading reports."""
    with suppress(OSError, ValueError):
        if (file := load_file_path(path, name, **_place_of(options))) is not None:
            return json.loads(Path(file).read_text(encoding="utf8"))
    return {}


def _place_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of SentenceTransformer that locate the files of a model."""
    return {
        name: options[name] for name in ("token", "cache_folder", "revision", "local_files_only") if name in options
    }


def _check_pooling(model: SentenceTransformer, path: str) -> None:
    """Refuse a model whose token embeddings no module pools, which would fail at its first text.

    Raises:
        ValueError: if :func:`lacks_pooling`.
    """
    if lacks_pooling(model):
        raise ValueError(
            f"{path!r} must be an encoder with one pooled embedding of each text, got one without pooling: "
            "load it with load_encoder(..., pooling='mean') and save that."
        )


def _give_padding_token(model: SentenceTransformer) -> None:
    """Let a tokenizer without a padding token pad with its end-of-text token, which the attention mask leaves out."""
    tokenizer: Any = getattr(next(model.children(), None), "tokenizer", None)
    if getattr(tokenizer, "pad_token", "") is not None or tokenizer.eos_token is None:
        return  # without both, transformers says at the first batch what to set
    tokenizer.pad_token = tokenizer.eos_token
    logger.info(
        "The tokenizer has no padding token: batches are padded with its end-of-text token %r.", tokenizer.pad_token
    )


def _gets_chat_template(model: SentenceTransformer, path: str | PathLike[str], options: dict[str, Any]) -> bool:
    """Whether Sentence Transformers uses the chat template although the files are a plain transformer's."""
    if "message" not in getattr(next(model.children(), None), "modality_config", ()):
        return False
    return not is_sentence_transformer_model(str(path), **_place_of(options))


def _most_positions(model: nn.Module) -> int | None:
    """Return how many tokens an encoder has a row of its table of positions for; None if it has no table."""
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, nn.Embedding):  # RoBERTa counts from its padding
            return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return None


def check_length(model: SentenceTransformer) -> None:
    """Refuse an encoder that would fail at a long text, before it reads any.

    Raises:
        ValueError: if its max_seq_length is larger than the number of positions that it knows.
    """
    for part in (part for part in model.modules() if isinstance(part, Transformer)):  # several in a Router
        longest = _most_positions(part)
        if longest is not None and (part.max_seq_length or 0) > longest:
            raise ValueError(f"max_seq_length must be <= {longest} for this encoder, got {part.max_seq_length}.")


def _transformer(model: SentenceTransformer) -> Transformer:
    first = next(model.children())
    if not isinstance(first, Transformer):
        raise ValueError(
            f"pooling and layers need an encoder that starts with a transformer, got {type(first).__name__}."
        )
    return first  # type: ignore[no-any-return]


def keep_layers(model: SentenceTransformer, layers: int) -> None:
    """Cut a transformer to its first layers, in place.

    Raises:
        ValueError: if it has fewer layers, or they cannot be found.
    """
    body: Any = _transformer(model).auto_model
    config = body.config
    total = int(config.num_hidden_layers)
    if (layers := check_count("layers", layers, 1, total)) == total:
        return
    stacks = [m for m in body.modules() if isinstance(m, nn.ModuleList) and len(m) == total]
    if len(stacks) != 1:
        raise ValueError(f"layers={layers} is not possible: the layers of a {type(body).__name__} could not be found.")
    try:
        config.num_hidden_layers = layers
    except NotImplementedError as error:
        raise ValueError(f"layers={layers} is not possible: {error}") from error
    del stacks[0][layers:]
    body.cut_in_memory = True  # until it is saved and loaded: its checkpoint has all layers
    for name, value in list(vars(config).items()):  # settings of each layer, such as layer_types
        if (name in _PER_LAYER or "layer" in name) and isinstance(value, list | tuple) and len(value) == total:
            setattr(config, name, value[:layers])


def with_pooling(model: SentenceTransformer, pooling: PoolingName, **options: Any) -> SentenceTransformer:
    """Return the transformer of ``model`` (shared, not copied) with the pooling of that name.

    Args:
        model: starts with a transformer.
        pooling: see :func:`load_encoder`.
        options: further arguments of SentenceTransformer.
    """
    check_choice("pooling", pooling, get_args(PoolingName))
    transformer = _transformer(model)
    dimension = transformer.get_embedding_dimension()
    modules: list[nn.Module] = [transformer]
    mode = pooling
    if pooling in ("first-last", "last-two"):
        config = cast(Any, transformer.auto_model.config)
        config.output_hidden_states = True
        total = int(config.num_hidden_layers)
        if total < 2:
            raise ValueError(f"pooling must not be {pooling!r} for an encoder of one layer: 'mean' is the same.")
        weights = torch.zeros(total)  # layers 1 .. total, the embedding layer left out
        weights[[0, -1] if pooling == "first-last" else slice(-2, None)] = 1.0
        averaged = WeightedLayerPooling(dimension, num_hidden_layers=total, layer_start=1)
        averaged.layer_weights = nn.Parameter(weights, requires_grad=False)
        modules.append(averaged)
        mode = "mean"
    modules.append(Pooling(dimension, pooling_mode=mode))
    return with_modules(model, modules, **options)


def with_modules(model: SentenceTransformer, modules: Sequence[nn.Module], **options: Any) -> SentenceTransformer:
    """Return a model of ``modules`` with the device, prompts, truncation and similarity function of ``model``.

    A module of ``model`` keeps the arguments of ``encode`` that reach it; what replaces one at its place gets them.
    """
    rebuilt = SentenceTransformer(
        modules=list(modules),
        device=str(model.device),
        prompts=model.prompts,  # type: ignore[arg-type]
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=model.truncate_dim,
        **options,
    )
    if model.module_kwargs:
        rebuilt.module_kwargs = _arguments_of(model, modules)
    return rebuilt


def _arguments_of(model: SentenceTransformer, modules: Sequence[nn.Module]) -> dict[str, list[str]]:
    """Return which arguments of ``encode`` reach each of ``modules``, as ``model`` has it, by their new names."""
    kept = {id(module) for module in modules}
    names = {}
    for i, (name, module) in enumerate(model.named_children()):
        if id(module) in kept:
            names[id(module)] = name
        elif i < len(modules):
            names.setdefault(id(modules[i]), name)
    given: dict[str, list[str]] = model.module_kwargs or {}
    return {str(i): given.get(names.get(id(module), ""), []) for i, module in enumerate(modules)}
