"""Restricted Boltzmann machines: exact where a layer can be enumerated, sampled above."""

from latentens.rbm.annealing import PartitionEstimate
from latentens.rbm.lemma import (
    DawidSkeneParams,
    dawid_skene_to_rbm,
    rbm_to_dawid_skene,
)
from latentens.rbm.machine import Machine
from latentens.rbm.public import (
    energy,
    estimate_log_partition,
    free_energy,
    hidden_probs,
    log_partition,
    log_probs,
    state_posterior,
    visible_probs,
)
from latentens.rbm.rows import VisibleRows, rows_from_votes
from latentens.rbm.scoring import Likelihood, mean_log_likelihood
from latentens.rbm.search import random_search
from latentens.rbm.stack import hidden_representations
from latentens.rbm.training import (
    ExactTraining,
    SampledTraining,
    Trained,
    Training,
    choose_training,
    train_machine,
)
from latentens.rbm.units import Units
from latentens.rbm.width_rule import SingularValueRule, Width

__all__ = [
    "DawidSkeneParams",
    "ExactTraining",
    "Likelihood",
    "Machine",
    "PartitionEstimate",
    "SampledTraining",
    "SingularValueRule",
    "Trained",
    "Training",
    "Units",
    "VisibleRows",
    "Width",
    "choose_training",
    "dawid_skene_to_rbm",
    "energy",
    "estimate_log_partition",
    "free_energy",
    "hidden_probs",
    "hidden_representations",
    "log_partition",
    "log_probs",
    "mean_log_likelihood",
    "random_search",
    "rbm_to_dawid_skene",
    "rows_from_votes",
    "state_posterior",
    "train_machine",
    "visible_probs",
]
