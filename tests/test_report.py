"""Reports: what stands in the page and its files is what stands in the tree."""

import dataclasses
import io
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from importlib.resources import files
from unittest.mock import Mock

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

import latentens
from latentens import Dataset, Votes
from latentens.checks.effective_voters import EffectiveNumber, EffectiveVoters
from latentens.comparison import EXACT, DatasetResult, Outcome, add_independence, add_worth, from_tree, sweep
from latentens.datasets import load
from latentens.errors import LatentensError, VotesError
from latentens.inference.orient import vote_shares
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.methods.base import Diagnostics, Estimate, Method
from latentens.models import DawidSkene
from latentens.reporting.conclusions import find, summarise
from latentens.reporting.drawing import one_line
from latentens.reporting.figures import draws_summary, trace_figure
from latentens.reporting.layout import score_tables
from latentens.reporting.page import safe_names
from latentens.reporting.parts import MOST_ITEMS, effective_voters_part
from latentens.reporting.tables import Mean, confidence_shares
from latentens.scores import PairedDifference
from latentens.scores.scores import SCORES
from tests.reference import DATA, needs_data, two_class

HOSTILE = ["</script><script>alert(1)</script>", '" onload="x', "[red]m[/red]" + 200 * "n", "$v_1$ <s>"]
NASTY = '<b>my</b> & "data"/1'


@dataclass(frozen=True)
class Broken(Method):
    """A method that fails."""

    size: int = 7

    def estimate(self, votes, key, gold=None):
        raise LatentensError("the matrix <A> & its inverse are lost; drop voter 3")

    def posterior(self, estimate, votes):
        raise NotImplementedError


@dataclass(frozen=True)
class Sampled(Method):
    """Vote shares with made-up draws, and with the diagnostics of a stack of Boltzmann machines."""

    inner: Broken = Broken(2)
    spread: float = 0.25

    def estimate(self, votes, key, gold=None):
        noise = np.random.default_rng(1).normal(size=(2, 30, 5))
        draws = {"scale": noise[..., 0], "ability": noise}
        diagnostics = Diagnostics(converged=False, warnings=["chains <disagree>"]).updated(
            architecture=[5, 2, 1],
            singular_value_curves=[[0.7, 0.99, 1.0], [1.0]],
            sample_stats={"lp": noise[..., 0]},
        )
        return Estimate({"ability": noise.mean((0, 1))}, diagnostics, draws)

    def posterior(self, estimate, votes):
        return vote_shares(votes)


METHODS = {
    "vote $x$ <i>": MajorityVote(),
    "Dawid/Skene": DawidSkeneEM(random_starts=1),
    "Broken": Broken(),
    "Sampled(with, a=long, name=of, several=words, and='<more>')": Sampled(),
}


def example_tree():
    """A labelled set whose exact posterior is known, and an unlabelled one with three classes and missing votes."""
    rng = np.random.default_rng(2)
    params = two_class(0.4, rng.uniform(0.6, 0.9, 5), rng.uniform(0.6, 0.9, 5))
    labels = rng.random(200) < params["prevalence"][1]
    says_one = params["confusion"][:, labels.astype(int), 1].T
    votes = Votes.from_matrix((rng.random((200, 5)) < says_one).astype(int))
    partly = np.where(np.arange(200) < 10, -1, labels)
    known = Dataset(
        "known/1", votes, partly, DawidSkene(5), {name: np.asarray(value) for name, value in params.items()}
    )
    words = np.array(["<u>a</u>", "b & c", "]]>", None], dtype=object)[rng.integers(-1, 3, (60, 4))]
    table = pd.DataFrame(words, columns=HOSTILE, index=[f"<img src=x onerror=alert({i})>" for i in range(60)])
    unlabelled = Dataset(NASTY, Votes.from_matrix(table), np.full(60, -1))
    tree = latentens.compare([known, unlabelled], METHODS, key=jax.random.key(3), repetitions=2, resamples=20)
    add_independence(tree, [unlabelled], key=jax.random.key(4))
    return tree


@pytest.fixture(scope="module")
def tree():
    return example_tree()


@pytest.fixture(scope="module")
def folder(tree, tmp_path_factory):
    return latentens.report(tree, tmp_path_factory.mktemp("report")).parent


