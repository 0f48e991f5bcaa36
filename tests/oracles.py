"""Brute force in plain NumPy: p(label, votes) by summing over every hidden state, one after the other.

Votes are counts (row, voter, vote): all zero for a missing vote, above one for repeated ones.
"""

from itertools import product

import numpy as np
from scipy.special import expit, ndtr, ndtri, softmax

GRID, STEP = np.linspace(-14, 14, 4001, retstep=True)
DENSITY = np.exp(-(GRID**2) / 2) / np.sqrt(2 * np.pi) * STEP
"""The standard normal distribution on a grid that is finer and wider than the quadrature of the programs."""


def count_votes(rows, num_classes):
    """Votes as counts."""
    return (rows[:, :, None] == np.arange(num_classes)).astype(int)


def chance(probs, counts):
    """Π over voters and votes of p(vote), as often as it was cast; `probs` is (voter, vote)."""
    return np.prod(probs**counts, axis=(1, 2))


def two_votes(says_one):
    """Probabilities of the votes 0 and 1."""
    return np.stack([1 - says_one, says_one], axis=-1)


def coin(is_one, states):
    """Probability of a vector of independent coins."""
    return np.prod(np.where(np.array(states) == 1, is_one, 1 - is_one))


def independent(shares, confusion, counts):
    """Voters with the given confusion matrices."""
    return np.stack([shares[label] * chance(confusion[:, label], counts) for label in range(len(shares))], axis=1)


def even(right, num_classes):
    """Confusion matrices of voters who are right with the given probabilities (voter, label)."""
    confusion = np.empty((*right.shape, num_classes))
    for voter, label, vote in np.ndindex(confusion.shape):
        of_right = right[voter, label]
        confusion[voter, label, vote] = of_right if vote == label else (1 - of_right) / (num_classes - 1)
    return confusion


def dawid_skene(model, params, counts):
    return independent(params["prevalence"], params["confusion"], counts)


def one_coin(model, params, counts):
    right = np.repeat(params["accuracy"][:, None], model.num_classes, axis=1)
    return independent(params["prevalence"], even(right, model.num_classes), counts)


def class_conditional(model, params, counts):
    return independent(params["prevalence"], even(params["accuracy"], model.num_classes), counts)


def hierarchical_dawid_skene(model, params, counts):
    logits = params["population"] + params["spread"] * params["deviation"]
    return independent(params["prevalence"], softmax(logits, axis=-1), counts)


def mace(model, params, counts):
    """Whether each voter knew the label is summed out voter by voter."""
    confusion = np.empty((model.num_voters, model.num_classes, params["strategy"].shape[1]))
    for voter, label, vote in np.ndindex(confusion.shape):
        knows = params["competence"][voter]
        confusion[voter, label, vote] = knows * (vote == label) + (1 - knows) * params["strategy"][voter, vote]
    return independent(params["prevalence"], confusion, counts)


def item_difficulty(model, params, counts):
    classes = model.num_classes
    scale = model.difficulty_scale or params["difficulty_scale"]
    joint = np.zeros((len(counts), classes))
    for label, share in enumerate(params["prevalence"]):
        others = [vote for vote in range(classes) if vote != label]
        for difficulty, weight in zip(scale * GRID, DENSITY, strict=True):
            right = expit(params["ability"][:, label] - difficulty)
            probs = np.empty((model.num_voters, classes))
            probs[:, label] = right
            wrong = params["error"][:, label] if classes > 2 else np.ones((model.num_voters, 1))
            probs[:, others] = (1 - right)[:, None] * wrong
            joint[:, label] += share * weight * chance(probs, counts)
    return joint


def confounder(model, params, counts):
    """Votes for other categories lie between the lower and the upper half of the classes."""
    joint = np.zeros((len(counts), model.num_classes))
    half, votes = model.num_classes // 2, range(counts.shape[2])
    upwards = [*votes[:half], *votes[model.num_classes :], *votes[half : model.num_classes]]
    loading, confusion, counts = params["loading"][:, None], params["confusion"][..., upwards], counts[..., upwards]
    for label, share in enumerate(params["prevalence"]):
        below = np.cumsum(confusion[:, label], axis=1)
        below[:, -1] = 1.0
        thresholds = np.concatenate([np.full((model.num_voters, 1), -np.inf), ndtri(below)], axis=1)
        for u, weight in zip(GRID, DENSITY, strict=True):
            probs = np.diff(ndtr((thresholds - loading * u) / np.sqrt(1 - loading**2)), axis=1)
            joint[:, label] += share * weight * chance(probs, counts)
    return joint


