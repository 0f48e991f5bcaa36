"""What is in a file is read as it is written, and what is not clear is refused with the option that settles it."""

import gzip

import numpy as np
import pandas as pd
import pytest

from latentens import Votes
from latentens.cli.io import described
from latentens.errors import VotesError


def refused(path, *parts, **options):
    """The one sentence with which a file is refused, which names the file and has all the parts."""
    with pytest.raises(VotesError) as raised:
        Votes.from_csv(path, **options)
    sentence = str(raised.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    for part in parts:
        assert part in sentence


# What is missing, and how names are kept


@pytest.mark.parametrize("word", ["None", "NA", "nan", "NaN", "null", "N/A", "#N/A", "<NA>", "n/a"])
def test_words_that_look_missing_are_classes(file, word):
    path = file(f"item,a,b,c\n1,{word},Mild,{word}\n2,Severe,Mild,\n3,{word},Severe,Mild\n")
    votes = Votes.from_csv(path)
    assert set(votes.class_names) == {word, "Mild", "Severe"}
    assert votes.num_missing == 1
    assert Votes.from_csv(path, missing=(word,)).num_missing == 4
    assert Votes.from_csv(path, missing=(word, "Mild"), classes=("Severe", "other")).num_missing == 7


def test_words_beside_numbers_are_refused_until_it_is_said_what_they_mean(file):
    path = file("item,a,b\n1,0,1\n2,NA,1\n3,1,0\n")
    refused(path, "mix numbers and text (0 and 'NA')", "missing=('NA',)", "classes=…")
    assert Votes.from_csv(path, missing=("NA",)).matrix.tolist() == [[0, 1], [-1, 1], [1, 0]]
    assert Votes.from_csv(path, classes=(0, 1, "NA")).matrix.tolist() == [[0, 1], [2, 1], [1, 0]]


def test_minus_one_beside_zero_is_refused_until_it_is_said_what_it_means(file):
    path = file("item,a,b\n1,0,1\n2,-1,1\n3,1,-1\n")
    refused(path, "missing=(-1,)", "classes=(-1, 0, 1)")
    assert Votes.from_csv(path, missing=("-1",)).matrix.tolist() == [[0, 1], [-1, 1], [1, -1]]
    assert Votes.from_csv(path, classes=(-1, 0, 1)).matrix.tolist() == [[1, 2], [0, 2], [2, 0]]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (("True", "False"), ("False", "True")),
        (("01", "1"), ("01", "1")),
        (("99999999999999999999", "5"), ("5", "99999999999999999999")),
        (("10", "9"), (9, 10)),
        (("1.0", "0"), (0, 1)),
        ((" yes ", '"no"'), ("no", "yes")),
    ],
)
def test_labels_stay_as_they_are_written(file, labels, classes):
    first, second = labels
    votes = Votes.from_csv(file(f"item,a,b\nx,{first},{second}\ny,{second},{second}\n"))
    assert votes.class_names == classes
    assert [type(name) for name in votes.class_names] == [type(name) for name in classes]


@pytest.mark.parametrize(
    ("items", "names"),
    [
        (("00007", "00010"), ["00007", "00010"]),
        (("9", "10"), [9, 10]),
        (("1", "18446744073709551616"), ["1", "18446744073709551616"]),
        (("1.0", "2.0"), ["1.0", "2.0"]),
        (("NA", "None"), ["NA", "None"]),
    ],
)
def test_items_stay_as_they_are_written(file, items, names):
    wide = file(f"item,a,b\n{items[0]},yes,no\n{items[1]},no,no\n", "wide.csv")
    long = file("item,voter,vote\n" + "".join(f"{i},a,yes\n{i},b,no\n" for i in items), "long.csv")
    for votes in (Votes.from_csv(wide), Votes.from_csv(long)):
        assert np.asarray(votes.item_names).tolist() == names


