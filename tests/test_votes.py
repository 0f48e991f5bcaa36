from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentens import Votes
from latentens.errors import VotesError
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.votes import Triplets
from latentens.votes import tables as tabulation
from latentens.votes.matching import align

MATRICES = arrays(np.int8, st.tuples(st.integers(1, 12), st.integers(1, 20)), elements=st.integers(-1, 3))


def sparse(matrix, num_classes=4):
    dense = Votes.from_matrix(matrix, num_classes)
    return Votes(dense.triplets, *dense.shape, num_classes)


@pytest.mark.parametrize("storage", [Votes.from_matrix, sparse])
@given(matrix=MATRICES)
def test_patterns_are_the_distinct_rows(storage, matrix):
    patterns = storage(matrix, 4).patterns
    distinct, counts = np.unique(matrix, axis=0, return_counts=True)
    np.testing.assert_array_equal(patterns.rows[patterns.inverse], matrix)
    assert patterns.rows.shape == distinct.shape
    np.testing.assert_array_equal(np.bincount(patterns.inverse), patterns.counts)
    assert sorted(patterns.counts) == sorted(counts)


@given(matrix=MATRICES)
def test_both_storages_hold_the_same(matrix):
    dense, triplets = Votes.from_matrix(matrix, 4), sparse(matrix)
    assert triplets.is_sparse
    np.testing.assert_array_equal(dense.matrix, triplets.matrix)
    np.testing.assert_array_equal(dense.tally, triplets.tally)
    np.testing.assert_array_equal(dense.tally.sum(axis=1), (matrix >= 0).sum(axis=1))
    assert dense.num_missing == triplets.num_missing == (matrix < 0).sum()
    chosen = np.arange(len(matrix))[::-2]
    np.testing.assert_array_equal(triplets.take(chosen).matrix, matrix[chosen])
    np.testing.assert_array_equal(dense.take(chosen).matrix, matrix[chosen])


@settings(deadline=None)
@given(matrix=arrays(np.int8, st.tuples(st.integers(1, 8), st.integers(1, 8)), elements=st.integers(0, 2)))
def test_long_wide_and_matrix_agree(tmp_path_factory, matrix):
    folder = tmp_path_factory.mktemp("csv")
    names = np.array(["cat", "dog", "eel"])
    wide = pd.DataFrame(names[matrix], columns=[f"judge {i}" for i in range(matrix.shape[1])])
    long = wide.rename_axis("item").melt(ignore_index=False, var_name="voter", value_name="vote").reset_index()
    wide.to_csv(folder / "wide.csv", index_label="item")
    long.sample(frac=1, random_state=0).to_csv(folder / "long.csv", index=False)
    classes = ("cat", "dog", "eel")
    for made in (
        Votes.from_matrix(wide, classes=classes),
        Votes.from_long(long, classes=classes),
        Votes.from_csv(folder / "wide.csv", classes=classes),
        Votes.from_csv(folder / "long.csv", classes=classes),
    ):
        np.testing.assert_array_equal(made.matrix, matrix)
        assert made.class_names == classes
        assert made.voter_names == tuple(wide.columns)
        assert list(made.item_names) == list(range(len(matrix)))
        pd.testing.assert_frame_equal(made.to_frame(), wide, check_dtype=False, check_names=False)


def test_names_missing_votes_and_items_without_votes_are_kept():
    frame = pd.DataFrame({"task": [7, 7, 9, 8], "who": ["a", "b", "a", "b"], "said": ["yes", "no", "yes", None]})
    made = Votes.from_long(frame, item="task", voter="who", vote="said")
    np.testing.assert_array_equal(made.matrix, [[1, 0], [-1, -1], [1, -1]])
    assert list(made.item_names) == [7, 8, 9]
    assert made.voter_names == ("a", "b")
    assert made.class_names == ("no", "yes")


@pytest.mark.parametrize(
    ("values", "codes", "classes"),
    [
        ([[1, 2], [3, 1]], [[0, 1], [2, 0]], (1, 2, 3)),
        ([[-1, 1], [1, -1]], [[0, 1], [1, 0]], (-1, 1)),
        ([[1, 1], ["", 1]], [[1, 1], [-1, 1]], (0, 1)),
        ([["b", "a"], ["NA", "b"]], [[2, 1], [0, 2]], ("NA", "a", "b")),
    ],
)
def test_labels_in_a_file_become_codes(tmp_path, values, codes, classes):
    pd.DataFrame(values, columns=["v", "w"]).to_csv(tmp_path / "wide.csv", index=False)
    made = Votes.from_csv(tmp_path / "wide.csv")
    np.testing.assert_array_equal(made.matrix, codes)
    assert made.class_names == classes


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, float, object])
def test_numbers_of_any_type(dtype):
    made = Votes.from_matrix(np.array([[0, 1], [1, 1]], dtype=dtype))
    np.testing.assert_array_equal(made.matrix, [[0, 1], [1, 1]])
    assert made.matrix.dtype == np.int8
    assert made.num_classes == 2


