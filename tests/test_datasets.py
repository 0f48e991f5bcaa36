import json

import numpy as np
import pytest
from scipy.io import savemat

from latentens.datasets import PAPER_MODELS, load, paper_params, simulate_paper
from latentens.datasets.named import paper_to_params
from latentens.errors import DataNotFoundError, VotesError
from latentens.models import Tree
from latentens.programs.likelihood import bayes_posterior
from latentens.scores.scores import balanced_accuracy
from tests.reference import DATA, needs_data

VOTES = np.array([[0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 1, 1]])
LABELS = np.array([1, 1, 0, 1])


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder in the authors' layout with a simulated set, a real one and a crowd folder."""
    monkeypatch.delenv("LATENTENS_DATA", raising=False)
    simulated, dream, crowd = (tmp_path / name for name in ("datasets/simulated/Tree", "datasets/real/Dream", "birds"))
    for folder in (simulated, dream, crowd):
        folder.mkdir(parents=True)
    savemat(simulated / "dataset1.mat", {"f": VOTES.T.astype(np.uint8), "y": LABELS[:, None].astype(np.uint8)})
    savemat(
        dream / "S1_data.mat", {"f": (2 * VOTES.T - 1).astype(np.int16), "y": (2 * LABELS[None] - 1).astype(np.int16)}
    )
    (crowd / "label.csv").write_text("item,worker,label\n2,a,owl\n10,a,jay\n10,b,jay\n2,a,jay\n")
    (crowd / "truth.csv").write_text("item,truth\n10,tit\n")
    params = {name: [0.8, 0.7] for name in ("hidden_sensitivity", "hidden_specificity")}
    params |= {name: [0.9, 0.8, 0.7] for name in ("voter_sensitivity", "voter_specificity")}
    truth = {"Tree": {"prevalence": 0.5, "note": "three voters", "voter_parent": [0, 1, 0]} | params}
    (tmp_path / "true_params.json").write_text(json.dumps(truth))
    return tmp_path


def test_authors_layout_with_true_parameters(root):
    dataset = load("Tree/1", root)
    np.testing.assert_array_equal(dataset.votes.matrix, VOTES)
    np.testing.assert_array_equal(dataset.labels, LABELS)
    assert dataset.model == Tree((0, 1, 0))
    assert dataset.bayes_posterior().shape == (4, 2)


def test_signs_become_codes_and_the_variable_names_the_root(root, monkeypatch):
    monkeypatch.setenv("LATENTENS_DATA", str(root))
    dataset = load("S1")
    np.testing.assert_array_equal(dataset.votes.matrix, VOTES)
    np.testing.assert_array_equal(dataset.labels, LABELS)
    assert dataset.model is None
    assert dataset.bayes_posterior() is None


def test_crowd_folder_with_partial_truth_and_an_unvoted_class(root):
    with pytest.raises(VotesError, match=r"no voter voted 'tit' .*classes=\('jay', 'owl', 'tit'\)\): the classes are"):
        load("birds", root)
    dataset = load("birds", root, classes=("jay", "owl", "tit"))
    assert dataset.votes.class_names == ("jay", "owl", "tit")
    assert list(dataset.votes.item_names) == [2, 10]
    np.testing.assert_array_equal(dataset.votes.matrix, [[0, -1], [0, 0]])  # the later of two answers stands
    np.testing.assert_array_equal(dataset.labels, [-1, 2])


def test_without_a_root_the_papers_sets_are_simulated(root):
    del root
    first, again, other = load("LG/1"), load("LG/1"), load("LG/2")
    np.testing.assert_array_equal(first.votes.matrix, again.votes.matrix)
    assert (first.votes.matrix != other.votes.matrix).any()
    for name, value in first.params.items():
        np.testing.assert_array_equal(value, other.params[name])
    assert first.votes.shape == (10_000, 15)
    assert first.name == "LG/1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Tree/2", "there is no file .*datasets/simulated/Tree/dataset2.mat; fetch the folder .*authors"),
        ("magic/3", "magic_block_3.mat; fetch"),
        ("fish", "fish/label.csv; fetch a crowd-sourced data set"),
    ],
)
def test_missing_files_say_what_to_fetch(root, name, message):
    with pytest.raises(DataNotFoundError, match=message):
        load(name, root)


def test_no_root_at_all(root):
    del root
    with pytest.raises(DataNotFoundError, match="S2 is read from files: give their folder by root=.* LATENTENS_DATA"):
        load("S2")


@pytest.mark.parametrize("content", [b"", b"\x80\x04\x95junk", bytes(200)])
def test_damaged_files_are_refused(root, content):
    path = root / "datasets/simulated/Tree/dataset1.mat"
    path.write_bytes(content)
    with pytest.raises(VotesError, match="dataset1.mat is not a readable MATLAB file"):
        load("Tree/1", root)


def test_file_without_votes_is_refused(root):
    savemat(root / "datasets/simulated/Tree/dataset1.mat", {"f": np.array([[0, 7]]), "y": np.array([[1]])})
    with pytest.raises(VotesError, match="no variable 'f' of votes coded 0, 1 or -1, 1"):
        load("Tree/1", root)


