"""Results that cannot be written are refused before the work, never lost after it; nothing printed is markup."""

import errno
import sys
from pathlib import Path

import pandas as pd
import pytest

from latentens.cli import io, main
from latentens.cli.io import check_file, check_folder, write_files
from latentens.errors import LatentensError, LimitError
from latentens.methods import MajorityVote
from latentens.runtime.limits import memory_limit, time_limit
from tests.reference import besides_signal

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in a folder with votes: exit code, standard output and error."""
    voters = "item,ann[/b],b:100:b,cy\n"
    rows = "".join(f"q{i},{i % 2},{(i // 2) % 2},{i % 2}\n" for i in range(12))
    (tmp_path / "votes.csv").write_text(voters + rows)
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["latentens", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def no_work(monkeypatch):
    """Any fit, and any simulation, is a failure."""

    def never(*_, **__):
        pytest.fail("work was done before the output was looked at")

    monkeypatch.setattr(MajorityVote, "estimate", never)
    monkeypatch.setattr("latentens.datasets.simulate", never)


COMMANDS = {
    "fit": ("fit", "MajorityVote", "votes.csv", "--out"),
    "check": ("check", "votes.csv", "--out"),
    "simulate": ("simulate", "Tree", "--out"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("folder.csv", "folder.csv is a folder; choose a file in it"),
        ("taken/x.csv", "taken is a file, not a folder"),
        ("taken/deeper/x.csv", "taken is a file, not a folder"),
        ("x.txt", "x.txt does not end in .csv"),
    ],
)
def test_files_that_cannot_be_written(run, no_work, command, out, message):
    code, _, error = run(*COMMANDS[command], out)
    assert code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "command", [("compare", "--votes", "votes.csv", "-m", "MajorityVote"), ("compare", "--model", "Tree")]
)
def test_folders_that_cannot_be_written(run, no_work, command):
    code, _, error = run(*command, "--out", "taken")
    assert code == 2
    assert error.strip() == "latentens: taken is a file, not a folder; choose another folder"


def test_a_place_that_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(io.tempfile, "TemporaryFile", lambda **_: (_ for _ in ()).throw(PermissionError(13, "no")))
    with pytest.raises(LatentensError, match=r"is not writable \(no\); choose another folder"):
        check_folder(tmp_path)
    monkeypatch.setattr(io.os, "access", lambda *_: False)
    (tmp_path / "x.csv").write_text("")
    with pytest.raises(LatentensError, match="is not writable; choose another file"):
        check_file(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("arguments", "out", "kind"),
    [
        (("fit", "MajorityVote", "votes.csv", "--out", "{}"), "votes.csv", "read"),
        (("fit", "votes.csv", "--out", "{}"), "folder.csv/../votes.csv", "read"),
        (("fit", "votes.csv", "--out", "{}"), "link.csv", "read"),
        (("fit", "votes.csv", "--gold", "gold.csv", "--out", "{}"), "gold.csv", "read"),
        (("fit", "votes.csv", "--out", "x.csv", "--voters", "{}"), "folder.csv/../x.csv", "write"),
        (("check", "votes.csv", "--out", "{}"), "votes.csv", "read"),
        (("check", "votes.csv", "--gold", "gold.csv", "--voters", "{}"), "gold.csv", "read"),
        (("next", "votes.csv", "--budget", "3", "--out", "{}"), "votes.csv", "read"),
        (("next", "votes.csv", "--budget", "3", "--gold", "gold.csv", "--out", "{}"), "gold.csv", "read"),
        (("estimate", "votes.csv", "--gold", "gold.csv", "--out", "{}"), "gold.csv", "read"),
        (("estimate", "votes.csv", "--gold", "gold.csv", "--about", "about.csv", "--out", "{}"), "about.csv", "read"),
    ],
)
def test_no_file_is_written_that_is_read_or_written_already(run, no_work, tmp_path, arguments, out, kind):
    for name in ("gold.csv", "about.csv"):
        (tmp_path / name).write_text("item,gold\nq1,1\nq2,0\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "votes.csv")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    code, shown, error = run(*(part.format(out) for part in arguments))
    assert code == 2
    assert error.strip() == f"latentens: {out} is also a file that this command {kind}s; choose another output file"
    assert shown == ""
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_folders_are_made(run, tmp_path):
    assert run(*COMMANDS["fit"], "new/deep/x.csv")[0] == 0
    assert len(pd.read_csv(tmp_path / "new" / "deep" / "x.csv")) == 12


def test_a_file_is_whole_or_not_there(tmp_path):
    def half(path):
        path.write_text("half")
        raise KeyError

    with pytest.raises(KeyError):
        write_files({tmp_path / "x.csv": half})
    assert not (tmp_path / "x.csv").exists()


def test_a_full_disk_loses_nothing(run, monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(io.tempfile, "mkdtemp", lambda prefix: str(elsewhere))
    replace = Path.replace

    def full(path, target):
        if Path(target).name == "x.csv":
            raise FULL
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)
    code, shown, error = run(*COMMANDS["fit"], "x.csv")
    assert code == 2
    assert error.strip() == (
        f"latentens: x.csv could not be written (No space left on device); the result is in {elsewhere / 'x.csv'}"
    )
    assert "labels written" not in shown
    assert len(pd.read_csv(elsewhere / "x.csv")) == 12
    assert not list(tmp_path.glob("x.csv*"))


def test_no_disk_at_all(tmp_path):
    def full(path):
        raise FULL

    with pytest.raises(LatentensError, match="neither .* could be written"):
        write_files({tmp_path / "x.csv": full})


def test_names_are_no_markup(run, tmp_path):
    (tmp_path / "o[red].csv").write_text((tmp_path / "votes.csv").read_text())
    code, shown, error = run("fit", "MajorityVote", "o[red].csv", "--out", "p[/b].csv")
    assert (code, besides_signal(error)) == (0, "")
    assert "o[red].csv: " in shown
    assert "labels written to p[/b].csv" in shown
    code, shown, error = run("compare", "--votes", "o[red].csv", "-m", "[/b] :100:=MajorityVote")
    assert (code, besides_signal(error)) == (0, "")
    assert "o[red]" in shown
    assert "[/b] :100:" in shown
    code, _, error = run("fit", "[/b]", "votes.csv", "--out", "x.csv")
    assert code == 2
    assert "'[/b]' is not a method" in error


@pytest.mark.parametrize("arguments", [("[/b]",), ("compare", "--items", "[/b]"), ("fit", "--[/b]")])
def test_usage_errors_with_brackets_end_with_2(run, arguments):
    assert run(*arguments)[0] == 2


def test_version(run):
    code, shown, _ = run("--version")
    assert code == 0
    assert shown.startswith("latentens 0.")


@pytest.mark.parametrize("seed", [2**32, 2**70, -1])
def test_seeds_that_would_be_cut_off_are_refused(run, seed):
    code, _, error = run("fit", "MajorityVote", "votes.csv", "--out", "x.csv", "--seed", str(seed))
    assert code == 2
    assert "--seed" in error


def test_report_of_a_folder(run, tmp_path):
    code, _, error = run("report", "folder.csv")
    assert code == 2
    assert error.strip() == "latentens: folder.csv is a folder; name the file in it, such as folder.csv/tree.nc"


@pytest.mark.parametrize("given", ["abc", "-3", "nan", ""])
def test_limits_that_are_none(monkeypatch, given):
    monkeypatch.setenv("LATENTENS_SECONDS", given)
    with pytest.raises(LimitError, match=f"LATENTENS_SECONDS={given} is not a valid number of seconds"):
        time_limit()
    monkeypatch.setenv("LATENTENS_MEMORY", "1.2.3GiB")
    with pytest.raises(LimitError, match="is not a valid memory size"):
        memory_limit()


def test_a_failure_of_the_machine_is_a_sentence(run, monkeypatch):
    monkeypatch.setattr(MajorityVote, "estimate", lambda *_, **__: Path("nowhere/at/all").read_text())
    code, _, error = run("fit", "MajorityVote", "votes.csv", "--out", "x.csv")
    assert (code, error.strip()) == (2, "latentens: nowhere/at/all: No such file or directory")