class Reader(HTMLParser):
    """Collects what a page refers to, its text, and whether its tags match."""

    def __init__(self):
        super().__init__()
        self.addresses, self.images, self.tags, self.open, self.text = [], [], [], [], []
        self.breaks = False

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.breaks = tag == "wbr"  # where a word may break, but is one
        self.addresses += [found[name] for name in ("src", "href", "srcset", "action") if name in found]
        if tag == "img":
            self.images.append(found)
        if tag not in ("meta", "img", "br", "wbr", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.breaks and self.text:
            data = self.text.pop() + data
        self.text.append(data)
        self.breaks = False


@pytest.fixture(scope="module")
def page(folder):
    reader = Reader()
    reader.feed((folder / "report.html").read_text(encoding="utf-8"))
    assert not reader.open
    return reader


def words(page):
    return " ".join(page.text).replace("\u00a0", " ")


def test_page_refers_to_nothing_outside_itself(page, folder):
    assert page.addresses
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    source = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r"base64,[A-Za-z0-9+/=]+", "", source))
    assert page.tags.count("script") == 1  # its own, within it


def test_every_figure_is_a_picture_with_words_and_a_file(page, folder):
    files = sorted(folder.glob("*.png"))
    assert len(page.images) == len(files) >= 10
    assert all(len(image["alt"]) > 20 for image in page.images)
    for file in files:
        assert re.fullmatch(r"[A-Za-z0-9-]+\.png", file.name)
        with Image.open(io.BytesIO(file.read_bytes())) as picture:
            assert picture.width > 500
            assert len(picture.convert("RGB").getcolors(10**6)) > 10


def test_names_and_errors_are_text_and_not_markup(page, folder):
    source = (folder / "report.html").read_text(encoding="utf-8")
    for raw in ("<b>my</b>", "<i>", "<A>", "<more>", "<disagree>"):
        assert raw not in source
        assert raw in words(page)


def test_names_of_items_voters_and_classes_are_text_everywhere(page, folder):
    assert page.tags.count("script") == 1
    assert not {"u", "s", "b", "i"} & set(page.tags)
    assert not any("x" in image.get("src", "")[:4] for image in page.images)
    text = words(page)
    for name in (*HOSTILE, "<u>a</u>", "<img src=x onerror=alert("):
        assert name in text
    voters = pd.read_csv(folder / "voters.csv")
    assert set(HOSTILE) <= set(voters["voter"])


def test_scores_file_holds_the_scores_of_the_tree(tree, folder):
    found = pd.read_csv(folder / "scores.csv").set_index(["dataset", "repetition", "estimator", "score"])
    scores, intervals = tree["scores"].to_dataset(), tree["intervals"].to_dataset()
    checked = 0
    for (dataset, repetition, method, score), row in found.iterrows():
        place = {"dataset": dataset, "repetition": repetition, "estimator": method}
        np.testing.assert_allclose(row["value"], scores[score].loc[place])
        if score in intervals:
            np.testing.assert_allclose([row["low"], row["high"]], intervals[score].loc[place])
            checked += 1
    assert len(found) == sum(int(scores[name].notnull().sum()) for name in scores if name != "error")
    assert checked > 50


def test_pairs_file_holds_both_tests(tree, folder):
    found = pd.read_csv(folder / "pairs.csv")
    assert set(found["score"]) == {"balanced_accuracy", "accuracy", "log_score"}
    assert set(found["dataset"]) == {"known/1"}
    competing = found[(found["estimator"] != EXACT) & (found["other"] != EXACT)]
    assert (competing["adjusted_p_value"] >= competing["p_value"] - 1e-12).all()
    assert found.loc[found["other"] == EXACT, "adjusted_p_value"].isna().all()
    row = found.iloc[-1]
    place = {name: row[name] for name in ("dataset", "repetition", "estimator", "other")}
    for column in ("difference", "low", "high", "p_value"):
        np.testing.assert_allclose(row[column], tree["pairs"].to_dataset()[f"{row['score']}_{column}"].loc[place])