def graded_response(model, params, counts):
    """By the definition: differences of σ at the cut-points of each voter."""
    position = [-1.0, 1.0]
    if model.num_classes > 2:
        position = [2 * sum(params["position_gap"][:k]) - 1 for k in range(model.num_classes)]
    scale = params.get("factor_scale", 0.0)
    nodes = zip(GRID, DENSITY, strict=True) if model.item_factor else [(0.0, 1.0)]
    num_grades = params["grade_share"].shape[1]
    joint = np.zeros((len(counts), model.num_classes))
    for u, weight in nodes:
        for label, share in enumerate(params["prevalence"]):
            probs = np.empty((model.num_voters, num_grades))
            for voter, grades in enumerate(params["grade_share"]):
                at_least = [1.0]
                for grade in range(1, num_grades):
                    cut = np.log(grades[:grade].sum() / grades[grade:].sum())
                    at_least.append(expit(params["slope"][voter] * (position[label] + scale * u) - cut))
                probs[voter] = -np.diff([*at_least, 0.0])
            joint[:, label] += share * weight * chance(probs, counts)
    return joint


def tree(model, params, counts):
    shares, opinion, confusion = params["prevalence"], params["hidden_confusion"], params["voter_confusion"]
    joint = np.zeros((len(counts), len(shares)))
    voters = np.arange(len(model.groups))
    for hidden in product(range(len(shares)), repeat=model.num_groups):
        seen = confusion[voters, [hidden[group] for group in model.groups]]
        of_votes = chance(seen, counts)
        for label, share in enumerate(shares):
            of_opinions = np.prod([opinion[group, label, value] for group, value in enumerate(hidden)])
            joint[:, label] += share * of_opinions * of_votes
    return joint


def layered_graph(model, params, counts):
    def node_is_one(name, parents):
        sensitivity, specificity = params[f"{name}_sensitivity"], params[f"{name}_specificity"]
        weight = params.get(f"{name}_weight", np.ones_like(sensitivity))
        is_one = np.zeros(len(sensitivity))
        for i in range(len(sensitivity)):
            for j, parent in enumerate(parents):
                is_one[i] += weight[i, j] * (sensitivity[i, j] if parent else 1 - specificity[i, j])
        return is_one

    joint = np.zeros((len(counts), 2))
    first, second = model.layers
    for label, share in enumerate(params["prevalence"]):
        first_is_one = node_is_one("hidden_1", [label])
        for upper in product((0, 1), repeat=first):
            upper_probability = share * coin(first_is_one, upper)
            second_is_one = node_is_one("hidden_2", upper)
            for lower in product((0, 1), repeat=second):
                probability = upper_probability * coin(second_is_one, lower)
                joint[:, label] += probability * chance(two_votes(node_is_one("vote", lower)), counts)
    return joint


def truncated_gaussian(model, params, counts):
    rho = params["correlation"]
    joint = np.zeros((len(counts), 2))
    for label, share in enumerate(params["prevalence"]):
        mean = params["mean"] if label else -params["mean"]
        for u, weight in zip(GRID, DENSITY, strict=True):
            says_one = ndtr((mean + np.sqrt(rho) * u) / np.sqrt(1 - rho))
            joint[:, label] += share * weight * chance(two_votes(says_one), counts)
    return joint


def deep_belief_net(model, params, counts):
    """By the definition: the normaliser of the RBM sums over hidden and visible states."""
    states = list(product((0, 1), repeat=model.num_hidden))
    visible = np.array(list(product((0, 1), repeat=model.num_voters)))
    normaliser = 0.0
    joint = np.zeros((len(counts), 2))
    for hidden in map(np.array, states):
        activation = params["visible_bias"] + params["weights"] @ hidden
        bias = np.exp(params["hidden_bias"] @ hidden)
        unnormalised = bias * np.exp(visible @ activation).sum()
        normaliser += unnormalised
        label_is_one = expit(params["label_bias"] + params["label_weights"] @ hidden)
        votes = unnormalised * chance(two_votes(expit(activation)), counts)
        joint += np.outer(votes, [1 - label_is_one, label_is_one])
    return joint / normaliser


def top_down(model, params, counts):
    voters, others, votes = model.num_voters, model.num_classes - 1, counts.shape[2] - 1
    joint = np.zeros((len(counts), model.num_classes))
    label_weights = np.pad(params["label_weights"].reshape(-1, others), ((0, 0), (1, 0)))
    bias, weights = params["visible_bias"].reshape(voters, votes), params["weights"].reshape(voters, votes, -1)
    for hidden in product((0, 1), repeat=model.num_hidden):
        scores = np.pad(bias + weights @ np.array(hidden), ((0, 0), (1, 0)))
        of_votes = chance(softmax(scores, axis=1), counts)
        for label, share in enumerate(params["prevalence"]):
            is_one = expit(params["hidden_bias"] + label_weights[:, label])
            joint[:, label] += share * coin(is_one, hidden) * of_votes
    return joint


def mood(model, params, counts):
    joint = np.zeros((len(counts), 2))
    for mood, share in enumerate([0.5, 0.3, 0.2]):
        for label in (0, 1):
            label_share = 0.2 + 0.3 * mood if label else 0.8 - 0.3 * mood
            skill = params["sensitivity"] if label else 1 - params["sensitivity"]
            joint[:, label] += share * label_share * chance(two_votes(skill ** (1 + mood)), counts)
    return joint
