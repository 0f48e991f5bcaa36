"""Training of restricted Boltzmann machines, exact or sampled, and the rule for their width."""

from latentens.rbm.training.choice import choose_training, train_machine
from latentens.rbm.training.exact import ExactTraining
from latentens.rbm.training.interface import Trained, Training
from latentens.rbm.training.sampled import SampledTraining
from latentens.rbm.training.width_rule import SingularValueRule

__all__ = [
    "ExactTraining",
    "SampledTraining",
    "SingularValueRule",
    "Trained",
    "Training",
    "choose_training",
    "train_machine",
]
