"""Rank one from covariances that are mostly unknown: what `moments` does for a full matrix, for a sparse one."""

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

from latentens.methods.spectral.moments import Vector
from latentens.runtime.blocks import row_blocks


def complete_sparse_diagonal(covariance: sparse.csr_array) -> sparse.csr_array:
    """Replace the diagonal by what the rest implies under rank one: r_ii = Σ r_ij r_jk r_ki / Σ r_jk²."""
    across = _without_diagonal(covariance)
    touching = across.power(2).sum(axis=1)
    below = touching.sum() - 2 * touching
    cubes = []
    for block in row_blocks(*across.shape):
        some = across[block]
        cubes.append((some @ across).multiply(some).sum(axis=1))
    # the difference is rounding noise where nothing is left outside
    usable = below > 1e-12 * max(touching.sum(), np.finfo(float).tiny)
    implied = np.where(usable, np.concatenate(cubes) / np.where(usable, below, 1.0), 0.0)
    return sparse.csr_array(across + sparse.diags_array(implied))


def leading_sparse_vector(matrix: sparse.csr_array) -> Vector:
    """The unit eigenvector of the largest algebraic eigenvalue."""
    start = np.random.default_rng(0).normal(size=matrix.shape[0])  # any start will do, but always the same one
    return eigsh(matrix, k=1, which="LA", v0=start)[1][:, 0]


def sparse_scale_of(vector: Vector, covariance: sparse.csr_array) -> float:
    """C = ⟨vvᵀ, R⟩ / ⟨vvᵀ, vvᵀ⟩ over pairs of different voters."""
    below = (vector**2).sum() ** 2 - (vector**4).sum()
    return float(vector @ (_without_diagonal(covariance) @ vector) / below) if below > 0 else 0.0


def _without_diagonal(matrix: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array(matrix - sparse.diags_array(matrix.diagonal()))
