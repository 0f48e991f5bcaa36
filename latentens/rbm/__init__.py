"""Restricted Boltzmann machines: exact where a layer can be enumerated, sampled above.

The functions of a machine use 64-bit floats whatever JAX's default is, and return NumPy arrays. To compile or
differentiate them, take them from `latentens.rbm.machine` and switch 64-bit floats on.
"""

from latentens.rbm import machine, sampling
from latentens.rbm.exact import ExactTraining, log_partition, log_probs, state_posterior
from latentens.rbm.lemma import DawidSkeneParams, dawid_skene_to_rbm, rbm_to_dawid_skene
from latentens.rbm.machine import Machine
from latentens.rbm.rows import VisibleRows, rows_from_votes
from latentens.rbm.sampled import Likelihood, SampledTraining, mean_log_likelihood
from latentens.rbm.sampling import PartitionEstimate
from latentens.rbm.stack import choose_training, hidden_representations, train_machine
from latentens.rbm.training import Trained, Training
from latentens.rbm.units import Units
from latentens.rbm.width import SingularValueRule, Width
from latentens.runtime.numerics import numpy_result

energy = numpy_result(machine.energy)
free_energy = numpy_result(machine.free_energy)
hidden_probs = numpy_result(machine.hidden_probs)
visible_probs = numpy_result(machine.visible_probs)
estimate_log_partition = numpy_result(sampling.estimate_log_partition)

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
    "rbm_to_dawid_skene",
    "rows_from_votes",
    "state_posterior",
    "train_machine",
    "visible_probs",
]
