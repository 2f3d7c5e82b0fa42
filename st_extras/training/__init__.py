"""Training in one call, and the callback that saves what a loss owns."""

from st_extras.training.loss_state import LossStateCallback
from st_extras.training.run import TrainingRun, train_encoder
from st_extras.training.trainer import DivergenceError

__all__ = [
    "DivergenceError",
    "LossStateCallback",
    "TrainingRun",
    "train_encoder",
]
