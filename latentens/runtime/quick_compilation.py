"""Compilation for programs that run once or on little, and so take less time than their compilation."""

from functools import partial

import jax

compile_quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""`jax.jit` in a half or a third of the time, for programs that then take about twice as long; not inside of others."""

ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}
"""Compiler options by which sums have one order, whatever the number of cores."""