def test_nan_and_none_are_missing():
    np.testing.assert_array_equal(Votes.from_matrix([[0.0, np.nan], [1.0, -1.0]]).matrix, [[0, -1], [1, -1]])
    np.testing.assert_array_equal(Votes.from_matrix([[0, None], [2, 1]], 4).matrix, [[0, -1], [2, 1]])


def test_one_voter_constant_voter_and_no_vote_at_all():
    assert Votes.from_matrix([[1], [0]]).shape == (2, 1)
    assert Votes.from_matrix([[1, 1], [0, 1]]).num_classes == 2
    assert Votes.from_matrix([[-1, -1]]).num_missing == 2


@pytest.mark.parametrize(
    ("array", "num_classes", "message"),
    [
        (np.empty((0, 3)), None, r"no votes: the matrix has shape \(0, 3\)"),
        (np.empty((3, 0)), None, "no votes"),
        ([0, 1, 1], None, r"matrix \(item, voter\), but this array has shape \(3,\)"),
        ([[0.5, 1.0]], None, "vote 0.5 is not an integer"),
        ([[np.inf, 1.0]], None, "vote inf is not an integer"),
        ([[0, 3]], 2, "vote 3 is out of range: with 2 classes"),
        ([[0, -2]], None, "vote -2 is out of range"),
        ([[-1, 1], [1, -1]], None, r"recode them as \(votes \+ 1\) // 2"),
        ([[0, 40_000]], None, "40001 classes are not supported: the number must be between 2 and 32767"),
        ([["a", "a"]], None, "1 class .*list them by classes"),
        ([["a", "1"]], None, "mix numbers and text"),
        ([["a", "b"]], 3, "3 classes were asked for"),
    ],
)
def test_bad_matrices(array, num_classes, message):
    with pytest.raises(VotesError, match=message):
        Votes.from_matrix(array, num_classes)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item": [1, 1], "voter": ["a", "a"], "vote": [0, 1]}, "item 1 has more than one vote of voter 'a'"),
        ({"item": [1], "vote": [0]}, "no column 'voter'; the columns are 'item', 'vote'"),
        ({"item": [], "voter": [], "vote": []}, "no votes"),
        ({"item": [1, None], "voter": ["a", "b"], "vote": [0, 1]}, "row 1 has no item"),
        ({"item": [1, 2], "voter": ["a", "b"], "vote": [0.5, 1]}, "vote 0.5 is not an integer"),
    ],
)
def test_bad_tables(columns, message):
    with pytest.raises(VotesError, match=message):
        Votes.from_long(columns)


def test_duplicates_can_be_settled():
    columns = {"item": [1, 1, 2], "voter": ["a", "a", "a"], "vote": [0, 1, 0]}
    assert Votes.from_long(columns, duplicates="first").matrix.tolist() == [[0], [0]]
    assert Votes.from_long(columns, duplicates="last").matrix.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"item,voter,vote\n", "there is a header but no rows"),
        (bytes(range(256)), "is not UTF-8"),
        ("item,voter,vote\n1,André,0\n1,b,1\n".encode("latin-1"), "is not UTF-8: save it as UTF-8"),
        (b"item,voter,vote\n1,a,0\n1,a,1\n", "votes.csv: item 1 has more than one vote of voter 'a'"),
        (b"item,voter,vote\n1,a,0\n1,b,cat\n", "mix numbers and text"),
        (b"a,b\n1,0\n2.5,1\n", "vote 2.5 is not an integer"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "votes.csv"
    path.write_bytes(content)
    with pytest.raises(VotesError, match=message) as raised:
        Votes.from_csv(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(VotesError, match="no such file"):
        Votes.from_csv(tmp_path / "nothing.csv")
    with pytest.raises(VotesError, match="is a folder"):
        Votes.from_csv(tmp_path)


def test_columns_of_a_long_file_can_be_named(tmp_path):
    (tmp_path / "votes.csv").write_text("doc,llm,verdict\nd1,x,good\nd1,y,bad\nd2,x,bad\n")
    made = Votes.from_csv(tmp_path / "votes.csv", item="doc", voter="llm", vote="verdict")
    np.testing.assert_array_equal(made.matrix, [[1, 0], [0, -1]])
    with pytest.raises(VotesError, match="no column 'judge'; the columns are 'doc', 'llm', 'verdict'"):
        Votes.from_csv(tmp_path / "votes.csv", item="doc", voter="judge", vote="verdict")


def test_many_voters_with_few_votes_are_stored_as_triplets(monkeypatch):
    monkeypatch.setattr(tabulation, "_is_dense", partial(tabulation._is_dense, small=50))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"item": np.repeat(np.arange(30), 2), "voter": rng.permutation(60), "vote": rng.integers(0, 2, 60)}
    )
    frame["vote"] = frame["vote"].astype(float).mask(frame.index == 7)
    made = Votes.from_long(frame)
    assert made.is_sparse
    assert made.num_missing == 30 * 60 - 59
    assert (np.diff(made.triplets.item) >= 0).all()
    assert made.matrix[frame["item"], frame["voter"]].tolist() == frame["vote"].fillna(-1).tolist()


