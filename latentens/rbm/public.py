"""The functions of a machine at the public door: 64-bit floats whatever JAX's default is, and results in NumPy.

To compile or differentiate them, take them from `latentens.rbm.machine` and switch 64-bit floats on.
"""

from latentens.rbm import annealing, machine
from latentens.runtime.numerics import numpy_result

energy = numpy_result(machine.energy)
free_energy = numpy_result(machine.free_energy)
hidden_probs = numpy_result(machine.hidden_probs)
visible_probs = numpy_result(machine.visible_probs)
log_partition = numpy_result(machine.log_partition)
log_probs = numpy_result(machine.log_probs)
state_posterior = numpy_result(machine.state_posterior)
estimate_log_partition = numpy_result(annealing.estimate_log_partition)
