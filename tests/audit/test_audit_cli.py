"""``elr audit`` from the shell: what is printed, what is written, and what is left alone."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

import elr
from elr.audit.evidence import Evidence, Rows, write_evidence
from elr.audit.of_run import audit_run
from elr.cli import main
from elr.noise import NoiseManifest

OWN = {"label_issues.csv", "label_issues.parquet", "audit.json", "review.csv", "review.json"}
NAMES = ("猫, 小", 'كلب "كبير"', "🦜\nparrot")


def audit(*words, capsys):
    code = main(["audit", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def state(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_run(folder: Path, classes: tuple[str, ...], n: int = 60) -> Path:
    """A run of a classifier that is sure and right, with every tenth label wrong; no network needed."""
    rng = np.random.default_rng(0)
    C = len(classes)
    truth = np.arange(n) % C
    y = np.where(np.arange(n) % 10 == 3, (truth + 1) % C, truth)
    belief = np.full((n, C), 0.02) + (1 - 0.02 * C) * np.eye(C)[truth]
    margin = np.where(y == truth, 3.0, -3.0) + 0.1 * rng.normal(size=n)
    few = np.full(n, 9, dtype=np.int16)
    once = np.ones(n, dtype=np.uint8)
    folder.mkdir()
    (folder / "config.toml").write_text('[data]\nsource = "digits"\n')
    (folder / "classes.json").write_text(json.dumps(classes))
    rows = Rows([f"{classes[k % C]}/{k}" for k in range(n)], ["train"] * n, y, classes)
    loss = np.full(n, np.nan, dtype=np.float16)
    held = np.zeros(n, dtype=bool)
    evidence = Evidence(
        belief, margin.astype(np.float32), few, few, few, once, once * 0, loss, held, facts={"epochs": 9}
    )
    write_evidence(folder, rows, evidence)
    (folder / "summary.json").write_text("{}")
    return folder


# What is printed and written


def test_a_run_is_audited_and_only_own_files_are_written(run, capsys):
    before = state(run)
    code, out, err = audit(run, capsys=capsys)
    assert (code, err) == (0, "")
    after = state(run)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"label_issues.csv", "label_issues.parquet", "audit.json"}
    issues = audit_run(run)
    assert f"{issues.found:,} of 1,437 labels look wrong (quality below 0.50);" in out
    assert "rests on" in out
    assert f"next: elr report {run}" in out
    rows = table(run / "label_issues.csv")
    assert [row["id"] for row in rows] == issues["id"].tolist()
    assert sum(row["is_label_issue"] == "true" for row in rows) == issues.found
    summary = json.loads((run / "audit.json").read_text())
    assert summary["found"] == issues.found
    assert len(summary["transition"]) == 10


def test_auditing_again_gives_the_same_bytes(run, capsys):
    audit(run, capsys=capsys)
    first = state(run)
    audit(run, capsys=capsys)
    assert state(run) == first


def test_what_is_known_of_injected_noise_is_printed_and_changes_nothing(run, capsys):
    code, out, _ = audit(run, capsys=capsys)
    assert "known here because the noise was injected (the audit has not seen it):" in out
    with_truth = {name: digest for name, digest in state(run).items() if name in OWN}
    for name in ("noise.npz", "noise.json"):
        (run / name).unlink()
    code, out, _ = audit(run, capsys=capsys)
    assert code == 0
    assert "known here" not in out
    assert {name: digest for name, digest in state(run).items() if name in OWN} == with_truth


def test_json_is_all_that_is_printed(run, capsys):
    code, out, err = audit(run, "--json", capsys=capsys)
    found = json.loads(out)
    assert (code, err) == (0, "")
    noise = NoiseManifest.load(run)
    known = found["known_because_noise_was_injected"]
    assert known["wrong"] == int((noise.old != noise.new).sum())
    assert known["average_precision"] > 0.5  # a fifth of the labels is wrong
    assert [Path(path).name for path in found["files"]] == ["label_issues.csv", "label_issues.parquet", "audit.json"]


def test_another_folder_can_be_written_and_the_run_left_as_it_is(run, tmp_path, capsys):
    before = state(run)
    code, _, _ = audit(run, "--out", tmp_path / "deep" / "audit", capsys=capsys)
    assert code == 0
    assert state(run) == before
    assert {path.name for path in (tmp_path / "deep" / "audit").iterdir()} == {
        "label_issues.csv", "label_issues.parquet", "audit.json",
    }  # fmt: skip


def test_quiet_is_the_headline(run, capsys):
    _, out, _ = audit(run, "--quiet", capsys=capsys)
    assert "labels look wrong" in out
    assert "the 10 surest" not in out
    assert len(out.splitlines()) < 12


def test_a_budget_lists_so_many_and_a_precision_as_many_as_it_allows(run, capsys):
    code, out, _ = audit(run, "--budget", 25, capsys=capsys)
    assert code == 0
    assert "25 of 1,437 labels are listed" in out
    rows = table(run / "label_issues.csv")
    listed = [float(row["label_quality"]) for row in rows if row["is_label_issue"] == "true"]
    assert sorted(float(row["label_quality"]) for row in rows)[:25] == sorted(listed)
    _, out, _ = audit(run, "--precision", 0.6, "--json", capsys=capsys)
    found = json.loads(out)
    assert 0.6 <= found["expected_precision"] < 0.61
    assert found["threshold"] == pytest.approx(json.loads((run / "audit.json").read_text())["threshold"])


def test_a_threshold_is_that_of_the_python_call_and_says_what_it_withholds(run, capsys):
    _, out, _ = audit(run, "--threshold", 0.9, capsys=capsys)
    issues = elr.Run(run).label_issues(0.9)
    assert f"{issues.found:,} of 1,437 labels look wrong (quality below 0.90)" in out
    more = int((issues["label_quality"] < 0.9).sum()) - issues.found
    assert more > 0
    assert f"note: {more:,} more are below it" in out


def test_names_in_other_scripts_survive_and_the_table_stays_in_line(tmp_path, capsys):
    run = write_run(tmp_path / "run", NAMES)
    code, out, _ = audit(run, capsys=capsys)
    assert code == 0
    rows = table(run / "label_issues.csv")
    assert {row["given_label"] for row in rows} == set(NAMES)
    wrong = [row for row in rows if row["is_label_issue"] == "true"]
    assert {int(row["id"].rpartition("/")[2]) % 10 for row in wrong} == {3}
    assert "🦜\\nparrot" in out
    lines = out.splitlines()
    start = lines.index("all of them")
    assert len(lines[start + 2 : lines.index("", start)]) == len(wrong)


def test_warnings_stand_out(tmp_path, capsys):
    run = write_run(tmp_path / "run", NAMES, n=24)
    _, out, _ = audit(run, capsys=capsys)
    assert out.splitlines()[1] == "beware: 3 of 3 classes have fewer than 10 examples: what is said of them is a guess"


# Checking rows


@pytest.fixture
def wrong(run):
    noise = NoiseManifest.load(run)
    return dict(zip(map(str, noise.ids.tolist()), (noise.old != noise.new).tolist(), strict=True))


def test_drawn_rows_are_answered_and_give_an_interval(run, wrong, capsys, tmp_path):
    code, out, _ = audit(run, "--review", 200, "--seed", 5, capsys=capsys)
    assert code == 0
    assert f"next: elr report {run} " in out
    assert f"or: answer is_wrong in {run / 'review.csv'}" in out
    before = state(run)
    rows = table(run / "review.csv")
    assert len(rows) == 200
    with open(tmp_path / "mine.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "is_wrong": "yes" if wrong[row["id"]] else "no"} for row in rows)
    code, out, _ = audit(run, "--checked", tmp_path / "mine.csv", "--json", capsys=capsys)
    found = json.loads(out)["review"]
    assert code == 0
    assert found["low"] - 0.02 <= np.mean(list(wrong.values())) <= found["high"] + 0.02  # one draw in twenty may miss
    assert found["checked"] == 200
    written = json.loads((run / "review.json").read_text())
    assert written == found
    after = state(run)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"review.json"}
    _, out, _ = audit(run, "--checked", tmp_path / "mine.csv", capsys=capsys)
    assert "95 % interval" in out


def test_decisions_of_the_review_page_are_matched_by_id(run, wrong, capsys, tmp_path):
    audit(run, "--review", 100, capsys=capsys)
    rows = table(run / "review.csv")
    decided = []
    for row in reversed(rows):
        given, other = row["given_label"], str((int(row["given_label"]) + 1) % 10)
        decided.append([row["id"], given, *(("accept", other) if wrong[row["id"]] else ("keep", given))])
    write_decisions(tmp_path / "checked.csv", decided)
    code, out, _ = audit(run, "--checked", tmp_path / "checked.csv", "--json", capsys=capsys)
    found = json.loads(out)["review"]
    assert code == 0
    assert (found["checked"], found["wrong"]) == (100, sum(wrong[row["id"]] for row in rows))
    # The page tells it, before what rests on assumptions.
    assert main(["report", str(run), "--quiet"]) == 0
    words = (run / "report.html").read_text(encoding="utf-8")
    told = words.index("Share of wrong labels, from 100 that were checked")
    assert told < words.index("Estimated share of wrong labels")
    assert f"<strong>{100 * found['estimate']:.1f}\u00a0%</strong>" in words[told : told + 200]


def test_answers_that_the_audit_has_led_do_not_check_it(run, capsys, tmp_path):
    """Decisions about suspects were made with its opinion in view."""
    audit(run, "--review", 20, capsys=capsys)
    drawn = {row["id"] for row in table(run / "review.csv")}
    rows = [row for row in table(run / "label_issues.csv")[:100] if row["id"] not in drawn]
    write_decisions(
        tmp_path / "corrections.csv", [[rows[0]["id"], rows[0]["given_label"], "keep", rows[0]["given_label"]]]
    )
    code, _, err = audit(run, "--checked", tmp_path / "corrections.csv", capsys=capsys)
    assert code == 2
    assert "decides about rows that were not drawn" in err
    assert "checked.csv" in err
    assert not (run / "review.json").exists()


def write_decisions(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "given_label", "decision", "label"], *rows])


def test_a_damaged_side_file_costs_only_what_it_is_for(run, capsys):
    changed_noise(run)
    (run / "features.safetensors").write_bytes(b"cut")
    code, out, _ = audit(run, capsys=capsys)
    assert code == 0
    assert f"how good this audit is cannot be told: {run}: noise.json and noise.npz do not match" in out
    assert main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    assert "Calibration is not shown: " in said
    assert "Neighbours are not shown: " in said


def test_noise_of_other_examples_costs_calibration_only(run, capsys):
    rows = (run / "rows.csv").read_text().splitlines()
    ids = [row.partition(",")[0] for row in rows[1:]]
    (run / "rows.csv").write_text("\n".join(rows).replace(f"\n{ids[0]},", "\n99999,", 1) + "\n")
    assert main(["report", str(run)]) == 0
    assert "noise.npz does not know 1 of " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("summary.json", "[]", "What training led to is not told: "),
        ("summary.json", "{}", None),
        ("summary.json", '{"noise": {"changed": 3}}', None),
        ("data.json", "{}", "Examples are not shown: "),
        ("records.jsonl", '{"loss": 1.0}\n', "Curves are not shown: 1 of 1 records do not say"),
        ("records.jsonl", '{"epoch": 1}\n{"epo\n', "Curves are not shown: line 2 of "),
        ("config.toml", "new_thing = 3\n", "perhaps of another version of elr"),
        ("config.toml", 'method = "elr_ultra"\n', "unknown method 'elr_ultra'"),
        ("review.json", "7", None),
        ("summary.json", "3", "What training led to is not told: "),
        ("summary.json", '{"noise": "symmetric"}', "summary.json is damaged: noise is 'symmetric'"),
        ("summary.json", '{"noise": {"changed": "<b>3</b>"}}', "summary.json is damaged: changed is '<b>3</b>'"),
        ("summary.json", '{"noise": {"changed": 3, "examples": "9"}}', "summary.json is damaged: examples is '9'"),
        ("summary.json", '{"facts": ["cpu"]}', "summary.json is damaged: facts is ['cpu']"),
        ("summary.json", '{"test_accuracy": "0.9"}', "summary.json is damaged: test_accuracy is '0.9'"),
        ("summary.json", '{"selected_epoch": "last"}', "summary.json is damaged: selected_epoch is 'last'"),
        ("summary.json", '{"seconds": null, "epochs": 3}', None),
        ("data.json", '{"train_examples": "many"}', "data.json is damaged: train_examples is 'many'"),
        ("data.json", '{"raw_shape": 3}', "data.json is damaged: raw_shape is 3"),
        ("data.json", "null", "Examples are not shown: "),
        ("records.jsonl", '{"epoch": 1, "val_accuracy": "high"}\n', "records.jsonl is damaged: val_accuracy is 'high'"),
    ],
)
def test_a_report_says_what_a_strange_file_keeps_from_it(run, capsys, file, content, said):
    (run / file).write_text(content)
    assert main(["report", str(run)]) == 0
    out = capsys.readouterr().out
    assert said is None or said in out
    assert "labels look wrong" in out


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("labels.csv", "a page ends in .html"),
        ("folder.html", "is a folder"),
        ("mine.html", "exists already and is no page"),
        ("summary.json", "a page ends in .html"),
    ],
)
def test_a_report_replaces_pages_only(run, tmp_path, capsys, out, message):
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "mine.html").write_text("notes")
    (tmp_path / "labels.csv").write_text("id,label")
    before, of_run = state(tmp_path), state(run)
    place = run if out == "summary.json" else tmp_path
    assert main(["report", str(run), "--out", str(place / out)]) == 2
    assert message in capsys.readouterr().err
    assert (state(tmp_path), state(run)) == (before, of_run)


def test_a_report_is_cut_like_the_audit(run, capsys):
    audit(run, "--budget", 7, capsys=capsys)
    assert main(["report", str(run), "--budget", "7"]) == 0
    assert "7 of 1,437 labels look wrong" in capsys.readouterr().out


def test_an_audit_is_not_written_into_another_run(run, trained, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    before = state(other)
    code, _, err = audit(run, "--out", other, capsys=capsys)
    assert code == 2
    assert "is another run" in err
    assert state(other) == before


def test_the_seed_decides_the_draw(run, capsys):
    drawn = []
    for seed in (1, 1, 2):
        audit(run, "--review", 50, "--seed", seed, capsys=capsys)
        drawn.append([row["id"] for row in table(run / "review.csv")])
        (run / "review.csv").unlink()
    assert drawn[0] == drawn[1] != drawn[2]


def test_label_studio_gets_the_suspects_or_the_rows_drawn(run, capsys, tmp_path):
    issues = audit_run(run)
    code, _, _ = audit(run, "--export", "label-studio", "--to", tmp_path / "tasks.json", capsys=capsys)
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert code == 0
    assert [task["data"]["example_id"] for task in tasks] == issues["id"][issues.worst()].tolist()
    words = ["--review", 50, "--export", "label-studio", "--to", tmp_path / "drawn.json"]
    assert audit(run, *words, capsys=capsys)[0] == 0
    tasks = json.loads((tmp_path / "drawn.json").read_text())
    assert [task["data"]["example_id"] for task in tasks] == [row["id"] for row in table(run / "review.csv")]
    for task in tasks:
        choice = {"type": "choices", "value": {"choices": [task["data"]["given_label"]]}}
        task["annotations"] = [{"result": [choice], "was_cancelled": False}]
    (tmp_path / "done.json").write_text(json.dumps(tasks))
    code, out, _ = audit(run, "--checked", tmp_path / "done.json", "--json", capsys=capsys)
    assert code == 0
    assert json.loads(out)["review"]["wrong"] == 0


# Training first


@pytest.fixture
def photos(tmp_path):
    """Dark and bright pictures, 20 of each, two of each in the other's folder."""
    rng = np.random.default_rng(0)
    for label, low in (("dark", 0), ("bright", 128)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for row in range(20):
            base = low if row > 1 else 128 - low
            pixels = rng.integers(base, base + 128, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{row:02d}.png")
    return tmp_path / "photos"


def test_data_are_trained_on_first_and_not_again(photos, tmp_path, capsys):
    words = [f"{photos}/", "--out", tmp_path / "a", "--epochs", 3, "--model.width", 4, "--runtime.threads", 1]
    code, out, err = audit(*words, capsys=capsys)
    assert code == 0
    assert "epoch 3/3" in err
    assert "40 labels (36 train, 4 val) of 2 classes" in out
    assert elr.Run(tmp_path / "a").config.method.name == "elr"
    before = state(tmp_path / "a")
    code, out, err = audit(photos, "--out", tmp_path / "a", "--json", capsys=capsys)  # without the slash
    assert code == 0
    assert json.loads(out)["examples"] == 40
    assert "epoch" not in err
    assert state(tmp_path / "a") == before
    code, out, _ = audit(
        tmp_path / "a", "--export", "fiftyone", "--to", tmp_path / "f.json", "--budget", 3, capsys=capsys
    )
    assert code == 0
    assert all(Path(s["filepath"]).is_file() for s in json.loads((tmp_path / "f.json").read_text())["samples"])
    code, _, err = audit(photos, "--out", tmp_path / "a", "--epochs", 4, capsys=capsys)
    assert code == 2
    assert "a holds another run: its epochs is 3, here it is 4" in err
    code, _, err = audit("digits", "--out", tmp_path / "a", capsys=capsys)
    assert code == 2
    assert "a holds another run: its data.source is" in err


def test_an_interrupted_run_is_finished_first(run, capsys):
    for name in ("summary.json", "evidence.safetensors", "rows.csv"):
        (run / name).unlink()
    before = set(state(run))
    code, _, err = audit("digits", "--out", run, "--quiet", capsys=capsys)
    assert (code, err) == (0, "")
    assert {"summary.json", "evidence.safetensors", "rows.csv", "label_issues.csv"} <= set(state(run)) - before


def test_a_dry_run_trains_nothing(tmp_path, capsys):
    code, out, _ = audit("digits", "--out", tmp_path / "a", "--dry-run", capsys=capsys)
    assert code == 0
    assert "steps" in out
    assert not (tmp_path / "a").exists()


# Bad input


def without_evidence(run):
    (run / "evidence.safetensors").unlink()


def half_written(run):
    for name in ("evidence.safetensors", "rows.csv", "summary.json"):
        (run / name).unlink()


def barely_begun(run):
    half_written(run)
    (run / "classes.json").unlink()


def truncated(run):
    path = run / "evidence.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def nonsense(run):
    (run / "evidence.safetensors").write_bytes(b"\xff" * 5000)


def other_version(run):
    with safe_open(run / "evidence.safetensors", framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["evidence"])
    save_file(arrays, run / "evidence.safetensors", metadata={"evidence": json.dumps({**header, "version": 99})})


def fewer_rows(run):
    lines = (run / "rows.csv").read_text().splitlines()
    (run / "rows.csv").write_text("\n".join(lines[:-5]) + "\n")


def strange_label(run):
    (run / "rows.csv").write_text((run / "rows.csv").read_text().replace(",train,0\n", ",train,zero\n", 1))


def other_classes(run):
    (run / "classes.json").write_text(json.dumps([*"0123456789", "ten"]))


def broken_classes(run):
    (run / "classes.json").write_text('["0", ')


def no_classes(run):
    (run / "classes.json").write_text("null")


def classes_of_classes(run):
    (run / "classes.json").write_text('[["0"], ["1"]]')


def shorter_column(run):
    with safe_open(run / "evidence.safetensors", framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    arrays["held"] = arrays["held"][:-7].copy()
    save_file(arrays, run / "evidence.safetensors", metadata=metadata)


def header_that_is_a_number(run):
    with safe_open(run / "evidence.safetensors", framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(arrays, run / "evidence.safetensors", metadata={"evidence": "3"})


def changed_noise(run):
    (run / "noise.json").write_text((run / "noise.json").read_text().replace('"symmetric"', '"pair"'))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_evidence, "has no evidence to audit: it was trained without"),
        (half_written, "has no evidence to audit: it is not finished"),
        (barely_begun, "is only half written: it has no classes.json"),
        (truncated, "evidence.safetensors is not a readable safetensors file"),
        (nonsense, "evidence.safetensors is not a readable safetensors file"),
        (other_version, "evidence.safetensors is of version 99, this is version 1"),
        (fewer_rows, "is damaged: 1,432 rows but evidence of 1,437"),
        (strange_label, "rows.csv is damaged"),
        (other_classes, "is damaged: evidence of 10 classes, 11 names"),
        (broken_classes, "classes.json is not valid JSON"),
        (no_classes, "classes.json is damaged: it holds no list of names"),
        (classes_of_classes, "classes.json is damaged: it holds no list of names"),
        (shorter_column, "is damaged: 1,437 rows but evidence of 1,430, 1,437"),
        (header_that_is_a_number, "evidence.safetensors is not a readable safetensors file"),
    ],
)
def test_a_run_that_cannot_be_audited_is_one_clear_line_and_stays_as_it_is(run, spoil, message, capsys):
    spoil(run)
    before = state(run)
    code, out, err = audit(run, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith("elr: ")
    assert len(err.splitlines()) == 1
    assert message in err
    assert state(run) == before


def test_one_class_has_no_other_label_to_suggest(tmp_path, capsys):
    run = write_run(tmp_path / "run", ("only",))
    code, out, err = audit(run, capsys=capsys)
    assert (code, out) == (2, "")
    assert "has one class only: there is no other label to suggest" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give a run directory, or data to train on"),
        ("nowhere", "there is no run and no data at 'nowhere'"),
        ("bare", "bare is not a run; to train on it first, give --out DIR"),
        ("bare --out new", "bare holds no images"),
        ("digits", "digits is not a run; to train on it first, give --out DIR"),
        ("RUN --epochs 5", "is a run: --epochs is for training, and it is trained"),
        ("RUN --dry-run", "is a run: --dry-run is for training"),
        ("RUN --thresold 0.3", "unknown flag '--thresold'; did you mean '--threshold'?"),
        ("RUN --threshold 1.5", "threshold must lie between 0 and 1, got 1.5"),
        ("RUN --threshold much", "argument --threshold: invalid float value: 'much'"),
        ("RUN --threshold 0.5 --budget 3", "not allowed with argument"),
        ("RUN --precision 1", "precision must lie between 0 and 1, got 1"),
        ("RUN --budget 0", "budget must be at least 1 row, got 0"),
        ("RUN --review 5000", "5,000 rows cannot be drawn of 1,437; choose from 1 to 1,437"),
        ("RUN --review 20 --checked f.csv", "not allowed with argument"),
        ("RUN --review 20 --seed x", "seed must be a whole number, got 'x'"),
        ("RUN --checked nowhere.csv", "nowhere.csv does not exist"),
        ("RUN --checked corrections.csv", "says what is wrong but not how rows were drawn"),
        ("RUN --export label-studio", "--export and --to belong together"),
        ("RUN --export labelbox --to f.json", "invalid choice: 'labelbox'"),
        ("RUN --export fiftyone --to f.json", "these examples are not image files"),
        ("RUN --review 20 --export fiftyone --to f.json", "these examples are not image files"),
        ("RUN --export label-studio --to file", "the file must end in .json"),
        ("RUN --out file", "file is a file, not a folder; choose another --out"),
        ("RUN --out file/deep", "file is a file, not a folder; choose another --out"),
    ],
)
def test_bad_words_are_one_clear_line_and_write_nothing(trained, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "corrections.csv").write_text("id,given_label,decision,label\n0,0,keep,0\n")
    before, of_run = state(tmp_path), state(trained)
    code, out, err = audit(*words.replace("RUN", str(trained)).split(), capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith("elr: ")
    assert len(err.splitlines()) == 1
    assert message in err
    assert state(tmp_path) == before
    assert state(trained) == of_run


def test_a_draw_with_answers_is_not_drawn_over(run, capsys):
    (run / "review.csv").write_text("hours of work")
    before = state(run)
    code, _, err = audit(run, "--review", 50, capsys=capsys)
    assert code == 2
    assert "review.csv exists already: give it as --checked, or move it away to draw again" in err
    assert state(run) == before


def test_a_draw_of_another_run_is_refused(run, trained, tmp_path, capsys):
    other = write_run(tmp_path / "other", NAMES)
    audit(other, "--review", 30, capsys=capsys)
    code, _, err = audit(run, "--checked", other / "review.csv", capsys=capsys)
    assert code == 2
    assert "is not in this audit" in err


def test_help_teaches(capsys):
    assert main(["audit", "--help"]) == 0
    out = capsys.readouterr().out
    assert "elr audit photos/ --out runs/photos" in out
    assert "--review" in out
    assert "--optim.lr" not in out  # they are those of elr train, and would bury ours
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(("method", "told"), [("mixup", True), ("ce", False)])
def test_training_tells_what_sweeps_for_the_audit_cost(tmp_path, capsys, method, told):
    words = f"digits --model linear --method {method} --epochs 2 --evaluate.evidence_every 1".split()
    assert main(["train", *words, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert ("seconds of sweeps for elr audit" in capsys.readouterr().out) == told
