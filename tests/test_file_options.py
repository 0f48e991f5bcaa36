"""Every command that reads votes has the same options, and says in one line what it understood."""

import pytest

from latentens.cli.options import as_option
from latentens.errors import Keyword
from tests.reference import besides_signal

COMMANDS = {
    "fit": ("fit", "MajorityVote", "votes.csv", "--out", "x.csv"),
    "check": ("check", "votes.csv"),
    "compare": ("compare", "--votes", "votes.csv", "-m", "MajorityVote"),
}

WIDE = "\n".join(
    [
        "question_id;m1;m2;m3;truth;remark",
        "q07;yes;no;NA;yes;clear",
        "q08;no;no;no;no;hm",
        "q09;yes;yes;no;yes;clear",
        "q10;NA;yes;yes;yes;clear\n",
    ]
)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_refusal_names_the_option_that_settles_it(invoke, file, tmp_path, command):
    file(WIDE)
    steps = [
        (("--ignore", "truth"), "column 'truth' looks like the true labels: give --ignore truth,"),
        (("--item", "question_id"), "give --item question_id if it names the items, or --ignore question_id"),
        (("--ignore", "remark"), "give --ignore remark if it holds no votes"),
        (("--classes", "no,yes"), None),
        (("--missing", "NA"), None),
    ]
    arguments = COMMANDS[command]
    for option, sentence in steps:
        if sentence:
            code, shown, error = invoke(*arguments, cwd=tmp_path)
            assert (code, shown) == (2, "")
            assert sentence in error
            assert len(error.splitlines()) == 1
        arguments += option
    if command != "check":  # takes longer, and is looked at elsewhere
        code, shown, error = invoke(*arguments, cwd=tmp_path)
        assert (code, besides_signal(error)) == (0, "")
        assert shown.splitlines()[0].endswith(": 4 items × 3 voters, 2 classes ('no', 'yes'), 16.7% missing")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "item 1 has more than one vote of voter 'b': take one of them by --duplicates last, or"),
        (("--duplicates", "last", "--classes", "2", "--classes", '"2,3",4'), "one of the classes '2', '2,3', '4'"),
        (("--duplicates", "last", "--missing", "0", "--missing", "1"), "there are no votes"),
        (("--item", "nowhere"), "there is no column 'nowhere'; the columns are 'item', 'voter', 'vote'"),
        (("--voter", "nowhere"), "there is no column 'nowhere'"),
        (("--vote", "nowhere"), "there is no column 'nowhere'"),
        (("--ignore", "vote", "--ignore", "nowhere"), "there is no column 'nowhere'"),
    ],
)
def test_every_option_reaches_the_reader(invoke, file, tmp_path, command, options, sentence):
    file("item,voter,vote\n1,a,0\n1,b,1\n1,b,0\n2,a,1\n2,b,1\n")
    code, shown, error = invoke(*COMMANDS[command], *options, cwd=tmp_path)
    assert (code, shown) == (2, "")
    assert sentence in error
    assert len(error.splitlines()) == 1


def test_options_without_a_file_are_refused(invoke, tmp_path):
    code, _, error = invoke("compare", "--classes", "no,yes", cwd=tmp_path)
    assert code == 2
    assert "--classes needs --votes or --data" in error


def test_a_class_that_may_mean_missing_is_pointed_out(invoke, file, tmp_path):
    file("item,a,b\n1,yes,NA\n2,NA,no\n3,yes,no\n4,no,no\n")
    _, shown, _ = invoke(*COMMANDS["fit"], cwd=tmp_path)
    line = "4 items × 2 voters, 3 classes ('NA', 'no', 'yes'), 0.0% missing"
    doubt = "(if 'NA' means a missing vote, add --missing NA)"
    assert shown.splitlines()[0] == f"votes.csv: {line} {doubt}"
    _, shown, _ = invoke(*COMMANDS["fit"], "--missing", "NA", cwd=tmp_path)
    assert shown.splitlines()[0] == "votes.csv: 4 items × 2 voters, 2 classes ('no', 'yes'), 25.0% missing"


@pytest.mark.parametrize(
    ("keyword", "shown"),
    [
        (Keyword("item", "question_id"), "--item question_id"),
        (Keyword("ignore", ("a (b)", "it's")), """--ignore 'a (b)' --ignore 'it'"'"'s'"""),
        (Keyword("classes", ("no", "a,b", 3)), """--classes 'no,"a,b",3'"""),
        (Keyword("missing", (-1,)), "--missing -1"),
        (Keyword("voter"), "--voter …"),
    ],
)
def test_keyword_arguments_are_spelled_as_options(keyword, shown):
    assert as_option(keyword) == shown