def test_settings_hold_every_hyperparameter_and_the_key(page, folder, tree):
    settings = pd.read_csv(folder / "settings.csv", dtype=str, keep_default_na=False)
    for name, method in METHODS.items():
        mine = settings[settings["estimator"] == name].set_index("setting")["value"]
        assert mine["class"] == type(method).__name__
        for field in dataclasses.fields(method):
            value = getattr(method, field.name)
            assert mine[field.name] == ("Broken" if isinstance(value, Broken) else repr(value))
    assert mine["inner.size"] == "2"
    assert str(tree.attrs["key"]) in words(page)


def test_page_tells_failures_and_warnings(page):
    text = words(page)
    assert "Broken failed: the matrix <A> & its inverse are lost; drop voter 3 (in 2 repetitions)" in text
    assert "warns: chains <disagree>" in text


def test_unlabelled_data_get_agreement_and_no_score(page, tree):
    text = words(page)
    assert "No labels are known" in text
    view = from_tree(tree).datasets[1]
    labels = np.array([probs.argmax(axis=1) for probs in view.posteriors.values()])
    everywhere = np.mean([len(set(column)) == 1 for column in labels.T])
    assert f"All 3 methods give the same label to {100 * everywhere:.1f} % of the items" in text


def test_page_says_what_voters_are_worth_or_how_to_ask(tree, monkeypatch):
    simulated, view = from_tree(tree).datasets
    assert effective_voters_part(simulated) is None  # the process behind the votes is known
    assert "not computed" in effective_voters_part(view).words[0]
    found = EffectiveVoters(EffectiveNumber(2.6, 2.9, 0.4), 2.1, 3.3, DawidSkene(4, 3), 4, 0.9)
    for answer in (found, VotesError("there are too many")):
        monkeypatch.setattr(sweep, "effective_voters", Mock(side_effect=[answer]))
        asked = tree.copy()
        add_worth(asked, [Dataset(NASTY, view.votes, np.full(60, -1))], key=jax.random.key(0))
        first, *more = effective_voters_part(from_tree(asked).datasets[1]).words
        if answer is found:
            assert "4 voters are worth about 2.6 independent ones (90% interval 2.1 to 3.3)" in first
            assert "2.9" in more[0]
        else:
            assert first == "The effective number of voters could not be estimated: there are too many."
            assert not more


def test_draws_are_summarised_by_arviz(folder):
    draws = pd.read_csv(folder / "draws.csv")
    assert {"scale", "ability[4]"} <= set(draws["parameter"])
    assert len(draws) == 2 * 6
    assert np.isfinite(draws["r_hat"]).all()


def test_draws_of_named_voters_are_traced(tree):
    draws = xr.Dataset(
        {"rate": (("chain", "draw", "voter"), np.random.default_rng(0).normal(size=(2, 20, 2)))},
        {"chain": [0, 1], "draw": np.arange(20), "voter": ["ann, b.", "c[0]"]},
    )
    summary = draws_summary(xr.DataTree.from_dict({"posterior": draws}))
    assert set(summary["parameter"]) == {"rate[ann, b.]", "rate[c[0]]"}
    assert "rate[c[0]]" in trace_figure("mine", xr.DataTree.from_dict({"posterior": draws}), summary).alternative


def test_parameters_stand_next_to_the_truth(tree, folder):
    found = pd.read_csv(folder / "parameters.csv")
    view = from_tree(tree).datasets[0]
    mine = found[
        (found["estimator"] == "Dawid/Skene") & (found["parameter"] == "confusion") & (found["repetition"] == 0)
    ]
    np.testing.assert_allclose(mine["true"], view.true_params["confusion"].ravel())
    np.testing.assert_allclose(mine["estimate"], view.first_fits["Dawid/Skene"].params["confusion"].ravel())


def test_confidence_is_counted_in_ranges_that_hold_their_upper_end():
    top = np.array([0.5, 0.6, 0.61, 0.9, 0.99, 0.9901, 1.0])
    np.testing.assert_allclose(confidence_shares(np.stack([1 - top, top], axis=1)) * 7, [2, 1, 1, 1, 2])


