"""Training in one call, and the callback that saves what a loss owns."""

from st_extras.training.divergence import DivergenceError
from st_extras.training.loss_state import LossStateCallback
from st_extras.training.run import TrainingRun, train_encoder

__all__ = [
    "DivergenceError",
    "LossStateCallback",
    "TrainingRun",
    "train_encoder",
]
