"""Simulated sets: independent voters, trees, chains, factors, copies and hard items, any number of classes.

A kind is `STRUCTURE, K classes, dense` or `…, sparse`. Dense sets have 10 voters on every item; sparse ones 60 voters,
of whom five vote on each item, some often and most rarely. Every set has parameters of its own; classes are about
equally frequent in sets of even numbers, and some are rare in the others.
"""

import numpy as np

from latentens import Votes
from latentens.datasets import Dataset
from latentens.votes import Triplets

STRUCTURES = "independent", "tree", "chain", "factor", "copies", "hard items"
CLASSES = 3, 10, 30
KINDS = {
    f"{structure}, {classes} classes, {density}": (structure, classes, density)
    for structure in STRUCTURES
    for classes in CLASSES
    for density in ("dense", "sparse")
}

ITEMS, PER_ITEM = 600, 5
VOTERS = {"dense": 10, "sparse": 60}


def draw_set(kind: str, generator: np.random.Generator, number: int, items: int = ITEMS) -> Dataset:
    """One set of a kind."""
    structure, classes, density = KINDS[kind]
    voters = VOTERS[density]
    labels = generator.choice(classes, items, p=generator.dirichlet(np.full(classes, (5.0, 0.7)[number % 2])))
    matrix = cast(generator, structure, labels, classes, voters)
    if density == "dense":
        return Dataset(f"{number}", Votes.from_matrix(matrix, classes), labels.astype(np.int8))
    active = generator.dirichlet(np.full(voters, 0.5)) + 0.002
    keys = np.log(generator.random((items, voters))) / active  # sampling without replacement by weights
    chosen = np.sort(np.argsort(-keys, axis=1)[:, :PER_ITEM], axis=1)
    item = np.repeat(np.arange(items), PER_ITEM)
    voter = chosen.ravel()
    votes = matrix[item, voter]
    used, voter = np.unique(voter, return_inverse=True)
    storage = Triplets(item.astype(np.int32), voter.astype(np.int32), votes.astype(np.int8))
    return Dataset(f"{number}", Votes(storage, items, len(used), classes), labels.astype(np.int8))


def confusions(generator: np.random.Generator, voters: int, classes: int) -> np.ndarray:
    """Confusion matrices (voter, label, vote): a skill per voter that varies between classes, typical mistakes."""
    skill = generator.beta(4, 2.5, (voters, 1)) + generator.normal(0, 0.1, (voters, classes))
    right = np.clip(skill, 0.05, 0.97)
    errors = generator.dirichlet(np.full(classes, 0.7), (voters, classes)) + 0.2 / classes
    diagonal = np.eye(classes, dtype=bool)
    errors[:, diagonal] = 0
    errors /= errors.sum(axis=2, keepdims=True)
    return np.where(diagonal, right[..., None], errors * (1 - right[..., None]))


def answer(generator: np.random.Generator, tables: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Votes (item, voter) of voters with these tables on labels (item) or (item, voter)."""
    labels = labels if labels.ndim == 2 else np.repeat(labels[:, None], len(tables), axis=1)
    cumulative = tables.cumsum(axis=2)[np.arange(len(tables)), labels]
    drawn = generator.random(labels.shape)[..., None] * cumulative[..., -1:]
    return (drawn > cumulative).sum(axis=2)


def cast(generator: np.random.Generator, structure: str, labels: np.ndarray, classes: int, voters: int) -> np.ndarray:
    """What all voters would say about all items."""
    tables = confusions(generator, voters, classes)
    if structure == "independent":
        return answer(generator, tables, labels)
    if structure == "tree":  # groups hear an opinion of their own
        groups = generator.integers(0, 3, voters)
        opinions = answer(generator, confusions(generator, 3, classes), labels)
        return answer(generator, tables, opinions[:, groups])
    if structure == "chain":  # a voter often repeats the previous one
        votes = answer(generator, tables, labels)
        repeats = generator.random(votes.shape) < generator.uniform(0, 0.6, voters)
        for voter in range(1, voters):
            votes[:, voter] = np.where(repeats[:, voter], votes[:, voter - 1], votes[:, voter])
        return votes
    if structure == "factor":  # on some items there is a tempting wrong answer for all
        tempted = generator.random(len(labels)) < generator.uniform(0.1, 0.35)
        bait = generator.integers(0, classes, len(labels))
        follows = generator.random((len(labels), voters)) < generator.uniform(0.2, 0.8, voters)
        return np.where(tempted[:, None] & follows, bait[:, None], answer(generator, tables, labels))
    if structure == "copies":  # a third of the voters copy one of them
        votes = answer(generator, tables, labels)
        copied = votes[:, :1]
        copyists = np.arange(voters) < max(2, voters // 3)
        exact = generator.random(votes.shape) < 0.95
        return np.where(copyists & exact, copied, votes)
    hard = generator.random(len(labels)) < generator.uniform(0.15, 0.4)
    guess = generator.integers(0, classes, (len(labels), voters))
    lost = generator.random((len(labels), voters)) < 0.7
    return np.where(hard[:, None] & lost, guess, answer(generator, tables, labels))
