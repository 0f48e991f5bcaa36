"""The programs that a recommendation fits to votes, and the methods it chooses from, unless the user names others."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from latentens.comparison.sweep import MethodFactory, named_methods
from latentens.methods import (
    Consensus,
    DawidSkeneEM,
    Ebcc,
    Glad,
    LatentSpectral,
    MajorityVote,
    MaximumLikelihood,
    RBMStack,
    SpectralMetaLearner,
    Stacked,
    Tempered,
    TopDownMLE,
    TreeMLE,
)
from latentens.methods.base import Method
from latentens.models import Confounder, ItemDifficulty, TruncatedGaussian
from latentens.votes import Votes

SAFEST: Mapping[str, str] = {
    "Stacked": "it learns from the gold labels how far other methods and each voter are to be believed",
    "Consensus": "it is the mean of methods that are seldom wrong in the same way",
    "Tempered(DawidSkeneEM)": (
        "of the methods that use no gold labels its probabilities have lost least in the worst case on real votes"
    ),
    "DawidSkeneEM": "its labels have rarely been far behind the best on real votes",
    "MajorityVote": "it says what most voters say, and no more",
}
"""What to use where votes cannot tell, or gold labels leave methods level: the first of these that is there and whose
label is identified, and why. On 32 real sets of votes of classifiers and judges the log score of tempered Dawid–Skene
is at worst 0.7 nats behind the best of four methods without gold labels; that of Dawid–Skene itself, the majority and
EBCC 9 to 13. Its labels are at worst 7.6 points behind, those of the majority 22."""

Methods = Iterable[Method] | Mapping[str, Method | MethodFactory]

MOST_TREE_VOTERS = 150
"""Groups and hidden units are looked for among at most so many voters, …"""

MOST_MISSING = 0.5
"""… whose votes are not sparser than this: pairs of voters need items in common."""

LEAST_GROUPED_VOTERS = 7
"""A quick answer looks for groups among so many voters or more: three groups of fewer have two voters at most."""

SHORT_CLIMB = "starts=0, max_iterations=200, tolerance=1e-5"
"""Sparse votes leave some parameters open, and a climb would not end."""

FEW_NODES = 61
"""Nodes of a factor of items that have few votes: with those for all voters together a fit would take minutes."""


class World(NamedTuple):
    """A way in which votes may come about: a program, and the method that fits it.

    Attributes:
        method_name: The method as the command line takes it.
        make: The method, or what makes it for votes.
    """

    method_name: str
    make: Method | MethodFactory

    def method(self, votes: Votes) -> Method:
        """The method for some votes."""
        return self.make if isinstance(self.make, Method) else self.make(votes)


def default_worlds(votes: Votes, *, quick: bool) -> dict[str, World]:
    """The catalogue that applies to votes of this form, by the names of the programs; if quick, the cheap ones.

    There is always one with dependent voters: else they would be judged by worlds of independent ones alone.
    """
    worlds = {"DawidSkene": World("DawidSkeneEM", DawidSkeneEM())}
    has_groups = _is_dense(votes) and votes.num_voters > 3
    if quick:
        has_groups = has_groups and votes.num_voters >= LEAST_GROUPED_VOTERS
        return worlds | ({"Tree": World("TreeMLE(starts=0)", TreeMLE(starts=0))} if has_groups else spare_worlds(votes))
    if has_groups:
        worlds["Tree"] = World("TreeMLE", TreeMLE())
    if has_groups and votes.num_classes == 2:
        worlds["TopDown"] = World("TopDownMLE(starts=2)", TopDownMLE(starts=2))
        worlds["TruncatedGaussian"] = World("MaximumLikelihood(TruncatedGaussian, starts=2)", _common_factor)
    return {**worlds, **spare_worlds(votes), "ItemDifficulty": _factor_world(ItemDifficulty, votes)}


def spare_worlds(votes: Votes) -> dict[str, World]:
    """Dependent voters for a quick answer where no groups were found."""
    return {"Confounder": _factor_world(Confounder, votes)}


def users_worlds(worlds: Methods) -> dict[str, World]:
    """Worlds from methods whose fits have a generative model."""
    return {name: World(name, make) for name, make in named_methods(worlds).items()}


def default_methods(votes: Votes, *, quick: bool, has_gold: bool = False) -> dict[str, Method | MethodFactory]:
    """Methods by the names that the command line takes, the cheaper ones first.

    The methods that fit the worlds join them where these are not ruled out. `Stacked` needs gold labels.
    """
    methods: dict[str, Method | MethodFactory] = {"MajorityVote": MajorityVote()}
    if votes.num_classes == 2 and not votes.has_repeats:
        methods["SpectralMetaLearner"] = SpectralMetaLearner()
    methods["DawidSkeneEM"] = DawidSkeneEM()
    if votes.num_classes == 2 and _is_dense(votes) and votes.num_voters > 3:
        methods["LatentSpectral"] = LatentSpectral()
    methods["Tempered(DawidSkeneEM)"] = Tempered(DawidSkeneEM())
    if has_gold:
        methods["Stacked"] = Stacked()
    if not (quick and has_gold):  # with gold labels it is fitted six times, and what is quick must do without it
        methods["Consensus"] = Consensus()
    if quick:
        return methods
    if votes.num_classes == 2 and not votes.has_repeats and votes.num_voters <= MOST_TREE_VOTERS:
        methods["RBMStack"] = RBMStack()
    if not votes.has_repeats:
        methods |= {"Ebcc": Ebcc()} if votes.num_classes == 2 else {"Glad": Glad(), "Ebcc": Ebcc()}
    return methods


def _is_dense(votes: Votes) -> bool:
    """Whether pairs of voters have items enough in common."""
    missing = votes.num_missing / (votes.num_items * votes.num_voters)
    return not votes.has_repeats and votes.num_voters <= MOST_TREE_VOTERS and missing <= MOST_MISSING


def _common_factor(votes: Votes) -> Method:
    return MaximumLikelihood(TruncatedGaussian(votes.num_voters), starts=2)


def _factor_world(model: type[Confounder | ItemDifficulty], votes: Votes) -> World:
    """A program with a factor of each item that all votes on it share."""
    if _is_dense(votes):
        return World(f"MaximumLikelihood({model.__name__}, {SHORT_CLIMB})", partial(_climb, model, None))
    name = f"MaximumLikelihood({model.__name__}(num_nodes={FEW_NODES}), {SHORT_CLIMB})"
    return World(name, partial(_climb, model, FEW_NODES))


def _climb(model: type[Confounder | ItemDifficulty], num_nodes: int | None, votes: Votes) -> Method:
    made = model(votes.num_voters, votes.num_classes, num_nodes=num_nodes)
    return MaximumLikelihood(made, starts=0, max_iterations=200, tolerance=1e-5)
