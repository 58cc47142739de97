"""`elr report` on real runs, and what a page says when something is gone."""

import csv
import io
import shutil

import numpy as np
import pytest
from PIL import Image

import elr
from elr.audit.suspects import Features, kept_rows, neighbours, read_features
from elr.cli import main
from elr.pages import LARGE, SMALL, _picture, view_of

QUICK = {"lr": 0.05, "batch_size": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Real digits as image files, a tenth of them in the wrong folder."""
    from sklearn.datasets import load_digits

    place = tmp_path_factory.mktemp("photos")
    images, labels = load_digits(n_class=3, return_X_y=True)
    for k, (x, y) in enumerate(zip(images[:240], labels[:240], strict=True)):
        label = (y + 1) % 3 if k % 10 == 0 else y
        path = place / ["null", "<b>eins", "二"][label]
        path.mkdir(exist_ok=True)
        Image.fromarray((x.reshape(8, 8) * 15.9).astype(np.uint8)).resize((40, 40)).save(path / f"{k:03d}.png")
    return place


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first"
    return elr.fit("small_cnn", folder, epochs=6, out=out, optim=QUICK, schedule="cosine")


def test_a_page_shows_suspects_with_pictures_and_neighbours(run):
    view = view_of(run)
    assert view.lacks == ()
    assert view.suspects
    assert all(suspect.picture is not None for suspect in view.suspects)
    first = view.suspects[0]
    assert first.label_quality == min(suspect.label_quality for suspect in view.suspects)
    assert {near.label for near in first.agreeing} == {first.given_label}
    assert {near.label for near in first.disagreeing} == {first.suggested_label}
    assert first.id not in {near.id for near in (*first.agreeing, *first.disagreeing)}
    assert view.calibration is not None
    assert "labels they were given" in view.calibration.caption  # nobody knows the truth here


def test_the_command_writes_one_file_and_nothing_else_changes(run, tmp_path, capsys):
    place = tmp_path / "run"
    shutil.copytree(run.path, place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert main(["report", str(place)]) == 0
    after = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert set(after) - set(before) == {place / "report.html"}
    assert all(after[path] == before[path] for path in before)
    out = capsys.readouterr().out
    assert "labels look wrong" in out
    assert "file://" in out
    text = (place / "report.html").read_text(encoding="utf-8")
    assert "<b>eins" not in text
    assert "&lt;b&gt;eins" in text


def test_several_runs_share_a_page_in_a_folder_that_is_made_for_it(run, tmp_path, capsys):
    page = tmp_path / "pages" / "both.html"
    assert main(["report", str(run.path), str(run.path), "--out", str(page)]) == 0
    assert [path.name for path in page.parent.iterdir()] == ["both.html"]
    assert capsys.readouterr().out.count("labels look wrong") == 2


def test_the_command_says_that_it_shows_the_surest_only_and_how_to_see_all(run, tmp_path, capsys):
    page, found = tmp_path / "page.html", run.label_issues().found
    assert main(["report", str(run.path), "--out", str(page), "--suspects", "2"]) == 0
    command = f"elr report {run.path} --out {page} --suspects {found}"
    out = capsys.readouterr().out
    assert f"note: the page has the 2 surest of {found}; `{command}` shows all\n" in out
    assert f"written: {page} ({page.stat().st_size / 1e6:.1f} MB)" in out
    assert main(command.split()[1:]) == 0
    assert "surest of" not in capsys.readouterr().out


def test_a_draw_is_on_the_page_in_its_own_order_with_pictures(run, tmp_path, capsys):
    place = tmp_path / "run"
    shutil.copytree(run.path, place)
    assert view_of(elr.Run(place)).drawn == ()
    assert main(["audit", str(place), "--review", "20"]) == 0
    said = capsys.readouterr().out
    assert f"next: elr report {place} " in said
    assert f"elr audit {place} --checked checked.csv" in said
    with open(place / "review.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with open(place / "review.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: row["id"]))  # as a spreadsheet may have left it
    view = view_of(elr.Run(place))
    assert [row.id for row in view.drawn] == [row["id"] for row in rows]
    assert [row.given_label for row in view.drawn] == [row["given_label"] for row in rows]
    assert all(row.picture is not None for row in view.drawn)
    assert view.lacks == ()


def test_a_draw_that_is_none_of_this_run_is_said_and_the_page_is_written(run, tmp_path, capsys):
    place = tmp_path / "run"
    shutil.copytree(run.path, place)
    (place / "review.csv").write_text("hours of work")
    assert main(["report", str(place)]) == 0
    assert "note: The rows drawn are not shown: " in capsys.readouterr().out
    assert view_of(elr.Run(place)).drawn == ()


def test_a_page_says_which_examples_are_gone(run, folder, tmp_path):
    moved = tmp_path / folder.name
    shutil.copytree(folder, moved)
    place = tmp_path / "run"
    shutil.copytree(run.path, place)
    config = (place / "config.toml").read_text().replace(str(folder), str(moved))
    (place / "config.toml").write_text(config)
    ids = [suspect.id for suspect in view_of(elr.Run(place)).suspects]
    (moved / ids[0]).unlink()
    view = view_of(elr.Run(place))
    assert view.lacks == ("Some examples are not shown: the data do not have them any more.",)
    assert view.suspects[0].picture is None
    assert view.suspects[1].picture is not None
    shutil.rmtree(moved)
    view = view_of(elr.Run(place))
    assert all(suspect.picture is None for suspect in view.suspects)
    assert len(view.lacks) == 1
    assert "Examples are not shown" in view.lacks[0]


def test_a_run_without_evidence_still_has_a_page(run, tmp_path, capsys):
    place = tmp_path / "run"
    shutil.copytree(run.path, place)
    (place / "evidence.safetensors").unlink()
    assert main(["report", str(place)]) == 0
    assert "note: Labels are not judged" in capsys.readouterr().out
    assert "Labels are not judged" in (place / "report.html").read_text(encoding="utf-8")


def test_arrays_are_shown_as_nothing_rather_than_as_something_else(tmp_path):
    g = np.random.default_rng(0)
    y = g.integers(0, 2, 80)
    x = (np.eye(2)[y] * 4 + g.normal(size=(80, 2))).astype(np.float32)
    y[:6] = 1 - y[:6]
    run = elr.fit("mlp", (x, y), epochs=12, out=tmp_path / "run", optim=QUICK)
    view = view_of(run)
    assert view.lacks == ("Examples are not shown: the run was given its data from Python, and does not keep them.",)


def run_on_rows(folder):
    """A run on rows of features in a file, nine of 120 labels wrong; the features, the labels."""
    g = np.random.default_rng(0)
    y = g.integers(0, 2, 120)
    x = (np.eye(2)[y] * 4 + g.normal(size=(120, 2))).astype(np.float32)
    y[:9] = 1 - y[:9]
    np.savez(folder / "table.npz", x=x, y=y)
    run = elr.fit("mlp", folder / "table.npz", epochs=12, out=folder / "run", optim=QUICK)
    return run, x, y


def test_rows_of_features_are_shown_as_text(tmp_path):
    run, x, _ = run_on_rows(tmp_path)
    suspect = view_of(run).suspects[0]
    assert suspect.text == ", ".join(f"{value:.4g}" for value in x[int(suspect.id)].tolist())
    assert suspect.disagreeing[0].text is not None


def test_rows_that_hold_other_inputs_now_are_not_shown(tmp_path):
    run, x, y = run_on_rows(tmp_path)
    assert view_of(run).lacks == ()
    np.savez(tmp_path / "table.npz", x=x[::-1], y=y)
    view = view_of(elr.Run(tmp_path / "run"))
    assert [suspect.text for suspect in view.suspects] == [None] * len(view.suspects)
    assert view.lacks == (f"Examples are not shown: the rows of {tmp_path / 'table.npz'} hold other inputs now.",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "nowhere"], "nowhere is not a run"),
        (["report", "RUN", "RUN"], "several runs need --out"),
        (["report", "RUN", "--suspects", "-1"], "--suspects must be at least 0"),
    ],
)
def test_bad_input_is_one_line(run, words, said, capsys):
    assert main([str(run.path) if word == "RUN" else word for word in words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 300, 200), (3, 500, 20)])
def test_pictures_are_neither_tiny_nor_large(shape):
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    picture = _picture(x)
    assert max(picture.width, picture.height) <= LARGE
    assert min(picture.width, picture.height) >= SMALL or max(shape) / min(shape[1:]) > LARGE / SMALL
    # Numbers of any range become dark to light; smooth, so that it can be seen in a picture of any size.
    ramp = np.broadcast_to(np.linspace(-3, 8, shape[1], dtype=np.float32)[:, None], shape)
    decoded = np.asarray(Image.open(io.BytesIO(_picture(ramp).data)).convert("L"))
    assert decoded[0].max() < 20
    assert decoded[-1].min() > 235


def test_features_are_kept_of_suspects_first(monkeypatch):
    monkeypatch.setattr("elr.audit.suspects.SUSPECTS", 3)
    monkeypatch.setattr("elr.audit.suspects.SAMPLE", 4)
    quality = np.linspace(0.0, 1.0, 20)
    kept = kept_rows(quality, quality < 0.4, seed=0)
    assert kept[:3].tolist() == [0, 1, 2]
    assert len(kept) == 7
    assert (np.diff(kept) > 0).all()


def test_neighbours_are_the_nearest_trusted_ones(run):
    issues, features = run.label_issues(), read_features(run.path)
    assert isinstance(features, Features)
    row = int(issues.worst()[0])
    label = issues["suggested_label"][row]
    values = dict(zip(features.rows.tolist(), features.values.astype(np.float32), strict=True))
    found = neighbours(features, row, label, issues, 3)
    trusted = [k for k in values if k != row and issues["given_label"][k] == label and not issues["is_label_issue"][k]]
    naive = sorted(trusted, key=lambda k: -float(values[k] @ values[row]))[:3]
    assert found == naive
    assert neighbours(features, 10**6, label, issues, 3) == []
