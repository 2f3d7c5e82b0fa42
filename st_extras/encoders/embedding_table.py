"""A guide's embeddings of the training sentences, computed once and looked up by their token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_choice, check_count, check_instance, shown
from st_extras.encoders.device_pool import device_pool
from st_extras.encoders.frozen import guide_name, load_guide
from st_extras.encoders.recovered_texts import token_rows
from st_extras.encoders.rows import Features
from st_extras.encoders.table_computing import SentenceEmbedder, check_guide_options, compute_folder
from st_extras.encoders.table_file import read_table_file, write_table_file
from st_extras.encoders.table_folder import TableFolder, folder_path, merge_folders
from st_extras.text.corpus import check_sentence, iterate_sentences
from st_extras.text.vocabularies import vocabulary, vocabulary_hash


class EmbeddingTable(nn.Module):
    """A guide's embeddings of the training sentences, computed once and looked up by their token ids.

    A loss does not see texts, so the key of a sentence is its unpadded token ids, as the trained model's tokenizer
    gives them with its max_seq_length and prompt. Use :meth:`compute` to make a table: in memory, on the model's
    device, or for millions of sentences in a folder, from which the rows of each batch are fetched on the CPU.

    Args:
        keys: token ids of each of the N sentences.
        embeddings: (N, D), row i belongs to ``keys[i]``; stored normalised, in float32.
        vocabulary: hash of the vocabulary that the ids belong to, which :meth:`check_tokenizer` compares. None: not
            known.

    Raises:
        ValueError: if ``keys`` is empty, not token ids or of another length than ``embeddings``, or these are not
            finite (N, D) floating-point numbers.
    """

    def __init__(self, keys: Sequence[Sequence[int]], embeddings: Tensor, vocabulary: str | None = None) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.path: Path | None = None  # of the file, once there is one
        self._folder: TableFolder | None = None
        check_instance("keys", keys, Sequence)
        check_instance("embeddings", embeddings, Tensor)
        if embeddings.ndim != 2 or not embeddings.is_floating_point():
            raise ValueError(
                f"embeddings must be (N, D) floating-point numbers, got {embeddings.dtype} of shape "
                f"{tuple(embeddings.shape)}."
            )
        if len(keys) != len(embeddings) or len(keys) == 0:
            raise ValueError(
                f"keys and embeddings must have the same length > 0, got {len(keys)} and {len(embeddings)}."
            )
        if not bool(torch.isfinite(embeddings).all()):
            raise ValueError("embeddings must be finite, got NaN or infinity.")
        try:
            self._index = {tuple(map(index, key)): row for row, key in enumerate(keys)}
        except TypeError as error:
            raise ValueError(f"keys must be the token ids of each sentence, got {shown(keys)}.") from error
        self._hidden = [  # in a list, so that nn.Module does not register it
            F.normalize(embeddings.detach().float(), dim=-1)
        ]

    @classmethod
    def _of(cls, folder: TableFolder) -> EmbeddingTable:
        table = cls.__new__(cls)
        nn.Module.__init__(table)
        table.vocabulary, table.path, table._folder = folder.settings["vocabulary"], folder.path, folder
        return table

    @property
    def embeddings(self) -> Tensor:
        """All embeddings, (N, D), normalised.

        Raises:
            ValueError: if the table is in a folder.
        """
        if self._folder is not None:
            raise ValueError(f"embeddings must fit into memory, got the folder {str(self.path)!r}: look rows up.")
        return self._hidden[0]

    @property
    def name(self) -> str:
        """The name of the file or folder, if there is one, and the size; for the model card."""
        file = f"{self.path.name} " if self.path else ""
        dimension = self._folder.dimension if self._folder else self.embeddings.size(1)
        return f"EmbeddingTable {file}of {len(self)} sentences, {dimension} dimensions"

    def __len__(self) -> int:
        return self._folder.count if self._folder else len(self._index)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EmbeddingTable:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._folder is None:
            self._hidden[0] = fn(self._hidden[0])
        return self

    @classmethod
    def compute(
        cls,
        model: SentenceTransformer,
        complementary_model: SentenceTransformer | str | PathLike[str],
        sentences: Iterable[str],
        *,
        prompt: str | None = None,
        batch_size: int = 64,
        show_progress_bar: bool = True,
        folder: str | PathLike[str] | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        encode_options: Mapping[str, Any] | None = None,
    ) -> EmbeddingTable:
        """Encode the distinct sentences with the guide.

        With a ``folder``, sentences are read as a stream, once, and written in chunks: memory holds one chunk and 16
        bytes of each sentence. If it is interrupted, the same call goes on after the last chunk that was written; with
        sentences added at the end, it adds them. Shards of a corpus can be computed in folders of their own and
        joined with :meth:`merge`.

        Of a text that the model's max_seq_length cuts, a guide of the same vocabulary sees what is left, as it does in
        training without a table.

        Args:
            model: the model to be trained: its tokenizer and max_seq_length make the keys.
            complementary_model: the guide, or its path or hub id.
            sentences: all training texts (both columns of pairs), or a data set with a column of them.
            prompt: the prompt that training puts before the sentences, if any.
            batch_size: sentences per call, for tokenizing and encoding.
            show_progress_bar: show a progress bar.
            folder: where to write the table: a new or empty folder, or one of an earlier call with the same settings
                and sentences. None: the table is held in memory.
            dtype: of the vectors in the folder; "float16" halves it, and changes cosines by about 1e-3.
            encode_options: device, pool and chunk_size for the guide's ``encode``: ``{"device": ["cuda:0", "cuda:1"]}``
                encodes in one process a device.

        Raises:
            ValueError: if there are no sentences, one is not a string, ``batch_size`` is not a whole number >= 1,
                ``prompt`` is not text, ``dtype`` is given without a folder, an option is another one, or the folder
                holds something else.
        """
        batch_size = check_count("batch_size", batch_size, at_least=1)
        if check_choice("dtype", dtype, ("float32", "float16")) != "float32" and folder is None:
            raise ValueError(f'dtype must be "float32" without a folder, got {dtype!r}.')
        target = None if folder is None else folder_path("folder", folder)
        prompt = None if prompt is None else check_sentence(prompt, "prompt")
        stream = iterate_sentences(sentences)
        texts = [] if folder is not None else list(dict.fromkeys(stream))
        if folder is None and not texts:
            raise ValueError("sentences must hold at least one sentence, got none.")
        guide = load_guide(complementary_model, model)
        known = _vocabulary(model.tokenizer)
        with device_pool(guide, check_guide_options(encode_options)) as options:
            embedder = SentenceEmbedder(model, guide, prompt, batch_size, options)
            if target is None:
                keys = embedder.keys(texts)
                embeddings = embedder.embed(texts, keys, show_progress_bar=show_progress_bar)
                return cls(keys, embeddings.to(model.device), known)
            settings: dict[str, Any] = {"vocabulary": known, "guide": guide_name(complementary_model), "prompt": prompt}
            settings |= {"max_seq_length": model.max_seq_length, "dtype": dtype}
            return cls._of(compute_folder(embedder, stream, target, settings, show_progress_bar=show_progress_bar))

    @classmethod
    def merge(cls, tables: Sequence[str | PathLike[str]], folder: str | PathLike[str]) -> EmbeddingTable:
        """Join the folders of tables that were computed over shards of a corpus, with the same settings, into one.

        Vectors are linked where the file system allows it, and copied elsewhere. A sentence that several have counts
        once, as the first has it.

        Args:
            tables: their folders.
            folder: the folder to make: new or empty.

        Raises:
            ValueError: if there is none, one is not a complete folder, or their settings differ.
        """
        return cls._of(merge_folders(tables, folder_path("folder", folder)))

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Refuse a tokenizer with another vocabulary than the one that made the keys.

        Raises:
            ValueError: if both vocabularies are known and differ.
        """
        other = _vocabulary(tokenizer)
        if self.vocabulary is not None and other is not None and self.vocabulary != other:
            raise ValueError(
                "complementary_table must be computed with the trained model's tokenizer, got a table of another "
                "vocabulary: compute it again with EmbeddingTable.compute(model, ...)."
            )

    def forward(self, features: Features, decode: Callable[[list[int]], str] = str) -> Tensor:
        """Return the stored (B, D) embeddings of the features' sentences.

        Raises:
            ValueError: if a sentence is not in the table; ``decode`` turns its ids into text for the message.
        """
        keys = token_rows(features)
        found = self._folder.find(keys) if self._folder else [self._index.get(tuple(key)) for key in keys]
        rows = [row for row in found if row is not None]
        if len(rows) < len(keys):
            raise ValueError(
                f"complementary_table has no embedding for {decode(keys[found.index(None)])!r}: compute it over all "
                "training sentences, with the same tokenizer, max_seq_length and prompt."
            )
        if self._folder:
            return self._folder.fetch(rows).to(features["input_ids"].device)
        return self.embeddings[torch.tensor(rows, device=self.embeddings.device)]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table as one safetensors file, which replaces one of that name once it is complete.

        Raises:
            ValueError: if the file's folder does not exist, or the table is in a folder already.
        """
        if self._folder is not None:
            raise ValueError(f"save is for tables in memory, got one in the folder {str(self.path)!r}: copy that.")
        rows = torch.tensor(list(self._index.values()))
        write_table_file(path, list(self._index), self.embeddings.cpu()[rows], self.vocabulary)
        self.path = Path(path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EmbeddingTable:
        """Read the file that :meth:`save` wrote, or open the folder of :meth:`compute` or :meth:`merge`.

        Raises:
            ValueError: if there is no such file or folder, or it is damaged or another one; the message names it.
        """
        if Path(path).is_dir():
            return cls._of(TableFolder(path))
        keys, embeddings, vocabulary = read_table_file(path)
        table = cls(keys, embeddings, vocabulary)
        table.path = Path(path)
        table._hidden = [embeddings]  # already normalised: bit-equal to the saved table
        return table


def _vocabulary(tokenizer: Any) -> str | None:
    """Return the hash of a tokenizer's vocabulary; None if it is not one of the transformers library."""
    known = isinstance(tokenizer, PreTrainedTokenizerBase)
    return vocabulary_hash(vocabulary(tokenizer)) if known else None