def test_labels_that_do_not_match_the_votes(root):
    savemat(root / "datasets/simulated/Tree/dataset1.mat", {"f": VOTES.T, "y": LABELS[:2]})
    with pytest.raises(VotesError, match=r"labels have shape \(2,\), but there are 4 items"):
        load("Tree/1", root)


def test_anesthesia_comes_with_the_package():
    dataset = load("anesthesia")
    assert dataset.votes.shape == (45, 5)
    item, voter, _ = dataset.votes.triplets
    counts = np.zeros((45, 5), dtype=int)
    np.add.at(counts, (item, voter), 1)
    np.testing.assert_array_equal(counts, np.tile([3, 1, 1, 1, 1], (45, 1)))  # the first judged everybody three times
    assert dataset.votes.class_names == (1, 2, 3, 4)
    np.testing.assert_array_equal(dataset.votes.tally.sum(axis=0), [127, 125, 48, 15])
    assert (dataset.labels == -1).all()


def test_caries_comes_with_the_package():
    dataset = load("caries")
    assert dataset.votes.shape == (3869, 5)
    patterns = dataset.votes.patterns
    assert dict(zip(map(tuple, patterns.rows.tolist()), patterns.counts.tolist(), strict=True))[0, 0, 0, 0, 1] == 789
    np.testing.assert_array_equal(dataset.votes.matrix.sum(axis=0), [339, 858, 496, 469, 1644])
    assert (dataset.labels == -1).all()


def test_published_tables_are_read_in_one_way():
    with pytest.raises(VotesError, match="anesthesia is not read from a table of yours, so duplicates cannot be given"):
        load("anesthesia", duplicates="last")


@needs_data
@pytest.mark.parametrize(("family", "mean"), [("condInd", 94.78), ("Tree", 95.82), ("TG", 91.17)])
@pytest.mark.parametrize("number", [1, 2])
def test_exact_posterior_on_the_authors_files(family, mean, number):
    dataset = load(f"{family}/{number}", DATA)
    accuracy = 100 * balanced_accuracy(dataset.labels, dataset.bayes_posterior().argmax(axis=1))
    assert accuracy == pytest.approx(mean, abs=0.4)


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "patterns"),
    [
        ("S1", (92_362, 124), 6_426),
        ("LG/1", (10_000, 15), None),
        ("magic/2", (19_020, 16), None),
        ("dog", (807, 109), 807),
    ],
)
def test_authors_files_load(name, shape, patterns):
    dataset = load(name, DATA)
    assert dataset.votes.shape == shape
    assert patterns in (None, len(dataset.votes.patterns.counts))
    np.testing.assert_array_equal(np.unique(dataset.labels), np.arange(dataset.votes.num_classes))


def test_simulated_sets_have_the_paper_s_size():
    assert simulate_paper("condInd", 1, num_items=7).votes.shape == (7, 15)


def test_true_parameters_come_with_the_package_and_not_only_beside_the_data(tmp_path, monkeypatch):
    """The authors' layout with nothing of ours in it: the exact posterior is there, if the votes agree with it."""
    monkeypatch.delenv("LATENTENS_DATA", raising=False)
    for family, number in (("condInd", 1), ("TG", 2)):
        drawn = simulate_paper(family, number, num_items=2_000)
        write_authors_file(tmp_path, f"{family}/{number}", drawn.votes.matrix, drawn.labels)
        dataset = load(f"{family}/{number}", tmp_path)
        assert dataset.model == PAPER_MODELS[family]
        np.testing.assert_array_equal(dataset.bayes_posterior(), drawn.bayes_posterior())


def test_votes_that_other_parameters_made_have_no_exact_posterior(tmp_path):
    """As after running the authors' scripts anew: one voter's rate in one class is enough to tell."""
    drawn = simulate_paper("condInd", 1, num_items=2_000)
    changed = drawn.votes.matrix.copy()
    changed[drawn.labels == 1, 4] = 1
    write_authors_file(tmp_path, "condInd/1", changed, drawn.labels)
    write_authors_file(tmp_path, "condInd/2", drawn.votes.matrix[:, :14], drawn.labels)
    lg = simulate_paper("LG", 1, num_items=20)
    write_authors_file(tmp_path, "LG/1", lg.votes.matrix, lg.labels)  # whose parameters are only estimated
    for name in ("condInd/1", "condInd/2", "LG/1"):
        assert load(name, tmp_path).bayes_posterior() is None


def write_authors_file(root, name, votes, labels):
    family, number = name.split("/")
    path = root / "datasets" / "simulated" / family / f"dataset{number}.mat"
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"f": votes.T, "y": labels})


@pytest.mark.parametrize("family", PAPER_MODELS)
def test_paper_parameters_fit_their_model(family):
    params, is_estimate = paper_params(family)
    assert is_estimate == (family == "LG")
    bayes_posterior(PAPER_MODELS[family], params, simulate_paper(family, 1, num_items=3).votes)  # checks them
    np.testing.assert_array_equal(params["prevalence"], 0.5)


@needs_data
def test_paper_parameters_are_the_authors():
    kept = json.loads((DATA / "rbmpaper" / "true_params.json").read_text())
    for family, values in kept.items():
        values = {name: value for name, value in values.items() if name not in ("note", "voter_parent")}
        for name, value in paper_to_params(PAPER_MODELS[family], values).items():
            np.testing.assert_array_equal(paper_params(family).params[name], value)
