"""Brute force in plain NumPy: p(label, votes) by summing over every hidden state, one after the other."""

from itertools import product

import numpy as np
from scipy.special import expit, ndtr


def sums_out_missing(says_one, rows):
    """Π over the votes that were cast of p(vote), for voters who say 1 with the given probabilities."""
    return np.prod(np.where(rows == 1, says_one, np.where(rows == 0, 1 - says_one, 1.0)), axis=1)


def coin(is_one, states):
    """Probability of a vector of independent coins."""
    return np.prod(np.where(np.array(states) == 1, is_one, 1 - is_one))


def dawid_skene(model, params, rows):
    if model.num_classes > 2:
        joint = np.tile(params["prevalence"], (len(rows), 1))
        for label in range(model.num_classes):
            for row in range(len(rows)):
                for voter in range(model.num_voters):
                    if rows[row, voter] >= 0:
                        joint[row, label] *= params["confusion"][voter, label, rows[row, voter]]
        return joint
    share = params["prevalence"]
    zero = (1 - share) * sums_out_missing(1 - params["specificity"], rows)
    one = share * sums_out_missing(params["sensitivity"], rows)
    return np.stack([zero, one], axis=1)


def tree(model, params, rows):
    joint = np.zeros((len(rows), 2))
    for label in (0, 1):
        share = params["prevalence"] if label else 1 - params["prevalence"]
        hidden_is_one = params["hidden_sensitivity"] if label else 1 - params["hidden_specificity"]
        for hidden in product((0, 1), repeat=model.num_groups):
            parent = np.array([hidden[group] for group in model.groups])
            says_one = np.where(parent == 1, params["voter_sensitivity"], 1 - params["voter_specificity"])
            joint[:, label] += share * coin(hidden_is_one, hidden) * sums_out_missing(says_one, rows)
    return joint


def layered_graph(model, params, rows):
    def node_is_one(name, parents):
        sensitivity, specificity = params[f"{name}_sensitivity"], params[f"{name}_specificity"]
        weight = params.get(f"{name}_weight", np.ones_like(sensitivity))
        is_one = np.zeros(len(sensitivity))
        for i in range(len(sensitivity)):
            for j, parent in enumerate(parents):
                is_one[i] += weight[i, j] * (sensitivity[i, j] if parent else 1 - specificity[i, j])
        return is_one

    joint = np.zeros((len(rows), 2))
    first, second = model.layers
    for label in (0, 1):
        share = params["prevalence"] if label else 1 - params["prevalence"]
        first_is_one = node_is_one("hidden_1", [label])
        for upper in product((0, 1), repeat=first):
            upper_probability = share * coin(first_is_one, upper)
            second_is_one = node_is_one("hidden_2", upper)
            for lower in product((0, 1), repeat=second):
                probability = upper_probability * coin(second_is_one, lower)
                joint[:, label] += probability * sums_out_missing(node_is_one("vote", lower), rows)
    return joint


def truncated_gaussian(model, params, rows):
    """The common factor is integrated by the trapezoidal rule on a fine grid, not by Gauss–Hermite nodes."""
    del model
    grid, step = np.linspace(-14, 14, 4001, retstep=True)
    density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi) * step
    rho = params["correlation"]
    joint = np.zeros((len(rows), 2))
    for label in (0, 1):
        share = params["prevalence"] if label else 1 - params["prevalence"]
        mean = params["mean"] if label else -params["mean"]
        for u, weight in zip(grid, density, strict=True):
            joint[:, label] += (
                share * weight * sums_out_missing(ndtr((mean + np.sqrt(rho) * u) / np.sqrt(1 - rho)), rows)
            )
    return joint


def deep_belief_net(model, params, rows):
    """By the definition: the normaliser of the RBM sums over hidden and visible states."""
    states = list(product((0, 1), repeat=model.num_hidden))
    visible = np.array(list(product((0, 1), repeat=model.num_voters)))
    normaliser = 0.0
    joint = np.zeros((len(rows), 2))
    for hidden in map(np.array, states):
        activation = params["visible_bias"] + params["weights"] @ hidden
        bias = np.exp(params["hidden_bias"] @ hidden)
        unnormalised = bias * np.exp(visible @ activation).sum()
        normaliser += unnormalised
        label_is_one = expit(params["label_bias"] + params["label_weights"] @ hidden)
        votes = unnormalised * sums_out_missing(expit(activation), rows)
        joint += np.outer(votes, [1 - label_is_one, label_is_one])
    return joint / normaliser


def top_down(model, params, rows):
    joint = np.zeros((len(rows), 2))
    for label in (0, 1):
        share = params["prevalence"] if label else 1 - params["prevalence"]
        hidden_is_one = expit(params["hidden_bias"] + params["label_weights"] * label)
        for hidden in product((0, 1), repeat=model.num_hidden):
            says_one = expit(params["visible_bias"] + params["weights"] @ np.array(hidden))
            joint[:, label] += share * coin(hidden_is_one, hidden) * sums_out_missing(says_one, rows)
    return joint


def mood(model, params, rows):
    joint = np.zeros((len(rows), 2))
    for mood, share in enumerate([0.5, 0.3, 0.2]):
        for label in (0, 1):
            label_share = 0.2 + 0.3 * mood if label else 0.8 - 0.3 * mood
            skill = params["sensitivity"] if label else 1 - params["sensitivity"]
            joint[:, label] += share * label_share * sums_out_missing(skill ** (1 + mood), rows)
    return joint