def test_names_on_one_line_differ():
    judges = [f"GPT-4o/{prompt}/{order}" for prompt in ("plain", "chain-of-thought") for order in ("plain", "swapped")]
    assert one_line(judges, 40) == judges
    assert one_line(judges, 18) == [
        "GPT-4o/plain/plain",
        "GPT-4o/pl…/swapped",
        "GPT-4o/ch…ht/plain",
        "GPT-4o/ch…/swapped",
    ]
    alike = [f"{'a' * 30}{middle}{'z' * 30}" for middle in "xy"]
    assert one_line(alike, 10) == ["1 aaaaaaaaa…", "2 aaaaaaaaa…"]
    nearly = [f"{'a' * 6}{middle}{'z' * 6}" for middle in "xy"]
    assert one_line(nearly, 10) == nearly
    assert one_line(["a b", "a  b", "c\nd"], 10) == ["1 a b", "2 a b", "3 c d"]


def test_file_names_are_safe_and_differ():
    names = safe_names(["a/b", "a-b", "../../etc", "<>", "日本"])
    assert names[0] == "a-b"
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9-]+", name) for name in names)


def test_folder_that_cannot_be_made_is_told(tree, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LatentensError, match="file cannot be created"):
        latentens.report(tree, tmp_path / "file")


def scored(**values):
    """Means and pairs of methods from (balanced accuracy, log score) and the p-values of both against the others."""
    means = {
        (name, score): Mean(value, value, value, np.nan)
        for name, (accuracy, log_score, *_) in values.items()
        for score, value in {
            "balanced_accuracy": accuracy,
            "log_score": log_score,
            "confident_share": 0.5,
            "confident_wrong": 0.1,
            "calibration_error": 0.1,
            "calibration_error_debiased": 0.1,
        }.items()
    }
    pairs = {
        (score, one, other): PairedDifference(
            values[one][place - 2] - values[other][place - 2], 0.0, 0.0, values[other][place]
        )
        for place, score in ((2, "balanced_accuracy"), (3, "log_score"))
        for one in values
        for other in values
    }
    return means, pairs


