"""A confounder: a factor of each item that moves votes whatever the label is."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform

from latentens.programs.components import (
    Categories,
    Classes,
    Pair,
    Prior,
    check_categories,
    even_errors,
    even_prevalence,
    keep_positive,
    permute_confusion,
    sample_confusion,
    sample_prevalence,
)
from latentens.programs.distributions import QuadratureNormal, log_normal_cells
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class Confounder(GenerativeModel):
    """Dawid–Skene with a bias that voters share: a factor of the item pushes their votes up or down together.

    Density::

        x_j = v if t_jy[v] < z_j ≤ t_jy[v + 1],  z_j = λ_j u + √(1 − λ_j²) e_j
        p(x, y) = π_y ∫ Π_j p(x_j | y, u) dN(u)

    of voters j with loadings λ_j, independent standard normal u and e_j, and shares π of the classes. The thresholds t
    are those for which p(x_j | y) is θ_j[y, x_j], a confusion matrix. The factor u is summed out by quadrature.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← factor[item]
        confusion[voter], loading[voter] → vote

    `prevalence` and `confusion` are those of `DawidSkene`, which this is if all loadings are zero. Given the label,
    the z of two voters correlate by the product of their loadings. With more than two classes the factor makes votes
    higher or lower in the order of the classes; votes that are not labels, such as "unsure", lie in the middle. Equal
    loadings √ρ and sensitivities equal to specificities, Φ(m_j), give `TruncatedGaussian`.

    The order of the labels is not identified and follows the votes. All loadings can change sign, and only their prior
    prefers positive ones. Label and factor both move all votes at once; only the fact that the label has few values
    distinguishes them.

    Reference: Y. Qu, M. Tan & M. H. Kutner (1996), Random effects models in latent class analysis for evaluating
    accuracy of diagnostic tests, Biometrics 52, 797–810.

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        confusion_prior: Concentrations of the Dirichlet priors of the confusion matrices' rows, as in `DawidSkene`.
        loading_prior: Concentrations (up, down) of the beta prior of (1 + loading) / 2.
        num_nodes: Nodes of the quadrature; by default as many as make it exact, fewer do where items have few votes.
        num_categories: Number of different votes, if there are others than for classes, such as "tie": the first K are
            for the classes.
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    confusion_prior: Prior | None = None
    loading_prior: Pair = (4.0, 2.0)
    num_nodes: Count | None = None
    num_categories: Categories = None

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = self.num_classes
        votes = check_categories(classes, self.num_categories, self)
        keep_positive(self, "prevalence_prior", (), (classes,))
        keep_positive(self, "confusion_prior", (classes, votes), (self.num_voters, classes, votes))
        keep_positive(self, "loading_prior", (2,))

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label and factor, then votes."""
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        sizes = self.num_voters, self.num_classes
        confusion = sample_confusion(*sizes, self.confusion_prior, num_categories=self.num_categories)
        upwards = self._upwards
        below = (confusion if upwards is None else confusion[..., upwards]).cumsum(axis=-1)[..., :-1]
        threshold = ndtri(below.clip(1e-12, 1 - 1e-12))  # quantiles of 0 and 1 are infinite
        to_signed = AffineTransform(-1.0, 2.0, domain=constraints.unit_interval)
        with numpyro.plate("voter", self.num_voters):
            signed = dist.TransformedDistribution(dist.Beta(*self.loading_prior), to_signed)
            loading = numpyro.sample("loading", signed)
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            factor = numpyro.sample("factor", QuadratureNormal.for_voters(self.num_voters, self.num_nodes))
            above = threshold[label] - (factor[..., None] * loading)[..., None]
            bounds = above / jnp.sqrt(1 - loading**2)[:, None]
            log_probs = log_normal_cells(bounds)
            log_probs = log_probs if upwards is None else log_probs[..., np.argsort(upwards)]
            numpyro.sample("vote", dist.Categorical(logits=log_probs).to_event(1), obs=votes)

    @property
    def _upwards(self) -> Int[np.ndarray, " vote"] | None:
        """The votes from the lowest to the highest, other categories in the middle; None if there are none."""
        classes = self.num_classes
        others = np.arange(classes, self.num_categories or classes)
        return np.insert(np.arange(classes), classes // 2, others) if len(others) else None

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """Classes change places in the shares and in the rows of the confusion matrices; loadings stay."""
        return permute_confusion(params, order)

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Voters are right with probability uniform on [.5, .9]; loadings are uniform on [.2, .8]."""
        right_key, loading_key = jax.random.split(key)
        right = jax.random.uniform(right_key, (self.num_voters, self.num_classes), minval=0.5, maxval=0.9)
        loading = jax.random.uniform(loading_key, (self.num_voters,), minval=0.2, maxval=0.8)
        confusion = even_errors(right, self.num_categories)
        return {"prevalence": even_prevalence(self.num_classes), "confusion": confusion, "loading": loading}
