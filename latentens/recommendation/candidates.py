"""The generative models that a recommendation fits to votes, and the methods it chooses from, by default."""

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
    "Stacked": "it learns from the gold labels how much to trust the other methods and each voter",
    "Consensus": "it averages methods that seldom make the same mistakes",
    "Tempered(DawidSkeneEM)": (
        "of the methods without gold labels, its probabilities have the smallest worst-case loss on real votes"
    ),
    "DawidSkeneEM": "its labels have rarely been far behind the best on real votes",
    "MajorityVote": "it reports what most voters say and nothing else",
}
"""The method to fall back on, and why: the first of these that was run and whose label is identified.

On 32 real sets of votes of classifiers and judges the log score of tempered Dawid–Skene is at worst 0.7 nats behind the
best of four methods without gold labels; that of Dawid–Skene itself, the majority and EBCC 9 to 13. Its labels are at
worst 7.6 points behind, those of the majority 22."""

Methods = Iterable[Method] | Mapping[str, Method | MethodFactory]


class Candidate(NamedTuple):
    """A generative model of the votes, given by the method that fits it.

    Attributes:
        method_name: The method as the command line takes it.
        method: The method, or a function that makes it for given votes.
    """

    method_name: str
    method: Method | MethodFactory


def default_candidates(votes: Votes, *, quick: bool) -> dict[str, Candidate]:
    """The candidate models for votes of this form, by name; only the cheap ones if quick.

    At least one has dependent voters, so that methods are never judged on independent voters alone.
    """
    found = {"DawidSkene": Candidate("DawidSkeneEM", DawidSkeneEM())}
    has_groups = _is_dense(votes) and votes.num_voters > 3
    if quick:  # three groups of fewer than seven voters have at most two voters each
        if has_groups and votes.num_voters >= 7:
            return found | {"Tree": Candidate("TreeMLE(starts=0)", TreeMLE(starts=0))}
        return found | spare_candidates(votes)
    if has_groups:
        found["Tree"] = Candidate("TreeMLE", TreeMLE())
    if has_groups and votes.num_classes == 2:
        found["TopDown"] = Candidate("TopDownMLE(starts=2)", TopDownMLE(starts=2))
        found["TruncatedGaussian"] = Candidate(
            "MaximumLikelihood(TruncatedGaussian, starts=2)",
            lambda votes: MaximumLikelihood(TruncatedGaussian(votes.num_voters), starts=2),
        )
    return {**found, **spare_candidates(votes), "ItemDifficulty": _factor_model(ItemDifficulty, votes)}


def spare_candidates(votes: Votes) -> dict[str, Candidate]:
    """A model of dependent voters for a quick answer where no groups of voters were found."""
    return {"Confounder": _factor_model(Confounder, votes)}


def named_candidates(methods: Methods) -> dict[str, Candidate]:
    """Candidates from a user's methods, whose fits must have a generative model."""
    return {name: Candidate(name, method) for name, method in named_methods(methods).items()}


def default_methods(votes: Votes, *, quick: bool, has_gold: bool = False) -> dict[str, Method | MethodFactory]:
    """The methods for votes of this form by the names that the command line takes, the cheaper ones first.

    The methods that fit plausible candidate models are added later.
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
    if not (quick and has_gold):  # gold labels mean six fits, and this one is slow
        methods["Consensus"] = Consensus()
    if quick:
        return methods
    if votes.num_classes == 2 and not votes.has_repeats and votes.num_voters <= 150:
        methods["RBMStack"] = RBMStack()
    if not votes.has_repeats:
        methods |= {"Ebcc": Ebcc()} if votes.num_classes == 2 else {"Glad": Glad(), "Ebcc": Ebcc()}
    return methods


def _is_dense(votes: Votes, max_voters: int = 150, max_missing: float = 0.5) -> bool:
    """Whether the voters are few enough, and pairs of them have enough items in common, to look for groups."""
    missing = votes.num_missing / (votes.num_items * votes.num_voters)
    return not votes.has_repeats and votes.num_voters <= max_voters and missing <= max_missing


def _factor_model(model: type[Confounder | ItemDifficulty], votes: Votes) -> Candidate:
    """A model with a continuous factor per item, by a short climb: sparse votes leave some parameters undetermined.

    Items with few votes need fewer quadrature nodes than the model has by default.
    """
    num_nodes = None if _is_dense(votes) else 61
    written = f"{model.__name__}(num_nodes={num_nodes})" if num_nodes else model.__name__
    name = f"MaximumLikelihood({written}, starts=0, max_iterations=200, tolerance=1e-5)"
    return Candidate(name, partial(_short_climb, model, num_nodes))


def _short_climb(model: type[Confounder | ItemDifficulty], num_nodes: int | None, votes: Votes) -> Method:
    made = model(votes.num_voters, votes.num_classes, num_nodes=num_nodes)
    return MaximumLikelihood(made, starts=0, max_iterations=200, tolerance=1e-5)
