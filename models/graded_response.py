"""Graded votes: ordered categories, such as scores 0 to 9, by cut-points and a slope per voter."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import log_sigmoid
from jaxtyping import Array, Float, Int

from latentens.programs.components import Categories, Classes, Prior, even_prevalence, keep_positive, sample_prevalence
from latentens.programs.distributions import QuadratureNormal
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import SMALLEST, numpy_draw, numpy_result
from latentens.runtime.settings import Count, Positive


@dataclass(frozen=True)
class GradedResponse(GenerativeModel):
    """Votes are grades in order: a voter gives a higher one the higher the label is, by cut-points of the voter's own.

    Density::

        p(x, y) = π_y ∫ Π_j p(x_j | y, u) dN(u),  p(x_j ≥ v | y, u) = σ(a_j (m_y + s u) − c_jv)

    of voters j with slopes a_j > 0 and cut-points c_j1 < … < c_j,V−1, ordered labels y at the positions
    −1 = m_0 < … < m_K−1 = 1, and shares π of the classes. A voter's cut-points are written as the shares g_j of the
    grades on an item in the middle, at position 0: c_jv = log (g_j0 + … + g_j,v−1) / (g_jv + … + g_j,V−1). They are in
    order whatever the shares are. The item's factor s u is optional (`item_factor`), and summed out by quadrature.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← factor[item]
        slope[voter], grade_share[voter], position_gap, factor_scale → vote

    The order of the labels is identified: slopes are positive, so higher labels have higher grades. A voter whose scale
    runs the other way gets a slope near 0; reverse the scale to use such votes. The outermost positions fix location
    and scale. With a factor, only the fact that the label takes K values distinguishes the two.

    Reference: F. Samejima (1969), Estimation of latent ability using a response pattern of graded scores, Psychometrika
    Monograph 17; for several raters, V. E. Johnson (1996), On Bayesian analysis of multirater ordinal data, Journal of
    the American Statistical Association 91, 42–51.

    Attributes:
        num_voters: Number of voters.
        num_classes: Number of labels K, in order.
        num_grades: Number of grades V; by default that of the labels.
        item_factor: Whether items differ beyond their labels, for all voters alike.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        slope_prior: Scale of the half-normal prior of the slopes.
        grade_prior: Concentrations of the Dirichlet prior of the shares of grades, one for all grades or one for each.
        gap_prior: Concentration of the Dirichlet prior of the distances of neighbouring labels, if there are three or
            more.
        factor_scale_prior: Scale of the half-normal prior of s.
        num_nodes: Nodes of the quadrature; by default as many as make it exact, fewer do where items have few votes.
    """

    num_voters: Count = 15
    num_classes: Classes = 2
    num_grades: Categories = None
    item_factor: bool = False
    prevalence_prior: Prior = 2.0
    slope_prior: Positive = 2.0
    grade_prior: Prior = 1.0
    gap_prior: Positive = 2.0
    factor_scale_prior: Positive = 1.0
    num_nodes: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        keep_positive(self, "grade_prior", (), (self.num_grades or self.num_classes,))

    @property
    def anchored(self) -> bool:
        """Higher labels have higher grades."""
        return True

    @property
    def ordered_votes(self) -> bool:
        """Votes are grades in order."""
        return True

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label and perhaps a factor, then votes."""
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        position = jnp.array([-1.0, 1.0])
        if self.num_classes > 2:
            gap = numpyro.sample("position_gap", dist.Dirichlet(jnp.full(self.num_classes - 1, self.gap_prior)))
            position = jnp.concatenate([jnp.full(1, -1.0), 2 * jnp.cumsum(gap) - 1])
        with numpyro.plate("voter", self.num_voters):
            slope = numpyro.sample("slope", dist.HalfNormal(self.slope_prior))
            number = self.num_grades or self.num_classes
            concentration = np.broadcast_to(np.asarray(self.grade_prior, dtype=float), number)
            grade_share = numpyro.sample("grade_share", dist.Dirichlet(concentration))
        if self.item_factor:
            scale = numpyro.sample("factor_scale", dist.HalfNormal(self.factor_scale_prior))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            place = position[label]
            if self.item_factor:
                factor = numpyro.sample("factor", QuadratureNormal.for_voters(self.num_voters, self.num_nodes))
                place = place + scale * factor
            logits = grade_log_probs(place[..., None] * slope, grade_share)
            numpyro.sample("vote", dist.Categorical(logits=logits).to_event(1), obs=votes)

    @numpy_result
    def _of_label(self, params: Params) -> Float[Array, "label voter grade"]:
        """The log-probability of each grade given the label, at the item factor 0."""
        gap = params.get("position_gap", np.ones(1))
        position = np.concatenate([[-1.0], 2 * np.cumsum(gap) - 1])
        return grade_log_probs(position[:, None] * params["slope"], jnp.asarray(params["grade_share"]))

    def label_views(self, params: Params) -> list[np.ndarray] | None:
        """Each voter, where items do not differ beyond their labels."""
        return None if self.item_factor else list(np.exp(self._of_label(params)).swapaxes(0, 1))

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Slopes uniform on [.3, 2]; each voter uses some grades more often than others."""
        slope_key, grade_key = jax.random.split(key)
        number = self.num_grades or self.num_classes
        params = {
            "prevalence": even_prevalence(self.num_classes),
            "slope": jax.random.uniform(slope_key, (self.num_voters,), minval=0.3, maxval=2.0),
            "grade_share": jax.random.dirichlet(grade_key, 3 * jnp.ones(number), (self.num_voters,)),
        }
        if self.num_classes > 2:
            params["position_gap"] = even_prevalence(self.num_classes - 1)
        if self.item_factor:
            params["factor_scale"] = jnp.array(0.5)
        return params


def grade_log_probs(
    place: Float[Array, "*batch voter"], grade_share: Float[Array, "voter grade"]
) -> Float[Array, "*batch voter grade"]:
    """Log-probabilities of the grades of voters who see an item at a place.

    σ(t − c) − σ(t − d) = σ(t − c) σ(d − t) (1 − e^{c − d}) for cut-points c < d, which is accurate in both tails.

    Args:
        place: Where the item is, times the voter's slope.
        grade_share: The shares of the grades on an item at 0.
    """
    log_below = _safe_log(jnp.cumsum(grade_share, axis=-1)[..., :-1])
    log_above = _safe_log(jnp.cumsum(grade_share[..., ::-1], axis=-1)[..., -2::-1])
    distance = place[..., None] - (log_below - log_above)
    # 1 − e^{c − d} from the share g of the grade between c and d, without a difference: g / (below d · above c)
    log_width = _safe_log(grade_share[..., 1:-1]) - log_below[..., 1:] - log_above[..., :-1]
    middle = log_sigmoid(distance[..., :-1]) + log_sigmoid(-distance[..., 1:]) + log_width
    return jnp.concatenate([log_sigmoid(-distance[..., :1]), middle, log_sigmoid(distance[..., -1:])], axis=-1)


def _safe_log(shares: Float[Array, "*batch grade"]) -> Float[Array, "*batch grade"]:
    return jnp.log(jnp.maximum(shares, SMALLEST))
