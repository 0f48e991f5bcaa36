"""Whether voters depend on each other given the label, on items whose label is known: no model is fitted."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr

from latentens.evaluation.differences import holm
from latentens.evaluation.items import Labels
from latentens.evaluation.voter_pairs import EXPECTED_RARE
from latentens.runtime.threads import one_blas_thread

Matrix = Float[np.ndarray, "voter voter"]


class LabelDependence(NamedTuple):
    """How the votes of each pair of voters hang together within the true classes.

    Attributes:
        correlation: Correlation of the votes within classes; above 0 two voters agree more than by chance.
        p_values: Of each pair, adjusted for all pairs that were checked (Holm); 1 where a pair was not.
        checked: Pairs with enough votes in common, by the rule of `latentens.evaluation.independence`.
    """

    correlation: Matrix
    p_values: Matrix
    checked: Bool[np.ndarray, "voter voter"]

    def dependent(self, level: float = 0.05) -> list[tuple[int, int]]:
        """Pairs that agree more than chance explains, the strongest correlation first."""
        first, second = np.nonzero(np.triu(self.checked & (self.p_values <= level) & (self.correlation > 0), 1))
        order = np.argsort(-self.correlation[first, second], kind="stable")
        return [(int(first[k]), int(second[k])) for k in order]


@one_blas_thread()
def label_dependence(votes: Int[np.ndarray, "item voter"], labels: Labels, num_classes: int) -> LabelDependence:
    """Look at every pair of voters on the items with known labels on which both voted.

    With `Σ_a Cov(1{x_i = a}, 1{x_j = a})` summed over the classes, the p-values are those of a normal sum whose
    variance is that of independent votes.

    Args:
        votes: The votes, −1 where missing.
        labels: The true labels, −1 where unknown.
        num_classes: Number of classes.
    """
    total, variance, spread, together = np.zeros((4, votes.shape[1], votes.shape[1]))
    for label in np.unique(labels[labels >= 0]):
        members = votes[labels == label]
        for part, found in zip((total, variance, spread, together), _moments(members, num_classes), strict=True):
            part += found
    known = votes[labels >= 0]
    shares = np.stack([((known == vote) & (known >= 0)).sum(axis=0) for vote in range(num_classes)], axis=1)
    rare = 1 - shares.max(axis=1) / np.maximum(shares.sum(axis=1), 1)
    checked = (together * np.outer(rare, rare) >= EXPECTED_RARE) & (variance > 0) & (spread > 0)
    np.fill_diagonal(checked, False)
    z_score = np.where(checked, total / np.sqrt(np.where(checked, variance, 1.0)), 0.0)
    correlation = np.where(checked, total / np.where(checked, spread, 1.0), 0.0)
    p_values, upper = np.ones_like(total), np.triu(checked)
    p_values[upper] = holm(2 * ndtr(-np.abs(z_score[upper])))
    return LabelDependence(correlation, np.minimum(p_values, p_values.T), checked)


def _moments(votes: Int[np.ndarray, "item voter"], num_classes: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Of the items of one class: sums of products of deviations, their variance, the scale, and common items."""
    cast = (votes >= 0).astype(np.float64)
    together = cast.T @ cast
    says = [(votes == vote).astype(np.float64) for vote in range(num_classes)]
    size = np.where(together > 0, together, 1.0)
    shares = [one.T @ cast / size for one in says]  # of voter i, where j voted too
    total = sum(one.T @ one - together * share * share.T for one, share in zip(says, shares, strict=True))
    covariance = [
        [(a == b) * shares[a] - shares[a] * shares[b] for b in range(num_classes)] for a in range(num_classes)
    ]
    variance = together * sum(entry * entry.T for row in covariance for entry in row)
    own = sum(covariance[vote][vote] for vote in range(num_classes))
    return np.asarray(total), np.asarray(variance), together * np.sqrt(np.maximum(own * own.T, 0.0)), together
