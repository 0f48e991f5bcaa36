"""Files that cannot be used end in one sentence and exit code 2, whatever is wrong with them."""

import csv
import gzip
import io

import numpy as np
import pytest

from tests.reference import besides_signal

COMMANDS = [
    ("fit", "MajorityVote", "votes.csv", "--out", "x.csv"),
    ("check", "votes.csv", "--out", "x.csv"),
    ("compare", "--votes", "votes.csv", "-m", "MajorityVote", "--out", "x"),
]


def votes(rng, wide):
    """A table that can be used, as rows of cells with a header."""
    num_items, num_voters = int(rng.integers(4, 12)), int(rng.integers(3, 6))
    labels = [["yes", "no"], ["0", "1"], ["a", "b", "c"], ["None", "Mild", "Severe"]][rng.integers(4)]
    said = rng.choice(labels, (num_items, num_voters))
    said[: len(labels)] = np.array(labels)[:, None]  # so that every voter uses every label
    if wide:
        header = ["item", *(f"m{j}" for j in range(num_voters))]
        return [header, *([f"q{i}", *said[i]] for i in range(num_items))]
    cells = [[f"q{i}", f"m{j}", said[i, j]] for i in range(num_items) for j in range(num_voters)]
    return [["item", "voter", "vote"], *(cells[k] for k in rng.permutation(len(cells)))]


def text(rows, separator=","):
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator="\n").writerows(rows)
    return out.getvalue()


def word(rng):
    return "".join(rng.choice(list("abcdefghijk"), 7))


def some_row(rng, rows):
    return rows[rng.integers(1, len(rows))]


def with_column(rng, rows, name, values):
    """The table with one more column, at any place behind the first."""
    place = int(rng.integers(1, len(rows[0]) + 1))
    return [[*row[:place], cell, *row[place:]] for row, cell in zip(rows, [name, *values], strict=True)]


def ragged(rng):
    rows = votes(rng, rng.random() < 0.5)
    some_row(rng, rows)[:] = some_row(rng, rows)[:-1] if rng.random() < 0.5 else [*some_row(rng, rows), "yes"]
    return text(rows, rng.choice([",", ";", "\t"]))


def bytes_inside(rng):
    content = text(votes(rng, rng.random() < 0.5)).encode()
    place = int(rng.integers(1, len(content)))
    return content[:place] + [b"\0", b"\xe9,", b"\xff\xfe\xfd"][rng.integers(3)] + content[place:]


def noise(rng):
    return b"q\0" + rng.bytes(int(rng.integers(0, 300)))


def unclosed_quote(rng):
    rows = text(votes(rng, rng.random() < 0.5)).splitlines()
    rows[-1] = '"' + rows[-1]
    return "\n".join(rows)


def nothing(rng):
    return [" ", "", "\n\n", "\ufeff", ",", ";;", "item,voter,vote\n", "item;m1;m2\n", "word"][rng.integers(9)]


def repeated_name(rng):
    rows = votes(rng, True)
    rows[0][-1] = rows[0][1]
    return text(rows)


def name_missing(rng):
    rows = votes(rng, True)
    rows[0][int(rng.integers(1, len(rows[0])))] = ""
    return text(rows)


def no_header(rng):
    return text(votes(rng, True)[1:])


def identifiers(rng):
    rows = votes(rng, True)
    return text(with_column(rng, rows, word(rng), [f"{word(rng)}{i}" for i in range(len(rows) - 1)]))


def facts(rng):
    rows = votes(rng, True)
    kinds = [word(rng), word(rng)]
    return text(with_column(rng, rows, word(rng), [kinds[i % 2] for i in range(len(rows) - 1)]))


def truth(rng):
    rows = votes(rng, True)
    name = rng.choice(["truth", "Gold", "label", "ground truth", "target", "gold_label", "true_label", "y_true"])
    return text(with_column(rng, rows, name, [row[1] for row in rows[1:]]))


def scores(rng):
    rows = votes(rng, True)
    return text([rows[0], *([row[0], *(f"{rng.random():.3f}" for _ in row[1:])] for row in rows[1:])])


def mixed(rng):
    rows = votes(rng, True)
    for row in rows[1:]:
        row[1:] = [["NA", "unsure"][rng.integers(2)] if rng.random() < 0.3 else str(rng.integers(3)) for _ in row[1:]]
    rows[1][1:3], rows[2][1:3] = ["0", "NA"], ["NA", "0"]
    return text(rows)