def test_frames_and_lists_miss_none_and_nan_but_not_their_names():
    frame = pd.DataFrame({"a": ["nan", "None", None], "b": ["None", float("nan"), "nan"]})
    for made in (Votes.from_matrix(frame), Votes.from_matrix(frame.to_numpy().tolist())):
        assert made.class_names == ("None", "nan")
        assert made.matrix.tolist() == [[1, 0], [0, -1], [-1, 1]]
    assert Votes.from_matrix(frame, missing=("nan",), classes=("None", "x")).num_missing == 4
    long = frame.rename_axis("item").melt(ignore_index=False, var_name="voter", value_name="vote").reset_index()
    assert Votes.from_long(long).matrix.tolist() == [[1, 0], [0, -1], [-1, 1]]
    gaps = pd.DataFrame({"a": [1, None, 0], "b": [1, 1, 0]}, dtype="Int64")
    assert Votes.from_matrix(gaps).matrix.tolist() == [[1, 1], [-1, 1], [0, 0]]


def test_truth_values_keep_their_names():
    array = np.array([[True, False], [True, True]])
    assert Votes.from_matrix(array).class_names == ("False", "True")
    assert Votes.from_matrix(array).matrix.tolist() == [[1, 0], [1, 1]]
    assert list(Votes.from_matrix(array, num_classes=2).class_names) == [0, 1]


def test_repeated_names_in_a_frame_are_refused():
    frame = pd.DataFrame([["x", "y"], ["y", "x"]], columns=["a", "a"])
    with pytest.raises(VotesError, match="two columns are named 'a'"):
        Votes.from_matrix(frame)
    with pytest.raises(VotesError, match="two rows are named 7"):
        Votes.from_matrix(frame.set_axis(["a", "b"], axis=1).set_axis([7, 7]))


