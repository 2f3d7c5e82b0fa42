"""Run by test_adcse.py in two gloo processes: equal states after training, and one step on two halves of a batch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from st_extras.losses import AdCSELoss
from tests.conftest import SENTENCES
from tests.helpers import columns, draw, train
from tests.losses.test_adcse import make_loss


def main(path: str) -> None:
    folder, rank = Path(path), int(os.environ["RANK"])
    cases = {"own": {}, "gathered": {"gather_across_devices": True}, "features": {"adversary_start": "features"}}
    for case, options in cases.items():
        model = SentenceTransformer(str(folder / "model"), device="cpu")
        torch.manual_seed(rank)  # adversaries and heads start differently: they must be made equal
        loss = AdCSELoss(model, num_adversaries=6, adversary_learning_rate=0.1, momentum=0.5, **options)
        start = loss.adversaries.vectors.clone()
        train(
            model, loss, columns(SENTENCES * 2), folder / "run", per_device_train_batch_size=2, ddp_backend="gloo",
            gradient_accumulation_steps=2, ddp_find_unused_parameters=True,
        )  # fmt: skip
        state = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
        save_file(state | {"start": start}, str(folder / f"state-{case}-{rank}.safetensors"))

    unattached = make_loss(model, projection=False)
    refused = False
    try:
        unattached([model.preprocess(SENTENCES[:2])])
    except ValueError as error:
        refused = "LossStateCallback.attach" in str(error)
    exact = make_loss(model).double()
    exact.adversaries.synchronised_across_processes = True  # type: ignore[assignment]
    exact.compute_loss_from_embeddings([draw(3, 16, seed=rank), draw(3, 16, seed=10 + rank)])
    result = {"adversaries": exact.adversaries.vectors, "refused": torch.tensor(refused)}
    save_file(result, str(folder / f"step{rank}.safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
