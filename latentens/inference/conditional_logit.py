"""Conditional logit with a Gaussian prior whose scales are chosen by the marginal likelihood.

Item i has features F_ik for each class k, and p(y_i = k | w) ∝ exp(w·F_ik). Weight j is w_j = c_j + s_j u_j with
u_j ~ N(0, 1): c is the centre of the prior, and s_j = unit_j · σ_b for the weights of block b, so that a block that
carries no information about the labels stays at its centre. Each σ_b has an Exponential(1) prior, the
penalised-complexity prior of a standard deviation (Simpson et al. 2017), which is highest at zero.

Everything is computed in u, whose prior is standard normal. The likelihood depends on u through A u only, with
A = F diag(s), so that with fewer rows than weights the mode lies in the row space of A, where it is looked for.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import log_softmax

from latentens.runtime.parallel import stop_if_asked

Features = Float[np.ndarray, "item label weight"]
Labels = Int[np.ndarray, " item"]
Weights = Float[np.ndarray, " weight"]


class Prior(NamedTuple):
    """A Gaussian prior of weights, up to the scale of each block.

    Attributes:
        centre: The mean of each weight.
        unit: The standard deviation of each weight where the scale of its block is one.
        block: The block of each weight; −1 where the unit is the standard deviation, and no scale is chosen.
    """

    centre: Weights
    unit: Weights
    block: Int[np.ndarray, " weight"]

    @property
    def num_blocks(self) -> int:
        """Number of scales to choose."""
        return int(self.block.max(initial=-1)) + 1

    def spread(self, log_scales: Float[np.ndarray, " block"]) -> Weights:
        """The standard deviation of each weight."""
        return self.unit * np.where(self.block < 0, 1.0, np.exp(np.append(log_scales, 0.0))[self.block])


class Mode(NamedTuple):
    """The mode of the weights at some scales, and Laplace's approximation there.

    Attributes:
        position: The mode in the coordinates of `basis`.
        basis: Orthonormal columns, the directions of u that the labels say something about.
        covariance: The covariance in the coordinates of `basis`; the other directions keep their prior.
        probs: The probability of each class of the labelled items at the mode.
        log_evidence: The log marginal likelihood of the labels at these scales, by Laplace's approximation.
    """

    position: Float[np.ndarray, " direction"]
    basis: Float[np.ndarray, "weight direction"]
    covariance: Float[np.ndarray, "direction direction"]
    probs: Float[np.ndarray, "item label"]
    log_evidence: float


class Posterior(NamedTuple):
    """The weights given the labels: a Gaussian at the mode.

    Attributes:
        mean: The mode.
        error: The standard deviation of each weight.
        scales: The scale of each block.
        log_evidence: The log marginal likelihood of the labels at these scales.
        spread: The prior's standard deviations.
        mode: The same in the coordinates of the computation.
    """

    mean: Weights
    error: Weights
    scales: Float[np.ndarray, " block"]
    log_evidence: float
    spread: Weights
    mode: Mode

    def draw(self, count: int, generator: np.random.Generator) -> Float[np.ndarray, "draw weight"]:
        """Weights from the posterior, in pairs on opposite sides of the mode; an odd number has the mode, too."""
        basis, noise = self.mode.basis, mirrored_noise(generator, count, len(self.mean))
        inside = noise @ basis
        root = np.linalg.cholesky(self.mode.covariance)
        return self.mean + self.spread * (noise + (inside @ root.T - inside) @ basis.T)


def mirrored_noise(generator: np.random.Generator, count: int, width: int) -> Float[np.ndarray, "draw weight"]:
    """Standard normal numbers in pairs on opposite sides of zero, and zeros if their number is odd."""
    noise = generator.standard_normal((count // 2, width))
    return np.concatenate([noise, -noise, np.zeros((count % 2, width))])


def fit_conditional_logit(
    features: Features,
    labels: Labels,
    prior: Prior,
    *,
    bounds: tuple[float, float] = (-10.0, 5.0),
    starts: tuple[float, ...] = (1.0, 0.3, 0.1),
) -> Posterior:
    """The weights given the labels, at the scales whose marginal likelihood times prior is greatest.

    Args:
        features: The features of each class on the labelled items.
        labels: Their labels.
        prior: The prior of the weights.
        bounds: Bounds of the log scales; beyond them a block stays at its centre or is not shrunk at all.
        starts: Scales to start from: zero is always a local maximum, so one start is not enough.
    """
    last: list[Mode] = []  # the end of Newton's method does not depend on its start

    def cost(log_scales: np.ndarray) -> tuple[float, np.ndarray]:
        stop_if_asked()
        value, slope, mode = log_evidence(features, labels, prior, log_scales, last[-1] if last else None)
        last[:] = [mode]
        scales = np.exp(log_scales)
        return -(value - scales.sum()), -(slope - scales)

    log_scales = np.zeros(prior.num_blocks)
    if prior.num_blocks:
        points = [np.full(prior.num_blocks, np.log(start)) for start in starts]
        limits = [bounds] * prior.num_blocks
        ends = [minimize(cost, point, jac=True, method="L-BFGS-B", bounds=limits) for point in points]
        log_scales = min(ends, key=lambda end: float(end.fun)).x
    spread = prior.spread(log_scales)
    mode = find_mode(features, labels, prior.centre, spread, last[-1] if last else None)
    kept = mode.basis @ (np.eye(len(mode.position)) - mode.covariance)
    error = spread * np.sqrt(np.clip(1 - np.einsum("jr,jr->j", kept, mode.basis), 0, None))
    mean = prior.centre + spread * (mode.basis @ mode.position)
    return Posterior(mean, error, np.exp(log_scales), mode.log_evidence, spread, mode)


def log_evidence(
    features: Features, labels: Labels, prior: Prior, log_scales: Float[np.ndarray, " block"], near: Mode | None = None
) -> tuple[float, Float[np.ndarray, " block"], Mode]:
    """The log marginal likelihood by Laplace's approximation, its slope in the log scales, and the mode.

    With u the mode, S its covariance, and r the slope of −½ log |S⁻¹| in the logits times −2, the slope is
    Σ_j u_j² − (1 − S_jj) − (S Aᵀ r)_j u_j, summed over the block's weights: the last term is the curvature's change as
    the mode moves.
    """
    spread = prior.spread(log_scales)
    mode = find_mode(features, labels, prior.centre, spread, near)
    scaled = (features * spread).reshape(-1, len(spread)) @ mode.basis
    of_items = scaled.reshape(*features.shape[:2], -1)
    logit_covariance = np.einsum("nkr,nlr->nkl", of_items @ mode.covariance, of_items)
    probs = mode.probs
    curved = np.einsum("nkk->nk", logit_covariance) - 2 * np.einsum("nkl,nl->nk", logit_covariance, probs)
    moved = (probs * (curved - (probs * curved).sum(axis=1, keepdims=True))).ravel()
    u = mode.basis @ mode.position
    informed = np.einsum("jr,jr->j", mode.basis @ (np.eye(len(mode.position)) - mode.covariance), mode.basis)
    by_weight = u**2 - informed - (mode.basis @ (mode.covariance @ (scaled.T @ moved))) * u
    chosen = prior.block >= 0
    slope = np.bincount(prior.block[chosen], by_weight[chosen], prior.num_blocks)
    return mode.log_evidence, slope, mode


def find_mode(
    features: Features,
    labels: Labels,
    centre: Weights,
    spread: Weights,
    near: Mode | None = None,
    most_steps: int = 100,
) -> Mode:
    """The mode by Newton's method with halved steps: the posterior is log-concave, so there is one.

    Args:
        features: The features of each class on the labelled items.
        labels: Their labels.
        centre: The prior's mean.
        spread: The prior's standard deviation of each weight.
        near: The mode at other scales, from which to start.
        most_steps: Limit on the steps, of which about five are needed.
    """
    num_items, num_classes, num_weights = features.shape
    scaled, basis = (features * spread).reshape(-1, num_weights), np.eye(num_weights)
    if len(scaled) < num_weights:
        basis = np.linalg.qr(scaled.T)[0]
        scaled = scaled @ basis
    offset, of_label = features @ centre, np.arange(num_items) * num_classes + labels

    def log_posterior(position: np.ndarray) -> tuple[float, np.ndarray]:
        log_probs = log_softmax(offset + (scaled @ position).reshape(offset.shape), axis=1)
        return float(log_probs.ravel()[of_label].sum() - position @ position / 2), log_probs

    def curvature(probs: np.ndarray) -> np.ndarray:
        by_item = scaled.reshape(num_items, num_classes, -1)
        centred = by_item - np.einsum("nk,nkr->nr", probs, by_item)[:, None]
        rooted = (np.sqrt(probs)[..., None] * centred).reshape(scaled.shape)
        return rooted.T @ rooted + np.eye(scaled.shape[1])

    position = np.zeros(scaled.shape[1]) if near is None else basis.T @ (near.basis @ near.position)
    value, log_probs = log_posterior(position)
    for _ in range(most_steps):
        residual = -np.exp(log_probs).ravel()
        residual[of_label] += 1
        slope = scaled.T @ residual - position
        step = cho_solve(cho_factor(curvature(np.exp(log_probs))), slope)
        gain = float(slope @ step)
        if gain < 1e-12 * max(1.0, abs(value)):
            break
        length = 1.0
        while (reached := log_posterior(position + length * step))[0] < value + length * gain / 10 and length > 1e-8:
            length /= 2
        position, (value, log_probs) = position + length * step, reached
    factor = cho_factor(curvature(np.exp(log_probs)), lower=True)
    covariance = cho_solve(factor, np.eye(len(position)))
    return Mode(position, basis, covariance, np.exp(log_probs), value - float(np.log(np.diag(factor[0])).sum()))
