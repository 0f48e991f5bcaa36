"""Soft votes, a probability of each category: against loops, and against the same votes cast repeatedly."""

import jax
import numpy as np
import pandas as pd
import pytest

import latentens as le
from latentens.checks import check_signal
from latentens.datasets import simulate
from latentens.errors import VotesError
from latentens.methods import Consensus, DawidSkeneEM, Ebcc, MajorityVote, MaximumLikelihood, Nuts, Tempered
from latentens.models import ClassConditional, DawidSkene
from latentens.programs.likelihood import bayes_posterior, log_likelihood
from latentens.votes import Votes

KEY = jax.random.key(0)
VOTERS, ITEMS = 4, 60


def soft_array(num_classes=2, num_items=ITEMS, missing=0.2, seed=0):
    """Probabilities near 0 and 1 that mostly favour the label, some missing."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(num_classes, size=num_items)
    logits = generator.normal(1.5 * np.eye(num_classes)[labels][:, None], 1.0, (num_items, VOTERS, num_classes))
    probs = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=2, keepdims=True)
    probs[generator.random((num_items, VOTERS)) < missing] = np.nan
    return probs, labels


def joint_by_loops(prevalence, confusion, probs):
    """Expected log-emissions, written out."""
    found = np.zeros((len(probs), len(prevalence)))
    for i, item in enumerate(probs):
        for k, share in enumerate(prevalence):
            found[i, k] = np.log(share)
            for j, stated in enumerate(item):
                if not np.isnan(stated).any():
                    found[i, k] += sum(s * np.log(confusion[j, k, v]) for v, s in enumerate(stated))
    return found


def softmax(joint):
    return np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)


def wide_frame(probs, names=("No", "Yes")):
    columns = {f"judge {j}:{name}": probs[:, j, v] for j in range(probs.shape[1]) for v, name in enumerate(names)}
    return pd.DataFrame(columns, index=[f"q{i}" for i in range(len(probs))])


@pytest.mark.parametrize("num_classes", [2, 3])
def test_posterior_and_likelihood_are_those_of_loops(num_classes):
    probs, _ = soft_array(num_classes)
    votes = Votes.from_soft(probs)
    assert votes.is_soft
    assert votes.shape == (ITEMS, VOTERS)
    assert votes.num_missing == np.isnan(probs[..., 0]).sum()
    model = DawidSkene(VOTERS, num_classes)
    params = simulate(model, 1, key=KEY).params
    joint = joint_by_loops(params["prevalence"], params["confusion"], probs)
    np.testing.assert_allclose(bayes_posterior(model, params, votes), softmax(joint), atol=1e-10)
    total = np.log(np.exp(joint).sum(axis=1)).sum()
    assert log_likelihood(model, params, votes) == pytest.approx(total, abs=1e-9)


def test_estimates_are_those_of_fractional_counts():
    probs, labels = soft_array(num_items=300)
    votes = Votes.from_soft(probs)
    fit = DawidSkeneEM(0.0, 0.0).fit(votes, key=KEY)
    prevalence, confusion = fit.params["prevalence"], fit.params["confusion"]
    posterior = softmax(joint_by_loops(prevalence, confusion, probs))
    np.testing.assert_allclose(fit.label_probs, posterior, atol=1e-10)
    # at the optimum the M-step returns the same estimates
    counts = np.einsum("ik,ijv->jkv", posterior, np.nan_to_num(probs))
    np.testing.assert_allclose(counts / counts.sum(axis=2, keepdims=True), confusion, atol=1e-3)
    likelihood = MaximumLikelihood(DawidSkene(VOTERS), starts=2).fit(votes, key=KEY)
    np.testing.assert_allclose(likelihood.label_probs, fit.label_probs, atol=1e-3)
    np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-10)
    assert fit.voters["votes"].tolist() == (~np.isnan(probs[..., 0])).sum(axis=0).tolist()
    assert fit.to_frame()["votes"].tolist() == (~np.isnan(probs[..., 0])).sum(axis=1).tolist()
    assert np.mean(fit.codes == labels) > 0.85
    assert "weight" in fit.to_datatree()["observed_data"]


def test_a_third_of_a_vote_is_one_of_three():
    words = np.array([["a", "a", "b"], ["b", "b", "b"], ["a", "b", "b"], ["a", "a", "a"]] * 20)
    frame = pd.DataFrame(
        {
            "item": np.repeat(np.arange(80), 9),
            "voter": np.tile(np.repeat(["x", "y", "z"], 3), 80),
            "vote": np.stack([words, np.roll(words, 1, axis=0), words[::-1]], axis=1).ravel(),
        }
    )
    repeated = Votes.from_long(frame, duplicates="keep")
    shares = frame.groupby(["item", "voter", "vote"]).size().div(3).rename("weight").reset_index()
    soft = Votes.from_soft(shares)
    np.testing.assert_allclose(soft.tally * 3, repeated.tally)
    model = ClassConditional(3)
    params = {"prevalence": np.array([0.4, 0.6]), "accuracy": np.full((3, 2), 0.8)}
    thrice = {**params, "accuracy": np.full((3, 2), 1 / (1 + (0.2 / 0.8) ** (1 / 3)))}  # a third of the log-odds
    np.testing.assert_allclose(
        bayes_posterior(model, params, soft), bayes_posterior(model, thrice, repeated), atol=1e-10
    )


def test_every_form_is_read_alike(tmp_path, invoke):
    probs, _ = soft_array(num_items=30)
    frame = wide_frame(probs)
    array, wide = Votes.from_soft(probs, classes=("No", "Yes")), Votes.from_soft(frame)
    frame.rename_axis("item").to_csv(tmp_path / "wide.csv")
    long = wide.to_long()
    long.rename(columns={"weight": "probability"}).to_csv(tmp_path / "long.csv", index=False)
    read = (
        Votes.from_soft(long),
        Votes.from_csv(tmp_path / "wide.csv"),
        Votes.from_csv(tmp_path / "long.csv", weight="probability"),
    )
    assert array.class_names == wide.class_names == ("No", "Yes")
    assert wide.voter_names == tuple(f"judge {j}" for j in range(VOTERS))
    for votes in read:
        assert votes.is_soft
        pd.testing.assert_frame_equal(
            votes.to_long().sort_values(["item", "voter", "vote"], ignore_index=True),
            long.sort_values(["item", "voter", "vote"], ignore_index=True),
        )
    options = "--weight", "probability", "--out", "labels.csv"
    code, shown, error = invoke("fit", "DawidSkeneEM", "long.csv", *options, cwd=tmp_path)
    assert code == 0, error
    assert "soft votes" in shown
    # votes that are not labels, and certain votes
    tied = frame.rename(columns=lambda name: name.replace("Yes", "tie"))
    tied = tied.assign(**{f"judge {j}:Yes": np.nan for j in range(VOTERS)})
    with_ties = Votes.from_soft(tied, classes=("No", "Yes"))
    assert with_ties.other_names == ("tie",)
    assert not Votes.from_soft(np.eye(2)[np.array([[0, 1, 0], [1, 1, 0]])]).is_soft


def test_probabilities_that_are_none_are_refused():
    probs, _ = soft_array(num_items=10, missing=0.0)
    for change, words in (
        ({"judge 0:No": 0.9, "judge 0:Yes": 0.3}, "'judge 0' on item 'q0' sum to 1.2, not to 1: divide"),
        ({"judge 1:No": -0.1}, "-0.1 is not a probability"),
        ({"judge 1:No": "high"}, "'high' is not a probability"),
    ):
        with pytest.raises(VotesError, match=words):
            Votes.from_soft(wide_frame(probs).assign(**change))
    with pytest.raises(VotesError, match="not named voter:category"):
        Votes.from_soft(wide_frame(probs).drop(columns="judge 1:No"))
    half = Votes.from_soft(probs).to_long().assign(weight=lambda table: table["weight"] / 2)
    with pytest.raises(VotesError, match="two probabilities to the same category"):
        Votes.from_soft(pd.concat([half, half]))
    rounded = np.array([[[0.33, 0.33, 0.33], [0.3, 0.3, 0.4]], [[0.2, 0.2, 0.6], [0.1, 0.1, 0.8]]])
    np.testing.assert_allclose(Votes.from_soft(rounded).tally.sum(axis=1), 2)


def test_methods_count_fractions_or_say_that_they_do_not():
    probs, labels = soft_array(num_items=200)
    votes = Votes.from_soft(probs)
    hard = votes.to_hard()
    np.testing.assert_array_equal(hard.matrix, np.where(np.isnan(probs[..., 0]), -1, probs.argmax(axis=2)))
    assert not hard.has_repeats
    shares = MajorityVote().fit(votes, key=KEY).label_probs
    voted = ~np.isnan(probs).all(axis=(1, 2))
    np.testing.assert_allclose(shares[voted], np.nanmean(probs[voted], axis=1), atol=1e-12)
    ebcc = Ebcc(num_subtypes=2, restarts=1)
    fit = ebcc.fit(votes, key=KEY)
    assert "soft votes count as votes for the most probable category" in fit.diagnostics.notes
    np.testing.assert_array_equal(fit.label_probs, ebcc.fit(hard, key=KEY).label_probs)
    quick = DawidSkeneEM(random_starts=1)
    for method in (Tempered(quick), Consensus((quick, MajorityVote()))):
        fit = method.fit(votes, key=KEY)
        assert not fit.diagnostics.notes
        assert np.mean(fit.codes == labels) > 0.85
        np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-8)
    nuts = Nuts(DawidSkene(VOTERS), num_warmup=100, num_samples=100, num_chains=1).fit(votes, key=KEY)
    assert np.mean(nuts.codes == labels) > 0.85
    assert check_signal(votes, key=KEY).found
    assert len(le.agreement(votes, key=KEY, resamples=10))


def test_new_votes_are_matched_by_name():
    probs, _ = soft_array()
    fit = DawidSkeneEM(random_starts=0).fit(Votes.from_soft(wide_frame(probs)), key=KEY)
    expected = dict(zip(fit.item_names, fit.label_probs, strict=True))
    shuffled = Votes.from_soft(wide_frame(probs).iloc[::-1, ::-1])
    np.testing.assert_allclose(fit.predict(shuffled), [expected[name] for name in shuffled.item_names], atol=1e-10)
    one = Votes.from_soft(wide_frame(probs)[["judge 1:No", "judge 1:Yes"]])
    alone = softmax(joint_by_loops(fit.params["prevalence"], fit.params["confusion"][1:2], probs[:, 1:2]))
    np.testing.assert_allclose(fit.predict(one), alone[[int(name[1:]) for name in one.item_names]], atol=1e-10)
