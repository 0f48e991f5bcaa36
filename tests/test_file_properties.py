"""However a table is written, the votes in it are the same, and so is what is fitted to them."""

import csv
import io
from dataclasses import dataclass

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentens import Votes
from latentens.methods import DawidSkeneEM, MajorityVote

LABELS = [
    ("no", "unsure", "yes"),
    ("None", "Mild", "Severe"),
    ("0", "1", "2"),
    ("2", "10", "1"),
    ("007", "08", "1"),
    ("True", "False", "Unknown"),
    ("NA", "nan", "null"),
    ("99999999999999999999", "-5", "0"),
    ("é", "ß", "猫"),
    ("a,b", "c;d", 'e"f\tg|h'),
]
ITEMS = ["q{}", "{:05d}", "{}", "item, {}", "{}.0", "line\nbreak {}"]
VOTERS = ["judge {}", "m{}", "{}", "ü;{}"]
CODES = ["", "N/A", "?", "-9", " "]


@dataclass(frozen=True)
class Written:
    """A file of votes, and what is in it."""

    content: bytes
    options: dict
    items: list
    voters: list
    classes: tuple
    matrix: np.ndarray


def noisy_votes(seed):
    """Forty items, five voters who are mostly right about three classes, some votes missing."""
    rng = np.random.default_rng(seed)
    labels, shape = rng.integers(0, 3, 40), (40, 5)
    matrix = np.where(rng.random(shape) < rng.uniform(0.7, 0.9, 5), labels[:, None], rng.integers(0, 3, shape))
    matrix[rng.random(shape) < 0.15] = -1
    return matrix


@st.composite
def files(draw):
    """A file of noisy votes in any of the ways in which people write them."""
    matrix, rng = noisy_votes(draw(st.integers(0, 9))), draw(st.randoms(use_true_random=False))
    classes, missing = draw(st.permutations(draw(st.sampled_from(LABELS)))), draw(st.sampled_from(CODES))
    items = [draw(st.shared(st.sampled_from(ITEMS), key="items")).format(i) for i in range(40)]
    voters = [draw(st.shared(st.sampled_from(VOTERS), key="voters")).format(j) for j in range(5)]
    said = {(i, j): classes[matrix[i, j]] if matrix[i, j] >= 0 else missing for i in range(40) for j in range(5)}
    options = {"missing": (missing,)} if missing.strip() else {}
    if draw(st.booleans()):
        columns = rng.sample(range(5), 5)
        header = ["item", *(voters[j] for j in columns)]
        rows = [[items[i], *(said[i, j] for j in columns)] for i in rng.sample(range(40), 40)]
    else:
        header = draw(st.sampled_from([["item", "voter", "vote"], ["Task ID", "annotator", "label"]]))
        rows = [[items[i], voters[j], vote] for (i, j), vote in rng.sample(list(said.items()), len(said))]
        if draw(st.booleans()):  # what was said first does not count
            rows = [[item, voter, classes[rng.randrange(3)]] for item, voter, _ in rows[::7]] + rows
            options["duplicates"] = "last"
    if draw(st.booleans()):
        header, rows = [*header, "remark"], [[*row, f"remark, {rng.random()}"] for row in rows]
        options["ignore"] = ("remark",)
    order = rng.sample(range(len(header)), len(header))
    content = draw(text_of([[row[place] for place in order] for row in [header, *rows]]))
    return Written(content, options, items, voters, tuple(classes), matrix)


@st.composite
def text_of(draw, rows):
    """The rows with any separator, quoting, end of line and encoding."""
    text = io.StringIO()
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    separator, end = draw(st.sampled_from(",;\t|")), draw(st.sampled_from(["\n", "\r\n"]))
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end).writerows(rows)
    return text.getvalue().encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])))


def read(folder, written):
    (folder / "votes.csv").write_bytes(written.content)
    return Votes.from_csv(folder / "votes.csv", **written.options)


def places(names, found):
    """Where each name is among those that were found."""
    return [list(map(str, found)).index(name) for name in names]


@settings(deadline=None, max_examples=40)
@given(written=files())
def test_reading_and_fitting_do_not_depend_on_how_a_table_is_written(tmp_path_factory, written):
    folder = tmp_path_factory.mktemp("files")
    votes = read(folder, written)
    items, voters = places(written.items, votes.item_names), places(written.voters, votes.voter_names)
    classes = places(written.classes, votes.class_names)
    assert votes.shape == (40, 5)
    codes = np.append(classes, -1)[written.matrix]
    np.testing.assert_array_equal(votes.matrix[np.ix_(items, voters)], codes)
    plain = Votes.from_matrix(written.matrix, num_classes=3)
    for method in (MajorityVote(), DawidSkeneEM(random_starts=0, max_iterations=50)):
        expected, found = (method.fit(each, key=jax.random.key(0)).label_probs for each in (plain, votes))
        np.testing.assert_allclose(found[np.ix_(items, classes)], expected, atol=1e-9)