def test_storage_goes_by_cells_against_votes(tmp_path):
    """A matrix takes a byte a cell and triplets nine a vote; the smaller is kept, whatever the votes come as."""
    matrix = np.full((1000, 40), -1)
    for filled, is_sparse in ((5, False), (4, True)):
        matrix[:, :filled] = np.arange(1000)[:, None] % 2
        made = Votes.from_matrix(matrix, num_classes=2)
        assert made.is_sparse == is_sparse
        np.testing.assert_array_equal(made.matrix, matrix)
        matrix[:] = -1
    pd.DataFrame(made.matrix).replace(-1, None).to_csv(tmp_path / "wide.csv", index=False)
    from_file = Votes.from_csv(tmp_path / "wide.csv")
    assert from_file.is_sparse
    np.testing.assert_array_equal(from_file.matrix, made.matrix)


def test_votes_cannot_be_changed():
    array = np.array([[0, 1]], dtype=np.int8)
    made = Votes.from_matrix(array)
    array[0, 0] = 1
    assert made.matrix[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        made.matrix[0, 0] = 1
    assert isinstance(made.triplets, Triplets)


def test_names_must_be_as_many_as_things():
    with pytest.raises(VotesError, match="1 voter_names were given for 2"):
        Votes(np.zeros((1, 2), dtype=np.int8), 1, 2, 2, voter_names=("a",))


@pytest.mark.parametrize("voters", [[0], [3, 1], [0, 2, 4]])
def test_patterns_of_some_voters_are_those_of_their_votes(voters):
    matrix = np.random.default_rng(4).integers(-1, 2, (200, 5))
    found, expected = Votes.from_matrix(matrix, 2).patterns.of_voters(np.array(voters)), matrix[:, voters]
    np.testing.assert_array_equal(found.rows[found.inverse], expected)
    rows, counts = np.unique(expected, axis=0, return_counts=True)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.counts, counts)
    assert found.votes.voter_names == tuple(voters)


def test_more_classes_than_a_byte_holds():
    """Codes take two bytes then; reading, distinct rows and matching by name go on as before."""
    generator = np.random.default_rng(0)
    labels = np.concatenate([np.arange(300), generator.integers(0, 300, 100)])
    matrix = np.where(generator.random((400, 4)) < 0.8, labels[:, None], generator.integers(0, 300, (400, 4)))
    votes = Votes.from_matrix(matrix, 300)
    assert votes.matrix.dtype == np.int16
    np.testing.assert_array_equal(votes.matrix, matrix)
    rows, counts, inverse = votes.patterns
    np.testing.assert_array_equal(rows.matrix[inverse], matrix)
    assert counts.sum() == 400
    assert votes.tally.sum() == 1600
    again = Votes.from_long(votes.to_long(), classes=range(300), duplicates="error")
    np.testing.assert_array_equal(again.matrix, matrix)
    found = align(Votes.from_long(votes.to_long(), classes=range(299, -1, -1)), votes.voter_names, votes.class_names)
    np.testing.assert_array_equal(found.matrix, matrix)
    assert Votes.from_matrix(matrix % 127, 127).matrix.dtype == np.int8
    for method in (DawidSkeneEM(random_starts=0), MajorityVote()):
        assert np.mean(method.fit(votes, key=jax.random.key(0)).codes == labels) > 0.9


def test_a_thousand_classes_are_stored_in_two_bytes():
    """As a matrix and as triplets; patterns, parts and alignment keep them."""
    rng = np.random.default_rng(0)
    matrix = rng.integers(-1, 1000, (400, 6))
    made = Votes.from_matrix(matrix, 1000)
    assert made.matrix.dtype == np.int16
    np.testing.assert_array_equal(made.patterns.rows[made.patterns.inverse], matrix)
    sparse = Votes(made.triplets, *made.shape, 1000)
    assert sparse.triplets.vote.dtype == np.int16
    np.testing.assert_array_equal(sparse.take(np.arange(7, 90)).matrix, matrix[7:90])
    np.testing.assert_array_equal(align(sparse, range(6), range(1000)).matrix, matrix)
    again = align(made, made.voter_names, [*range(999, -1, -1)])
    np.testing.assert_array_equal(again.matrix, np.where(matrix < 0, -1, 999 - matrix))
