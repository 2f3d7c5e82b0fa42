"""Tasks of MTEB, the Massive Text Embedding Benchmark, by its own package (an extra)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer

from st_extras.checks import shown

if TYPE_CHECKING:
    from mteb import AbsTask


def mteb_tasks(names: str | Iterable[str]) -> list[AbsTask]:
    """Return MTEB's tasks by their names, such as "STS12" or "STSBenchmark"; no data is read yet.

    Raises:
        ImportError: if mteb is not installed.
        ValueError: if there is no name, or no task of that name; the message has the nearest one.
    """
    mteb = _mteb()
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted or not all(isinstance(name, str) and name for name in wanted):
        raise ValueError(f"names must hold the names of MTEB tasks, such as 'STS12', got {shown(names)}.")
    try:
        return [mteb.get_task(name) for name in wanted]
    except KeyError as error:  # its message has the nearest name
        message = str(error.args[0]).removeprefix("KeyError: ")
        raise ValueError(f"names must be names of MTEB tasks: {message}") from None


def mteb_scores(
    model: SentenceTransformer, tasks: Iterable[AbsTask], *, batch_size: int = 64, show_progress_bar: bool = False
) -> dict[str, float]:
    """Score a model on MTEB tasks, as ``mteb.evaluate`` does, without its store of results.

    A model with RepAL or whitening is scored with it. The prompts are those that MTEB finds in the model.

    Args:
        model: any SentenceTransformer.
        tasks: from :func:`mteb_tasks`, or your tasks.
        batch_size: sentences per forward pass.
        show_progress_bar: whether to show the progress of the tasks and of encoding.

    Returns:
        The main score of each task by its name, in [0, 1] or, for correlations, [-1, 1]: the mean over its splits and
        subsets. For STS it is the Spearman correlation of cosine and gold score.

    Raises:
        ImportError: if mteb is not installed.
        ValueError: if one of the tasks is none.
        OSError: if the data of a task cannot be loaded, for instance without a network.
    """
    mteb = _mteb()
    options: Any = {"cache": None, "co2_tracker": False, "show_progress_bar": show_progress_bar}
    chosen = list(tasks)
    for task in chosen:
        if not isinstance(task, mteb.AbsTask):
            raise ValueError(f"tasks must hold MTEB tasks, as mteb_tasks returns them, got {shown(task)}.")
        try:
            task.load_data()
        except Exception as error:  # a hub that is out of reach, or data that are gated or were deleted
            reason = " ".join(str(error).split()) or "no reason given"
            raise OSError(
                f"The data of the MTEB task {task.metadata.name} could not be loaded: {type(error).__name__}: "
                f"{reason.rstrip('.')}."
            ) from error
    scores: dict[str, float] = {}
    for task in chosen:
        encoding = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        found = mteb.evaluate(model, task, encode_kwargs=encoding, **options)
        scores[task.metadata.name] = float(found[0].get_score())
    return scores


def _mteb() -> Any:
    try:
        import mteb
    except ImportError as error:
        raise ImportError('The tasks of MTEB need the package mteb: pip install "st-extras[mteb]".') from error
    return mteb