def one_thing(rng):
    """One class, one voter or one item."""
    rows = votes(rng, False)
    column = int(rng.integers(3))
    cells = {(row[0], row[1]): row for row in rows[1:] if column == 2 or row[column] == rows[1][column]}
    kept = [[*row[:2], "yes" if column == 2 else row[2]] for row in cells.values()]
    return text([rows[0], *kept])


def second_votes(rng):
    wide = rng.random() < 0.5
    rows = votes(rng, wide)
    return text([*rows, some_row(rng, rows)])


def item_missing(rng):
    rows = votes(rng, rng.random() < 0.5)
    some_row(rng, rows)[0] = " " * int(rng.integers(3))
    return text(rows)


def any_names(rng):
    rows = votes(rng, False)
    return text([[word(rng), word(rng) + "x", word(rng) + "y"], *rows[1:]])


def empty_cells(rng):
    rows = votes(rng, True)
    return text([rows[0], *([row[0], *("" for _ in row[1:])] for row in rows[1:])])


CONTENTS = [
    ragged,
    bytes_inside,
    noise,
    unclosed_quote,
    nothing,
    repeated_name,
    name_missing,
    no_header,
    identifiers,
    facts,
    truth,
    scores,
    mixed,
    one_thing,
    second_votes,
    item_missing,
    any_names,
    empty_cells,
]

OPTIONS = [
    ("--item", "nowhere"),
    ("--ignore", "nowhere"),
    ("--vote", "nowhere"),
    ("--classes", "left,right"),
    ("--classes", "left"),
    ("--classes", "yes,yes"),
    ("--voter", "m1"),
]


def bad_case(rng):
    """The name of a file that cannot be used, its content, and options."""
    kind = int(rng.integers(len(CONTENTS) + 3))
    if kind < len(CONTENTS):
        content = CONTENTS[kind](rng)
        return "votes.csv", content if isinstance(content, bytes) else content.encode(), ()
    good = text(votes(rng, True)).encode()
    if kind == len(CONTENTS):
        return "votes.csv", good, OPTIONS[rng.integers(len(OPTIONS))]
    packed = gzip.compress(good)
    if kind == len(CONTENTS) + 1:
        return "votes.csv.gz", [packed[: int(rng.integers(len(packed)))], good][rng.integers(2)], ()
    return "votes.parquet", [good, b"PAR1" + packed + b"PAR1", b""][rng.integers(3)], ()


@pytest.mark.parametrize("number", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_bad_files_end_in_a_sentence(invoke, tmp_path, number):
    for seed in range(number):
        rng = np.random.default_rng(seed)
        name, content, options = bad_case(rng)
        (tmp_path / name).write_bytes(content)
        arguments = [name if part == "votes.csv" else part for part in COMMANDS[seed % len(COMMANDS)]]
        code, shown, error = invoke(*arguments, *options, cwd=tmp_path)
        assert (code, shown) == (2, ""), (seed, content, error)
        assert error.startswith("latentens: "), (seed, error)
        assert error.count("\n") == 1, (seed, error)
        assert len(error) < 600, (seed, error)
        assert not list(tmp_path.glob("x*")), seed


@pytest.mark.parametrize("number", [100, pytest.param(5_000, marks=pytest.mark.slow)])
def test_damaged_files_end_in_a_sentence_or_are_read(invoke, tmp_path, number):
    for seed in range(number):
        rng = np.random.default_rng(seed)
        content = bytearray(text(votes(rng, rng.random() < 0.5)).encode())
        for _ in range(int(rng.integers(1, 6))):
            place = int(rng.integers(len(content)))
            put = bytes(rng.choice(list(b',;"\n\r\t 01ax-.|'), rng.integers(3)))
            content[place : place + int(rng.integers(3))] = put
        (tmp_path / "votes.csv").write_bytes(content)
        code, shown, error = invoke(*COMMANDS[0], cwd=tmp_path)
        assert code in (0, 2), seed
        one_sentence = error.startswith("latentens: ") and error.count("\n") == 1
        assert one_sentence if code else not besides_signal(error), (seed, error)
        assert ("items ×" in shown) == (code == 0), seed
