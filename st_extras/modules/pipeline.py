"""What the post-processing modules share: passes through a part of a model, saving and loading, the model card."""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData
from torch import Tensor, nn

from st_extras.modules.loading import with_modules

_CHUNK = 2048
_Module = TypeVar("_Module", bound=Module)


@dataclass
class PostProcessedModelCardData(SentenceTransformerModelCardData):
    """The card of a model with a module of this package: its usage says both ways to load it."""

    def generate_usage_snippet(self) -> str:
        """The usual snippet, with the flag that Sentence Transformers asks for and ``st_extras.load`` beside it."""
        name = self.model_id or "sentence_transformers_model_id"
        plain = f'model = SentenceTransformer("{name}")'
        both = (
            '# Needs its post-processing module: pip install "st-extras[text]"\n'
            f'model = SentenceTransformer("{name}", trust_remote_code=True)\n'
            f'# or, without that flag:  import st_extras; model = st_extras.load("{name}")'
        )
        return super().generate_usage_snippet().replace(plain, both)


def build_model(model: SentenceTransformer, modules: Sequence[nn.Module]) -> SentenceTransformer:
    """A new model of ``modules`` with the prompts and settings of ``model``; weights are shared, not copied."""
    old = model.model_card_data
    card = PostProcessedModelCardData(
        language=old.language, license=old.license, generate_widget_examples=old.generate_widget_examples
    )
    card.base_model, card.base_model_revision = old.base_model, old.base_model_revision
    return with_modules(model, modules, truncate_dim=model.truncate_dim, model_card_data=card)


def view(module: Module, modules: Sequence[nn.Module]) -> SentenceTransformer:
    """The model that ``module`` is part of with other modules, for one pass: nothing is built or moved."""
    part = copy.copy(owner(module))
    part._modules = OrderedDict((str(i), module) for i, module in enumerate(modules))
    part.truncate_dim = None
    return part


def split_before_normalize(model: SentenceTransformer) -> tuple[list[nn.Module], list[nn.Module]]:
    """Modules up to the trailing ``Normalize`` modules, and those: post-processing belongs in between."""
    modules = list(model)
    cut = len(modules)
    while cut and isinstance(modules[cut - 1], Normalize):
        cut -= 1
    return modules[:cut], modules[cut:]


def embedding_dimension(modules: Sequence[nn.Module]) -> int:
    """Size of the embeddings that leave ``modules``."""
    for module in reversed(modules):
        if isinstance(module, Module) and hasattr(module, "get_embedding_dimension"):
            return int(module.get_embedding_dimension())
    raise ValueError(f"model must end in a module that knows its embedding dimension; got {list(modules)!r}")


def stream_embeddings(
    model: SentenceTransformer, sentences: Iterable[str], *, batch_size: int, show_progress_bar: bool
) -> Iterator[Tensor]:
    """Embeddings of ``sentences`` in float64 on the CPU, a chunk (<= 2048, D) at a time, so memory stays flat.

    Raises:
        ValueError: for no sentence, an item that is not text, or an embedding that is not finite (it is named).
    """
    if isinstance(sentences, str):
        raise ValueError(f"sentences must be a list of texts, not one text; got {sentences!r}")
    iterator, done = iter(sentences), 0
    while chunk := list(itertools.islice(iterator, _CHUNK)):
        for i, sentence in enumerate(chunk):
            if not isinstance(sentence, str):
                raise ValueError(f"sentences must be texts; number {done + i} is {sentence!r}")
        embeddings = model.encode(
            chunk, batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
        )
        embeddings = embeddings.to("cpu", torch.float64)  # (N, D)
        finite = embeddings.isfinite().all(dim=1)
        if not finite.all():
            i = int((~finite).int().argmax())
            raise ValueError(f"the embedding of sentence {done + i} is not finite (NaN or infinity): {chunk[i]!r}")
        done += len(chunk)
        yield embeddings
    if done == 0:
        raise ValueError("sentences must hold at least one text; got none")


def as_dense(weight: Tensor, bias: Tensor) -> Dense:
    """A stock ``Dense`` module x -> weight x + bias, which loads without this package."""
    size_out, size_in = weight.shape
    return Dense(size_in, size_out, activation_function=None, init_weight=weight.contiguous(), init_bias=bias)


def owner(module: Module) -> SentenceTransformer:
    """The model that ``module`` is part of, which ``on_model_ready`` told it."""
    model: SentenceTransformer | None = module.__dict__.get("_owner")
    if model is None or not any(part is module for part in model):
        raise ValueError(
            f"this {type(module).__name__} is not part of a model: build it with {type(module).__name__}.attach, "
            "or pass it to SentenceTransformer(modules=[...]) (append does not tell it)"
        )
    return model


def remember_owner(module: Module, model: Any) -> None:
    """Keep the model without making it a child of its own part."""
    object.__setattr__(module, "_owner", model)


def modules_before(module: Module) -> list[nn.Module]:
    """The modules of the owning model that come before ``module``."""
    return list(itertools.takewhile(lambda part: part is not module, owner(module)))


def save_module(module: Module, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
    """What ``Module.save`` is for a module with settings and buffers."""
    module.save_config(output_path)
    module.save_torch_weights(output_path, safe_serialization=safe_serialization)


def load_module(cls: type[_Module], model_name_or_path: str, **kwargs: Any) -> _Module:
    """What ``Module.load`` is for a module with settings and buffers, from a folder or the Hub."""
    hub = hub_options(kwargs)
    module = cls(**cls.load_config(model_name_or_path, **hub))
    return cls.load_torch_weights(model_name_or_path, model=module, **hub)  # type: ignore[no-any-return]


def hub_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Of the many arguments of a module's ``load``, those that say where a file is."""
    names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
    return {name: kwargs[name] for name in names if name in kwargs}


def load(model_name_or_path: str, **kwargs: Any) -> SentenceTransformer:
    """Load a saved model with RepAL or whitening in it, without ``trust_remote_code=True``.

    Sentence Transformers asks for that flag for every module of another package. The modules of THIS package are
    installed already, so they alone are let in: any other custom code in the folder is refused as before.

    Args:
        model_name_or_path: folder, or name on the Hugging Face Hub.
        **kwargs: as for ``SentenceTransformer``.
    """
    from st_extras.modules.partial_mask import PartialMaskTransformer
    from st_extras.modules.repal import RepALPostProcessor
    from st_extras.modules.whitening import WhiteningPostProcessor

    classes = {
        f"{module.__module__}.{module.__name__}": module
        for module in (PartialMaskTransformer, RepALPostProcessor, WhiteningPostProcessor)
    }
    return SentenceTransformer._load_with_module_classes(str(model_name_or_path), classes, **kwargs)