def test_typed_columns_of_parquet_keep_natural_names(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "votes.parquet"
    columns = {
        "id": ["007", "008", "009"],
        "nullable": pd.array([1, None, 0], dtype="Int64"),
        "floats": [1.0, 0.0, None],
        "text": ["1", "0", "1"],
        "category": pd.Categorical([1, 0, 0], categories=[0, 1, 9]),
    }
    pd.DataFrame(columns).to_parquet(path)
    votes = Votes.from_parquet(path)
    assert votes.class_names == (0, 1)
    assert votes.matrix.tolist() == [[1, 1, 1, 1], [-1, 0, 0, 0], [0, -1, 1, 0]]
    assert list(votes.item_names) == ["007", "008", "009"]
    long = pd.DataFrame({"item": [7.0, 7.0, 8.0], "voter": ["a", "b", "a"], "vote": [True, False, None]})
    long["voter"] = pd.Categorical(long["voter"], categories=["a", "b", "who never voted"])
    long["vote"] = long["vote"].astype("boolean")
    long[long.index >= 0].to_parquet(path)
    votes = Votes.from_parquet(path)
    assert np.asarray(votes.item_names).tolist() == [7, 8]
    assert (votes.voter_names, votes.class_names) == (("a", "b"), ("False", "True"))
    assert votes.matrix.tolist() == [[1, 0], [-1, -1]]


# Which columns hold what


@pytest.fixture
def table():
    """Three voters' votes on twenty items."""
    votes = np.random.default_rng(1).choice(["yes", "no"], (20, 3))
    return pd.DataFrame(votes, columns=["m1", "m2", "m3"])


@pytest.mark.parametrize("position", [2, 3])
def test_identifiers_are_no_voter(file, table, position):
    table.insert(position, "question_id", [f"q{i}" for i in range(20)])
    path = file(table.to_csv(index=False))
    refused(path, "'question_id'", "give item='question_id' if it names the items, or ignore=('question_id',)")
    votes = Votes.from_csv(path, item="question_id")
    assert votes.voter_names == ("m1", "m2", "m3")
    assert list(votes.item_names) == [f"q{i}" for i in range(20)]
    assert isinstance(Votes.from_csv(path, ignore=("question_id",)).item_names, range)


@pytest.mark.parametrize("name", ["id", "question", "", "prompt text", "question_id", "Nr.", "m0"])
@pytest.mark.parametrize(
    "items", [[f"q{i}" for i in range(20)], [*range(20)], [*range(5000, 5020)], [f"What is {i}?" for i in range(20)]]
)
@pytest.mark.parametrize("num_voters", [2, 3])
def test_a_first_column_with_another_value_in_every_row_names_the_items(file, table, name, items, num_voters):
    table = (table == "yes").astype(int) if items[0] == 0 else table
    table = table.iloc[:, :num_voters]
    path = file(table.set_axis(pd.Index(items, name=name)).to_csv())
    votes = Votes.from_csv(path)
    assert votes.voter_names == tuple(table.columns)
    assert list(votes.item_names) == items
    assert votes.num_classes == 2
    named = name in ("id", "question", "")
    assert votes.summary.endswith("missing" if named else f"missing; items named by the first column, {name!r}")
    assert votes.summary in described(path, votes)
    assert Votes.from_csv(path, classes=votes.class_names).summary == votes.summary
    without = Votes.from_csv(path, ignore=(name,)) if name else votes
    np.testing.assert_array_equal(votes.matrix, without.matrix)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,a,b,c\nk,yes,no,no\nl,no,no,yes\nm,yes,yes,no\n", "'x' has a different value in every row"),
        ("x,a,b\nk,yes,no\nl,no,no\nm,yes,yes\n", "may be voters"),
        ("x,a\n" + "".join(f"q{i},{'yes' if i % 3 else 'no'}\n" for i in range(9)), "'x' has a different value"),
        ("x,a,b\n" + "".join(f"{i / 7:.3f},yes,{'yes' if i % 3 else 'no'}\n" for i in range(9)), "may be voters"),
        ("x,a,b\n" + "".join(f"q{i},w{i % 3},{'yes' if i % 2 else 'no'}\n" for i in range(9)), "may be voters"),
        ("q0,yes,no\n" + "".join(f"q{i},{('yes', 'no')[i % 2]},no\n" for i in range(1, 9)), "first row looks like"),
    ],
    ids=["few rows", "few rows of three columns", "one voter", "measurements", "a long table", "no headings"],
)
def test_a_first_column_that_may_be_something_else_is_refused(file, text, message):
    refused(file(text), message)


def test_a_voter_whose_votes_all_differ_in_a_small_file_is_a_voter(file):
    votes = Votes.from_csv(file("m1,m2,m3,m4\na,b,a,a\nb,b,c,b\nc,a,c,c\nd,d,d,d\n"))
    assert votes.num_voters == 4
    scale = "m1,m2,m3\n" + "".join(f"{i},{1 + i % 2},{1 + i // 4}\n" for i in range(1, 7))
    refused(file(scale), "may be voters", "classes=…")
    assert Votes.from_csv(file(scale), classes=range(1, 7)).num_voters == 3


def test_numbers_as_identifiers_are_no_voter(file, table):
    path = file((table == "yes").astype(int).assign(number=range(20)).to_csv(index=False))
    refused(path, "item='number'")
    assert Votes.from_csv(path, item="number").class_names == (0, 1)


@pytest.mark.parametrize(
    "name", ["truth", "Truth", "gold", "gold_label", "label", "target", "y", "y_true", "true label", "ground_truth"]
)
def test_the_truth_is_no_voter(file, table, name):
    table[name] = table["m1"]
    path = file(table.to_csv(index_label="item"))
    refused(path, f"column {name!r} looks like the true labels: give ignore=({name!r},)")
    assert Votes.from_csv(path, ignore=(name,)).voter_names == ("m1", "m2", "m3")


def test_a_voter_may_be_called_y_among_other_letters(file, table):
    path = file(table.set_axis(["x", "y", "z"], axis=1).to_csv(index_label="item"))
    assert Votes.from_csv(path).voter_names == ("x", "y", "z")


