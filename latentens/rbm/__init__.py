"""Restricted Boltzmann machines: exact where a layer can be enumerated, sampled above."""

from latentens.rbm.annealing import PartitionEstimate, estimate_log_partition
from latentens.rbm.lemma import DawidSkeneParams, dawid_skene_to_rbm, rbm_to_dawid_skene
from latentens.rbm.likelihood import Likelihood, mean_log_likelihood
from latentens.rbm.machine import (
    Machine,
    energy,
    free_energy,
    hidden_probs,
    log_likelihood,
    log_partition,
    state_posterior,
    visible_probs,
)
from latentens.rbm.rows import Rows, rows_from_votes
from latentens.rbm.search import random_search
from latentens.rbm.stack import hidden_representations
from latentens.rbm.training import choose_training, train_machine
from latentens.rbm.training.exact import ExactTraining
from latentens.rbm.training.sampled import SampledTraining
from latentens.rbm.training.trained import Trained
from latentens.rbm.training.width_rule import SingularValueRule

__all__ = [
    "DawidSkeneParams",
    "ExactTraining",
    "Likelihood",
    "Machine",
    "PartitionEstimate",
    "Rows",
    "SampledTraining",
    "SingularValueRule",
    "Trained",
    "choose_training",
    "dawid_skene_to_rbm",
    "energy",
    "estimate_log_partition",
    "free_energy",
    "hidden_probs",
    "hidden_representations",
    "log_likelihood",
    "log_partition",
    "mean_log_likelihood",
    "random_search",
    "rbm_to_dawid_skene",
    "rows_from_votes",
    "state_posterior",
    "train_machine",
    "visible_probs",
]
