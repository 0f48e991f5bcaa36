"""The truth and gold labels come from files by the names of items and classes."""

import pytest

from latentens.datasets import from_files, read_labels, read_votes
from latentens.errors import LatentensWarning, VotesError
from tests.reference import besides_signal

VOTES = "item,voter,vote\n1,a,yes\n1,b,no\n2,a,no\n2,b,no\n3,a,yes\n3,b,yes\n"


def test_truth_spelled_otherwise_is_refused(file):
    votes = file(VOTES)
    with pytest.raises(VotesError, match=r"truth.csv: no voter voted 'Yes' .*: did you mean 'yes'\?$"):
        from_files(votes, file("item,truth\n1,Yes\n2,no\n", "truth.csv"))
    with pytest.raises(VotesError, match=r"voted 'unsure' .*classes=\('no', 'yes', 'unsure'\)\): the classes are"):
        from_files(votes, file("item,truth\n1,unsure\n2,no\n", "truth.csv"))
    with pytest.raises(VotesError, match="no voter voted '0'"):
        from_files(votes, file("item,truth\n1,1\n2,0\n", "truth.csv"))
    dataset = from_files(votes, tmp := votes.with_name("truth.csv"), classes=("no", "yes", "0", "1"))
    assert tmp.is_file()
    assert dataset.labels.tolist() == [3, 2, -1]
    assert dataset.votes.class_names == ("no", "yes", "0", "1")


@pytest.mark.parametrize(
    "text",
    [
        "item,truth\n1,yes\n2,no\n",
        "gold;id\nno;2\nyes;1\n",
        "item\tlabel\tconfidence\n2\tno\t.5\n1\tyes\t.7\n3\t\t.1\n",
        ",said\n1,yes\n2,no\n",
        "item,voter,vote,truth\n1,a,no,yes\n1,b,no,yes\n2,a,yes,no\n2,b,no,\n",
    ],
)
def test_columns_of_the_truth_are_found(file, text):
    assert read_labels(file(text, "truth.csv")) == {1: "yes", 2: "no"}
    assert from_files(file(VOTES), file(text, "truth.csv")).labels.tolist() == [1, 0, -1]


def test_the_option_item_counts_for_the_truth_too_if_it_has_that_column(file):
    votes = file(VOTES.replace("item", "doc"))
    for name in ("doc", "item"):
        truth = file(f"{name},truth,id\n1,yes,7\n2,no,8\n", "truth.csv")
        assert from_files(votes, truth, item="doc").labels.tolist() == [1, 0, -1]


def test_codes_for_a_missing_vote_count_for_the_truth_too(file):
    truth = file("item,truth\n1,NA\n2,no\n", "truth.csv")
    assert from_files(file(VOTES.replace("2,a,no", "2,a,NA")), truth, missing=("NA",)).labels.tolist() == [-1, 0, -1]


def test_numbers_in_truth_and_votes_are_the_same_however_they_are_written(file):
    votes = file("item,a,b\n1,1,0\n2,0,1\n3,,1\n")
    assert from_files(votes, file("item,truth\n1,1.0\n2,0.0\n", "truth.csv")).labels.tolist() == [1, 0, -1]


def test_items_that_have_no_votes_are_counted_and_ignored(file):
    with pytest.warns(LatentensWarning, match="2 of 3 items with a true label have no votes"):
        dataset = from_files(file(VOTES), file("item,truth\n1,yes\n8,no\n9,other\n", "truth.csv"))
    assert dataset.labels.tolist() == [1, -1, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,truth\nq1,yes\n", r"none of the items with a true label \('q1', …\) is an item of the votes \(1, …\)"),
        ("item,truth\n1,yes\n1,no\n", "item 1 has more than one true label, 'yes', 'no': keep one"),
        ("item,truth\n", "there is a header but no rows"),
        ("truth\nyes\n", "none of the columns 'truth' is named like the items"),
        ("item,truth,gold\n1,yes,no\n", "which of the columns 'truth', 'gold' holds the true labels"),
        ("item,truth\n1,yes\n,no\n", "row 1 has no item"),
        ("item,truth\n1,\n", "it contains no true labels"),
    ],
)
def test_bad_truth(file, text, message):
    with pytest.raises(VotesError, match=message) as raised:
        from_files(file(VOTES), path := file(text, "truth.csv"))
    assert str(raised.value).startswith(str(path))


def test_gold_labels_are_given_by_name(file):
    votes = read_votes(file(VOTES.replace("1,", "q1,").replace("2,", "q10,")))
    labels = read_labels(file("item,gold\nq10,no\nq1,yes\n", "gold.csv"))
    assert labels == {"q1": "yes", "q10": "no"}
    assert set(labels) < set(votes.item_names)


def test_compare_refuses_a_truth_spelled_otherwise_and_ignores_unknown_items_aloud(invoke, file, tmp_path):
    file(VOTES)
    arguments = ("compare", "--votes", "votes.csv", "--truth", "truth.csv", "-m", "MajorityVote")
    file("item,truth\n1,Yes\n2,no\n", "truth.csv")
    code, shown, error = invoke(*arguments, cwd=tmp_path)
    words = "no voter voted 'Yes' (if it is a class nevertheless, give --classes no,yes,Yes): did you mean 'yes'?"
    assert (code, shown, error) == (2, "", f"latentens: truth.csv: {words}\n")
    file("item,truth\n1,yes\n2,no\n9,no\n", "truth.csv")
    code, shown, error = invoke(*arguments, cwd=tmp_path)
    assert code == 0
    assert shown.startswith("votes: 3 items × 2 voters, 2 classes ('no', 'yes'), 0.0% missing, 2 true labels\n")
    assert besides_signal(error) == "latentens: 1 of 3 items with a true label have no votes: they are ignored\n"