@pytest.mark.parametrize("position", [0, 3])
def test_text_and_other_facts_are_no_voter(file, table, position):
    table.insert(position, "remark", ["well, I wonder", "", "clear", "clear"] * 5)
    path = file(table.to_csv(index_label="item"))
    refused(path, "column 'remark' does not share its labels ('clear', 'well, I wonder')", "ignore=('remark',)")
    assert Votes.from_csv(path, ignore=("remark",)).num_voters == 3
    assert Votes.from_csv(path, classes=("yes", "no", "clear", "well, I wonder")).num_voters == 4


def test_a_label_that_is_no_class_names_its_column(file, table):
    table.loc[3, "m2"] = "Yes"
    path = file(table.to_csv(index_label="item"))
    refused(
        path, "column 'm2' holds 'Yes', which is not one of the classes", "did you mean 'yes'?", classes=("no", "yes")
    )


@pytest.mark.parametrize("size", [(10, 5), (40, 4)])
@pytest.mark.parametrize("names", ["numbers", "text"])
def test_three_columns_of_any_names_are_long_only_if_that_is_said(file, size, names):
    rng = np.random.default_rng(0)
    rows = [(i, j, rng.integers(0, 2)) for i in range(size[0]) for j in range(size[1])]
    if names == "text":
        rows = [(f"doc{i}", f"model{j}", ("no", "yes")[k]) for i, j, k in rows]
    path = file(pd.DataFrame(rows, columns=list("abc")).to_csv(index=False))
    refused(path, "item=…, voter=… and vote=…", "classes=…")
    votes = Votes.from_csv(path, item="a", voter="b", vote="c")
    assert votes.shape == size
    assert votes.num_classes == 2


def test_three_columns_with_the_same_labels_are_voters(file, table):
    assert Votes.from_csv(file(table.set_axis(list("abc"), axis=1).to_csv(index=False))).shape == (20, 3)


def test_names_of_a_long_table_are_found_among_others(file):
    text = "timestamp,Worker ID,task_id,label,truth\n1,w1,t1,yes,no\n2,w2,t1,no,no\n3,w1,t2,yes,no\n"
    votes = Votes.from_csv(file(text))
    assert votes.voter_names == ("w1", "w2")
    assert votes.matrix.tolist() == [[1, 0], [1, -1]]
    refused(file(text.replace("truth", "answer")), "'label', 'answer'", "give vote='label' or vote='answer'")
    refused(file(text.replace("task_id", "doc")), "like the items: give item=…", "is a voter, rename 'Worker ID'")
    refused(file(text.replace("label", "class")), "like the votes: give vote=…", "is a voter, rename 'Worker ID'")
    assert Votes.from_csv(file(text.replace("label", "class")), vote="class").matrix.tolist() == [[1, 0], [1, -1]]


