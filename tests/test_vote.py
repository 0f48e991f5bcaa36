import jax
import numpy as np

from latentens import Votes
from latentens.methods import MajorityVote


def test_majority_vote_gives_vote_shares():
    votes = Votes.from_matrix([[0, 1, 1], [1, -1, 0], [-1, -1, -1], [0, 0, 0]])
    fit = MajorityVote().fit(votes, key=jax.random.key(0))
    np.testing.assert_allclose(fit.label_probs[:, 1], [2 / 3, 1 / 2, 1 / 2, 0])
    np.testing.assert_array_equal(fit.labels, [1, 0, 0, 0])
    np.testing.assert_array_equal(fit.predict(votes), fit.label_probs)
    assert "not the posterior" in fit.diagnostics["label_probs"]
    assert fit.diagnostics["seconds"] >= 0