@pytest.fixture(scope="module")
def copied_votes():
    """Three voters, each copied five times; `sure` takes the copies as evidence of their own, `fair` does not."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 3000)
    votes = np.repeat(np.where(rng.random((3000, 3)) < 0.75, labels[:, None], 1 - labels[:, None]), 5, axis=1)
    logits = np.log(3) * (2 * votes - 1).sum(axis=1)
    one = {"fair": 1 / (1 + np.exp(-logits / 5)), "sure": 1 / (1 + np.exp(-logits))}
    posteriors = {name: np.stack([1 - prob, prob], axis=1) for name, prob in one.items()}
    return scored_by(Dataset("copied", Votes.from_matrix(votes), labels), posteriors)


def scored_by(dataset, posteriors):
    """A data set with posteriors by method."""
    fits = {(0, name): Outcome(label_probs=probs) for name, probs in posteriors.items()}
    return DatasetResult(dataset, "", {}, fits)


def test_overconfidence_is_found_and_explained(copied_votes):
    means, pairs = scored(fair=(0.84, 0.4, 1, 1), sure=(0.84, 0.9, 1, 1))
    findings = find(copied_votes, means, pairs)
    assert set(findings.gaps) == {"sure"}
    told = summarise(copied_votes, means, pairs, findings)
    reasons = [reason.text for reason in told.reasons]
    assert any("sure is overconfident" in text and "voters depend on each other" in text for text in reasons)
    assert any("sure puts 50\u00a0% of the items above 0.99" in text for text in told.reasons[-1].examples)


def test_independent_voters_are_not_called_dependent(copied_votes):
    votes = Votes.from_matrix(copied_votes.votes.matrix[:, ::5])
    alone = replace(copied_votes, dataset=replace(copied_votes.dataset, votes=votes))
    means, pairs = scored(fair=(0.84, 0.4, 1, 1), sure=(0.84, 0.9, 1, 1))
    reasons = [reason.text for reason in summarise(alone, means, pairs, find(alone, means, pairs)).reasons]
    assert any("sure is overconfident" in text for text in reasons)
    assert not any("depend on each other" in text for text in reasons)


def test_modest_and_impossible_statements_are_found(copied_votes):
    certain = np.eye(2)[copied_votes.posteriors["sure"].argmax(axis=1)]
    posteriors = {"timid": 0.5 + (copied_votes.posteriors["fair"] - 0.5) / 10, "certain": certain}
    view = scored_by(copied_votes.dataset, posteriors)
    findings = find(view, *scored(timid=(0.84, 0.6, 1, 1), certain=(0.84, 99.0, 1, 1)))
    assert findings.gaps["timid"] < 0 < findings.gaps["certain"]
    assert findings.impossible == {"certain": int(np.sum(certain.argmax(axis=1) != view.labels))}


@pytest.mark.parametrize(
    ("fair", "sure", "headline"),
    [
        (
            (0.84, 0.4, 0, 0),
            (0.80, 0.9, 0, 0),
            "Trust fair: its labels and its probabilities are the best on",
        ),
        (
            (0.84, 0.4, 0.3, 0),
            (0.85, 0.9, 0.3, 0),
            "Trust fair: no method has significantly better labels or",
        ),
        ((0.80, 0.4, 0, 0), (0.84, 0.9, 0, 0), "Take the labels from sure and the probabilities from fair."),
        ((0.84, 0.4, 0.3, 0.3), (0.85, 0.9, 0.3, 0.3), "The methods are not significantly different on these items."),
    ],
)
def test_headline_says_whom_to_trust(copied_votes, fair, sure, headline):
    means, pairs = scored(fair=fair, sure=sure)
    told = summarise(copied_votes, means, pairs, find(copied_votes, means, pairs))
    assert told.headline.startswith(headline)
    assert told.headline.endswith("Do not take the probabilities of fair at face value.")


def test_the_best_method_is_marked_whichever_way_is_better():
    means, _ = scored(
        **{EXACT: (0.9, 0.2, 1, 1), "one": (0.8, 0.3, 1, 1), "two": (0.7, 0.4, 1, 1), "no": (0.6, 0.1, 1, 1)}
    )
    cells = [cell for table in score_tables(means, SCORES) for row in table.rows for cell in row[1:]]
    marked = {cell.text for cell in cells if cell.best}
    assert "80.00" in marked  # balanced accuracy of `one`, not of the exact posterior
    assert "0.100" in marked  # log score of `no`
    assert not marked & {"90.00", "0.200", "50.00"}  # a share of confident items is neither good nor bad


@needs_data
def test_report_shows_what_the_exact_posterior_reveals_on_tg(tmp_path):
    tree = latentens.compare(load("TG/1", DATA), [DawidSkeneEM()], key=jax.random.key(1), resamples=20)
    scores = pd.read_csv(latentens.report(tree, tmp_path).parent / "scores.csv").pivot(
        index="estimator", columns="score", values="value"
    )
    assert scores["confident_share"]["DawidSkeneEM"] == pytest.approx(0.86, abs=0.01)
    assert scores["confident_share"][EXACT] == pytest.approx(0.20, abs=0.01)
    assert scores["log_score"]["DawidSkeneEM"] == pytest.approx(1.5, abs=0.05)
    assert scores["log_score"][EXACT] == pytest.approx(0.23, abs=0.01)
    text = (tmp_path / "report.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "DawidSkeneEM puts 86 % of the items above 0.99, the exact posterior 20 %" in text


def test_figures_show_the_first_repetition_that_did_not_fail(tree):
    damaged = tree.copy(deep=True)
    damaged["known/1/estimates"]["label_prob"][{"repetition": 0, "estimator": 1}] = np.nan
    shown = from_tree(damaged).datasets[0].posteriors["Dawid/Skene"]
    np.testing.assert_array_equal(shown, tree["known/1/estimates"]["label_prob"][{"repetition": 1, "estimator": 1}])


def test_a_comparison_in_which_all_failed_is_still_reported(tmp_path):
    votes = Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (20, 3)))
    failed = latentens.compare(Dataset("lost", votes, np.ones(20, int)), [Broken()], key=jax.random.key(0), resamples=5)
    text = latentens.report(failed, tmp_path).read_text(encoding="utf-8")
    assert "Every method failed." in text
    assert "drop voter 3" in text


def test_a_table_of_nine_rows_has_no_search_box_and_one_of_25_items_has():
    script = (files("latentens.reporting") / "page.js").read_text()
    most = int(re.search(r"ON_A_SCREEN = (\d+);", script).group(1))
    assert "if (rows.length <= ON_A_SCREEN) continue;" in script
    assert 9 <= most < MOST_ITEMS
