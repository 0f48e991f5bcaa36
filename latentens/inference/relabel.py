"""Label switching undone in posterior draws of any latent-class model, wherever they come from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from latentens.errors import ParameterError

if TYPE_CHECKING:
    import xarray as xr

Orders = Int[np.ndarray, "draw label"]
Posterior = TypeVar("Posterior", "xr.DataTree", "xr.Dataset")

LEADING = ("chain", "draw")
MOST_ROUNDS = 100


def relabel(
    posterior: Posterior, dim: str = "true_class", *, match: str = "vote_class", codes: Sequence[str] = ()
) -> Posterior:
    """Undo label switching in a posterior in the form of ArviZ.

    The labels of each draw are put in the order in which its parameters are nearest to their means over all draws, in
    units of their deviations, and the means are taken anew until no draw changes (Stephens 2000). The votes are not
    needed; where you have them and a model, `fit_from_draws` puts labels in the order that the votes say.

    Args:
        posterior: A DataTree with the group `posterior`, or that group as a Dataset, with dimensions chain and draw.
        dim: The dimension of the labels; every variable that has it is reordered along it.
        match: A dimension of the same size, such as that of votes. Where a variable has both, the labels as a whole are
            ordered such that it is largest where they are the same.
        codes: Variables that hold labels by their codes, 0, 1, …, which are replaced.

    Returns:
        A copy with labels in order.

    Examples:
        >>> import numpy as np
        >>> import xarray as xr
        >>> import latentens as le
        >>> rng = np.random.default_rng(0)
        >>> draws = np.array([0.3, 0.7]) + 0.01 * rng.normal(size=(1, 6, 2))
        >>> draws[0, 3:] = draws[0, 3:, ::-1]  # the labels switch
        >>> posterior = xr.Dataset({"prevalence": (("chain", "draw", "true_class"), draws)})
        >>> le.relabel(posterior)["prevalence"].mean("draw").values.round(2)
        array([[0.7, 0.3]])
    """
    import xarray as xr

    if isinstance(posterior, xr.DataTree):
        moved = relabel(posterior["posterior"].to_dataset(), dim, match=match, codes=codes)
        tree = posterior.copy()
        tree["posterior"] = xr.DataTree(moved)
        return tree
    switching = [name for name, values in posterior.data_vars.items() if dim in values.dims]
    if not switching:
        raise ParameterError(f"no variable has the dimension {dim!r}; name the dimension of the labels in dim")
    arrays = [posterior[name].transpose(*LEADING, dim, ...).to_numpy() for name in switching]
    chains, size = arrays[0].shape[:2], posterior.sizes[dim]
    features = np.concatenate([array.reshape(chains[0] * chains[1], size, -1) for array in arrays], axis=2)
    orders = switched_orders(features)
    for name in switching:
        if match in posterior[name].dims and posterior.sizes[match] == size:
            means = posterior[name].mean(
                [other for other in posterior[name].dims if other not in (*LEADING, dim, match)]
            )
            square = means.transpose(*LEADING, dim, match).to_numpy().reshape(-1, size, size)
            agreement = np.take_along_axis(square, orders[:, :, None], axis=1).mean(axis=0)
            orders = orders[:, linear_sum_assignment(agreement.T, maximize=True)[1]]
            break
    shaped = xr.DataArray(orders.reshape(*chains, size), dims=(*LEADING, dim))
    moved = {name: posterior[name].isel({dim: shaped}) for name in switching}
    places = xr.DataArray(np.argsort(orders, axis=1).reshape(*chains, size), dims=(*LEADING, dim))
    moved |= {name: places.isel({dim: posterior[name]}) for name in codes}
    kept = {name: values.transpose(*posterior[name].dims).variable for name, values in moved.items()}
    return posterior.assign(kept)


def switched_orders(features: Float[np.ndarray, "draw label feature"]) -> Orders:
    """The order of each draw's labels in which all draws are alike: label k of the result is `order[k]` of the draw."""
    spread = features.std(axis=(0, 1))
    scaled = features / np.where(spread > 0, spread, 1.0)
    orders = np.tile(np.arange(scaled.shape[1]), (len(scaled), 1))
    reference = scaled[-1]  # a chain has arrived by its last draw
    for number in range(MOST_ROUNDS):
        # the squared distance of each label of a draw from each one of the reference, up to what no order changes
        agreement = np.einsum("kf,dlf->dkl", reference, scaled)
        found = np.stack([linear_sum_assignment(each, maximize=True)[1] for each in agreement])
        if np.array_equal(found, orders) and number > 0:
            break
        orders = found
        reference = np.take_along_axis(scaled, orders[:, :, None], axis=1).mean(axis=0)
    return orders
