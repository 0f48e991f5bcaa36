"""Training of restricted Boltzmann machines, exact or sampled."""

from latentens.rbm.training.choice import choose_training, train_machine
from latentens.rbm.training.exact import ExactTraining
from latentens.rbm.training.interface import Trained, Training
from latentens.rbm.training.sampled import SampledTraining

__all__ = [
    "ExactTraining",
    "SampledTraining",
    "Trained",
    "Training",
    "choose_training",
    "train_machine",
]
