import numpy as np
import pandas as pd
import pytest

from latentens import Votes
from latentens.errors import VotesError

pytest.importorskip("pyarrow")


@pytest.fixture
def long():
    rng = np.random.default_rng(0)
    matrix = rng.choice(["cat", "dog", ""], (30, 5), p=[0.5, 0.3, 0.2])
    frame = pd.DataFrame(matrix, columns=[f"judge {i}" for i in range(5)]).rename_axis("item")
    return frame.melt(ignore_index=False, var_name="voter", value_name="vote").reset_index()


def assert_same_votes(one, other):
    np.testing.assert_array_equal(one.matrix, other.matrix)
    assert list(one.item_names) == list(other.item_names)
    assert one.voter_names == other.voter_names
    assert one.class_names == other.class_names


@pytest.mark.parametrize("cells", [2**20, 20])
@pytest.mark.parametrize("shuffled", [False, True])
def test_long_files_in_chunks(tmp_path, long, cells, shuffled):
    table = long.sample(frac=1, random_state=0) if shuffled else long.sort_values(["item", "voter"])
    table.to_csv(tmp_path / "votes.csv", index=False)
    table.to_parquet(tmp_path / "votes.parquet", index=False)
    expected = Votes.from_long(long)
    assert_same_votes(Votes.from_csv(tmp_path / "votes.csv", chunk_cells=cells), expected)
    assert_same_votes(Votes.from_parquet(tmp_path / "votes.parquet", chunk_cells=cells), expected)
    assert isinstance(Votes.from_parquet(tmp_path / "votes.parquet", chunk_cells=cells).item_names, range)


@pytest.mark.parametrize("cells", [2**20, 20])
@pytest.mark.parametrize("named", [False, True])
def test_wide_files_in_chunks(tmp_path, cells, named):
    table = pd.DataFrame(np.random.default_rng(0).integers(1, 4, (30, 4)), columns=list("wxyz")).astype("Int64")
    table.iloc[3, 2] = pd.NA
    table.index = pd.Index([f"item {i}" for i in range(30)] if named else range(30))
    table.to_csv(tmp_path / "votes.csv", index=named)
    table.to_parquet(tmp_path / "votes.parquet", index=named)
    made = Votes.from_parquet(tmp_path / "votes.parquet", chunk_cells=cells)
    np.testing.assert_array_equal(made.matrix, table.fillna(0).to_numpy(dtype=int) - 1)
    assert list(made.item_names) == list(table.index)
    assert_same_votes(Votes.from_csv(tmp_path / "votes.csv", chunk_cells=cells), made)


def test_what_only_a_later_chunk_shows(tmp_path):
    table = pd.DataFrame({"item": [1, 2, 3, 9, 10, 3], "voter": list("abcabc"), "vote": [0, 1, 1, 0, None, 1]})
    table.to_parquet(tmp_path / "votes.parquet")
    with pytest.raises(VotesError, match=r"votes.parquet: item 3 has more than one vote of voter 'c'"):
        Votes.from_parquet(tmp_path / "votes.parquet", chunk_cells=6)
    made = Votes.from_parquet(tmp_path / "votes.parquet", chunk_cells=6, duplicates="last")
    assert list(made.item_names) == [1, 2, 3, 9, 10]
    table.assign(item=[1, 2, 3, 9, None, 3]).to_parquet(tmp_path / "votes.parquet")
    with pytest.raises(VotesError, match=r"votes.parquet: row 4 has no item"):
        Votes.from_parquet(tmp_path / "votes.parquet", chunk_cells=6)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), (b"", "not a readable Parquet file"), (b"PAR1", "not a readable")]
)
def test_unreadable_parquet_files(tmp_path, content, message):
    path = tmp_path / "votes.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(VotesError, match=message) as raised:
        Votes.from_parquet(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
