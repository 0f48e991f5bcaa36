"""Signal check: do voters agree more often than voters who ignore the items would?"""

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from latentens.errors import VotesError
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.text import probability_text
from latentens.votes import Triplets, Votes


@dataclass(frozen=True)
class SignalCheck:
    """Whether voters agree more often than by chance.

    By chance means that voters keep their own shares of votes but cast them without regard to the item. A signal does
    not prove that labels are right: voters who copy each other agree as well.

    Attributes:
        agreement: Share of the pairs of votes on the same item that agree.
        by_chance: The expected share by chance.
        p_value: Probability of at least as much agreement by chance.
        num_pairs: Number of pairs of votes by different voters on the same item.
        level: Significance level.
    """

    agreement: float
    by_chance: float
    p_value: float
    num_pairs: int
    level: float

    @property
    def found(self) -> bool:
        """Whether there is a signal."""
        return self.p_value <= self.level

    @property
    def summary(self) -> str:
        """The result in one or two sentences."""
        shares = f"{self.agreement:.1%} of pairs of votes agree, {self.by_chance:.1%} would by chance"
        if self.found:
            return f"The voters agree more than by chance: {shares} ({probability_text(self.p_value)})."
        return (
            f"These votes do not show that the voters agree more than by chance: {shares} "
            f"({probability_text(self.p_value)}). Do not trust labels estimated from them, however certain they look."
        )


def check_signal(
    votes: Votes, *, key: jax.Array, level: float = 0.05, num_permutations: int = 999, most_permuted: int = 2**12
) -> SignalCheck:
    """Test whether voters agree more often than by chance.

    The statistic is the excess of agreement over all pairs of voters, each vote taken as its deviation from the voter's
    own shares: `T = Σ_items Σ_{a<b} r_ia · r_ib`, `r_ia = onehot(x_ia) − p_a`. Its null distribution is found by
    permuting each voter's votes among the items that the voter voted on; with many votes it is normal, with the
    variance of such permutations. If half of the voters use the labels the other way round, excesses cancel: like the
    orientation of the labels, the test assumes that voters are better than chance overall.

    Args:
        votes: The votes; of a voter's repeated votes on an item one is chosen at random, and votes for categories that
            are not labels count as missing.
        key: Random key of the permutations and of that choice; the same key gives the same result.
        level: Rate of false alarms.
        num_permutations: Number of permutations.
        most_permuted: With more votes than this the normal approximation is used.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> le.check_signal(votes, key=jax.random.key(0)).p_value
        0.0
    """
    votes = votes.to_hard().without_other_votes()
    if votes.has_repeats:  # voters agree with themselves for reasons of their own
        choice = numpy_generator(jax.random.fold_in(key, 0))
        votes = replace(votes, storage=_one_of_each(votes.triplets, choice))
    cast = votes.tally.sum(axis=1)
    num_pairs = int((cast * (cast - 1) // 2).sum())
    if num_pairs == 0:
        raise VotesError(
            "no item has votes from two voters, so agreement cannot be measured; collect more votes per item"
        )
    # Permutations leave fixed who votes on which items and the shares of each voter. Hence
    # T = ½ Σ_items (|tally − Σ_a p_a|² − Σ_a |r_ia|²), where only the tally depends on the permutation.
    item, voter, vote = votes.triplets.at(np.argsort(votes.triplets.voter, kind="stable"))
    shape = votes.num_voters, votes.num_classes
    counts = np.bincount(voter * votes.num_classes + vote, minlength=np.prod(shape)).reshape(shape)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    expected = np.stack([np.bincount(item, share[voter], minlength=votes.num_items) for share in shares.T], axis=1)
    own = float(counts.sum() - (counts * shares).sum())

    def excess_of(tally: Float[np.ndarray, "item label"]) -> float:
        return 0.5 * (float(((tally - expected) ** 2).sum()) - own)

    excess = excess_of(votes.tally)
    if len(vote) <= most_permuted:
        generator, drawn = numpy_generator(key), []
        for _ in range(num_permutations):
            order = np.argsort(voter + generator.random(len(vote)))  # permutes the votes of each voter
            cell = item.astype(np.int64) * votes.num_classes + vote[order]
            drawn.append(excess_of(np.bincount(cell, minlength=expected.size).reshape(expected.shape)))
        # sums of rounded numbers: equal tallies may differ in the last digits
        as_large = np.sum(np.array(drawn) >= excess - 1e-9 * num_pairs)
        p_value = float((1 + as_large) / (1 + num_permutations))
    else:
        spread = deviation_by_chance(item, voter, shares, counts.sum(axis=1))
        p_value = float(ndtr(-excess / spread)) if spread > 0 else 1.0
    agreement = float((votes.tally * (votes.tally - 1) // 2).sum() / num_pairs)
    return SignalCheck(agreement, agreement - excess / num_pairs, p_value, num_pairs, level)


def signal_summary(votes: Votes, *, key: jax.Array) -> str:
    """The summary of `check_signal`, or why there is none."""
    try:
        return check_signal(votes, key=key).summary
    except VotesError as error:
        return f"The signal could not be tested: {error}."


def _one_of_each(triplets: Triplets, generator: np.random.Generator) -> Triplets:
    """One vote of each voter on an item, chosen at random since they are sorted by vote."""
    shuffled = triplets.at(np.lexsort((generator.random(len(triplets.item)), triplets.voter, triplets.item)))
    return shuffled.at(~shuffled.repeated)


def deviation_by_chance(
    item: Int[np.ndarray, " vote"],
    voter: Int[np.ndarray, " vote"],
    shares: Float[np.ndarray, "voter label"],
    cast: Int[np.ndarray, " voter"],
) -> float:
    """The standard deviation of T under permutations, exact if every voter votes on every item.

    Products of different pairs are uncorrelated, and `Var Σ_i r_ia · r_ib = n_ab tr(C_a C_b)` with the covariance C
    of a vote, times n / (n − 1) because votes are drawn without replacement.

    Args:
        item: The item of each vote.
        voter: The voter of each vote.
        shares: The shares of each voter's votes.
        cast: Number of votes of each voter.
    """
    scale = np.sqrt(cast / np.maximum(cast - 1, 1))
    variance = 0.0
    for first, second in np.ndindex(shares.shape[1], shares.shape[1]):
        entry = scale * shares[:, first] * ((first == second) - shares[:, second])
        by_item = np.bincount(item, entry[voter])
        variance += 0.5 * float((by_item**2).sum() - cast @ entry**2)
    return variance**0.5