def test_rows_of_their_own_are_no_items(file):
    path = file("id,doc,worker,label\n1,d1,a,yes\n2,d1,b,no\n3,d2,a,no\n4,d2,b,no\n")
    refused(path, "column 'id' has a different value in every row", "item=…")
    assert Votes.from_csv(path, item="doc").matrix.tolist() == [[1, 0], [0, 0]]
    refused(
        file("id,judge,label\n1,yes,no\n2,no,no\n3,yes,yes\n"), "if each column is a voter, rename 'judge' and 'label'"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1,1\n1,0,1\n", "two columns are named '1'"),
        ("yes,no\nyes,yes\nno,no\n", "the first row looks like votes"),
        ("q1,ann,yes\nq1,bob,no\nq2,ann,yes\nq2,bob,yes\n", "the first row looks like votes"),
        ("a,b,\n1,0,\n0,1,\n", "column 3 has no name"),
        ("item,a,b\n1,0,1\n2,0\n3,1,1\n", "line 3 has 2 cells, but the first has 3"),
        ("item,a,b\n1,0,1\n2,0,1,1\n3,1,1\n", "line 3 has 4 cells, but the first has 3"),
        ("item,a,b\n1,0,1,1\n2,0,1,1\n", "line 2 has 4 cells, but the first has 3"),
        ('item,a,b\n"1",0,1\n2,0\n3,"1,1",0\n', "line 3 has 2 cells, but the first has 3"),
        ('item,a,b\n"1,0,1\n2,0,1\n', "is not a readable CSV file"),
        ("item,a,b\n1,,\n2,,\n", "every cell is empty"),
        ("item,a,b\n1,0,1\n1,1,1\n", "duplicates='last'"),
        ("item,a,b\n1,0,1\n,1,1\n", "row 1 has no item"),
        ("item,id,a,b\n1,x,0,1\n2,y,1,1\n", "give item='item' or item='id'"),
        ("item\n1\n2\n", "no columns of votes"),
        ("item,voter,vote\n" + "".join(f"{i // 2},{i % 2},remark {i}\n" for i in range(30)), "30 different labels"),
    ],
)
def test_tables_that_are_not_clear(file, text, message):
    refused(file(text), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignore": ("c",)}, "there is no column 'c'; the columns are 'item', 'a', 'b'"),
        ({"item": "c"}, "there is no column 'c'"),
        ({"vote": "a"}, "none of the columns 'item', 'b' is named like the voters: give voter=…"),
        ({"ignore": "a"}, "ignore=('a',)"),
        ({"duplicates": "all"}, "not one of 'error', 'first', 'last' and 'keep'"),
        ({"classes": ("x", "x")}, "names a class twice"),
    ],
)
def test_options_that_do_not_fit(file, options, message):
    with pytest.raises(VotesError) as raised:
        Votes.from_csv(file("item,a,b\n1,0,1\n2,1,1\n"), **options)
    assert message in str(raised.value)


def test_unknown_options_are_not_swallowed(file):
    with pytest.raises(TypeError, match="voters"):
        Votes.from_csv(file("item,a,b\n1,0,1\n2,1,1\n"), voters="a")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators_encodings_and_ends_of_lines(file, separator, encoding, end):
    rows = [["item", "André", "b"], ["x, y; z", "1", "0"], ["", "", ""], ["q|2\t", "0", "1"]]
    rows[2][0] = "3,5"
    text = end.join(separator.join(f'"{cell}"' if set(cell) & set(",;|\t ") else cell for cell in row) for row in rows)
    votes = Votes.from_csv(file((text + end).encode(encoding)))
    assert votes.voter_names == ("André", "b")
    assert list(votes.item_names) == ["x, y; z", "3,5", "q|2"]
    assert votes.matrix.tolist() == [[1, 0], [-1, -1], [0, 1]]


def test_compressed_files(file):
    text = b"item,a,b\n1,0,1\n2,1,1\n"
    assert Votes.from_csv(file(gzip.compress(text), "votes.csv.gz")).matrix.tolist() == [[0, 1], [1, 1]]
    path = file(gzip.compress(text)[:-12], "votes.csv.gz")
    refused(path, "is not a readable CSV file")
    refused(file(text, "votes.csv.gz"), "is not a readable CSV file")


def test_the_last_or_first_row_of_an_item_counts_or_all_do(file):
    path = file("item,a,b\n1,0,1\n2,1,1\n1,1,0\n")
    assert Votes.from_csv(path, duplicates="first").matrix.tolist() == [[0, 1], [1, 1]]
    last = Votes.from_csv(path, duplicates="last")
    assert last.matrix.tolist() == [[1, 0], [1, 1]]
    assert np.asarray(last.item_names).tolist() == [1, 2]
    kept = Votes.from_csv(path, duplicates="keep")
    assert [column.tolist() for column in kept.triplets] == [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 1], [0, 1, 0, 1, 1, 1]]
