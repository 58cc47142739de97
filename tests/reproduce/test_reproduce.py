"""``elr reproduce``: what is run for a figure or table, what is shared, and what is shown."""

import csv
from pathlib import Path

import pytest

from elr.cli import main
from elr.config import read_toml, resolve
from elr.parts.clock import Clock
from elr.report.records import read_json, read_lines, write_json
from elr.reproduce.catalogue import EXPERIMENTS, PRIORITY
from elr.reproduce.experiment import Trial
from elr.reproduce.paper import TABLE_1, TABLE_2, TABLE_5, Ablation
from elr.reproduce.queue import orders, runs

RECIPES = Path(__file__).parents[2] / "recipes"


def test_printed_numbers_are_those_of_the_paper():
    assert TABLE_1["ELR"]["cifar10", "symmetric", 0.4] == (89.15, 0.17)  # line 330
    assert TABLE_1["ELR-cosine"]["cifar10", "symmetric", 0.4] == (91.43, 0.21)  # line 331
    assert TABLE_1["Forward"]["cifar100", "asymmetric", 0.4] == (34.44, 1.93)  # line 335
    assert TABLE_1["SL"]["cifar10", "asymmetric", 0.1] == (91.72, 0.31)  # line 329
    assert TABLE_2["ELR+"]["cifar100", "symmetric", 0.9] == (30.8, None)  # line 398
    assert TABLE_2["DivideMix"]["cifar10", "asymmetric", 0.4] == (93.4, None)  # line 389
    assert ("cifar10", "asymmetric", 0.4) not in TABLE_2["mixup"]  # a dash
    assert TABLE_5[Ablation(2, True, True)][0.4] == (93.68, 0.51)  # line 481
    assert TABLE_5[Ablation(1, False, False)][0.8] == (72.54, 0.35)  # line 479
    assert all(len(columns) == 16 for columns in TABLE_1.values())


RECIPE_OF = {
    ("table1", "CE", "cifar10 symmetric 0.4"): "cifar10_sym_ce",
    ("table1", "ELR", "cifar10 symmetric 0.4"): "cifar10_sym_elr",
    ("table1", "ELR", "cifar10 asymmetric 0.4"): "cifar10_asym_elr",
    ("table1", "ELR", "cifar100 symmetric 0.4"): "cifar100_sym_elr",
    ("table1", "ELR-cosine", "cifar10 symmetric 0.4"): "cifar10_sym_elr_cosine",
    ("table1", "ELR-cosine", "cifar100 asymmetric 0.4"): "cifar100_asym_elr_cosine",
    ("table1", "CE", "cifar100 asymmetric 0.4"): "cifar100_asym_ce",
    ("table2", "ELR+", "cifar10 asymmetric 0.4"): "cifar10_asym_elr_plus",
    ("table2", "ELR+", "cifar100 symmetric 0.5"): "cifar100_sym_elr_plus",
    ("table2", "CE", "cifar100 symmetric 0.5"): "cifar100_sym_ce_preact",
    ("table5", "2 networks, mixup, weight averaging", "cifar10 symmetric 0.4"): "cifar10_sym_elr_plus",
    ("table3", "CE", "clothing1m"): "clothing1m_ce",
    ("table3", "ELR", "clothing1m"): "clothing1m_elr",
    ("table3", "ELR+", "clothing1m"): "clothing1m_elr_plus",
    ("table3", "Forward", "clothing1m"): "clothing1m_forward",
    ("table3", "GCE", "clothing1m"): "clothing1m_gce",
    ("table3", "SL", "clothing1m"): "clothing1m_sl",
    ("table3", "Joint-Optim", "clothing1m"): "clothing1m_joint_optim",
    ("table3", "DivideMix", "clothing1m"): "clothing1m_dividemix",
    ("table4", "D2L", "mini_webvision"): "webvision_d2l",
    ("table4", "MentorNet", "mini_webvision"): "webvision_mentornet",
    ("table4", "Co-teaching", "mini_webvision"): "webvision_co_teaching",
    ("table4", "Iterative-CV", "mini_webvision"): "webvision_incv",
    ("table4", "DivideMix", "mini_webvision"): "webvision_dividemix",
    ("table4", "ELR", "mini_webvision"): "webvision_elr",
    ("table4", "ELR+", "mini_webvision"): "webvision_elr_plus",
}


@pytest.mark.parametrize(("cell", "recipe"), RECIPE_OF.items(), ids=lambda value: str(value))
def test_a_cell_at_the_papers_scale_is_its_recipe(cell, recipe):
    name, row, column = cell
    spec = next(s for s in EXPERIMENTS[name].specs("paper") if (s.row, s.column) == (row, column))
    ours = Trial(spec, 0, {}).config.identity()
    rate = {key: value for key, value in spec.settings.items() if key == "noise.rate"}
    theirs = resolve({**read_toml(RECIPES / f"{recipe}.toml"), **rate}).identity()
    if "cifar" in recipe:  # these recipes spell out what is the default anyway
        ours |= {"data.pad": 4, "data.flip": True}
    assert ours == theirs


# What the methods' own papers set for this cell and not for all, by hand from their fact sheets.
THEIRS = {
    ("table1", "SL", "cifar10 symmetric 0.4"): {"method.alpha": 0.1, "method.beta": 1.0},
    ("table1", "SL", "cifar100 asymmetric 0.2"): {"method.alpha": 6.0, "method.beta": 0.1},
    ("table2", "Co-teaching+", "cifar10 symmetric 0.8"): {"method.warmup": 0.1, "method.rate": 0.72},
    ("table2", "Co-teaching+", "cifar10 asymmetric 0.4"): {"method.warmup": 0.1, "method.rate": 0.2},
    ("table2", "Co-teaching+", "cifar100 symmetric 0.8"): {"method.warmup": 0.025, "method.rate": 0.792},
    ("table2", "PENCIL", "cifar10 symmetric 0.2"): {"optim.lr": 0.03, "method.beta": 0.8, "method.lam": 300.0},
    ("table2", "PENCIL", "cifar10 asymmetric 0.4"): {
        "optim.lr": 0.06, "method.alpha": 0.4, "method.double_softmax": True, "method.beta": 0.1, "method.lam": 600.0,
    },
    ("table2", "PENCIL", "cifar100 symmetric 0.5"): {"optim.lr": 0.35, "method.beta": 0.4, "method.lam": 1000.0},
    ("table2", "MD-DYR-SH", "cifar10 symmetric 0.8"): {"method.name": "m_dyr_h"},
    ("table2", "MD-DYR-SH", "cifar10 symmetric 0.9"): {"method.name": "md_dyr_sh"},
    ("table2", "MD-DYR-SH", "cifar100 symmetric 0.5"): {"method.name": "md_dyr_sh"},
    ("table2", "MD-DYR-SH", "cifar100 symmetric 0.8"): {"method.name": "m_dyr_h"},
    ("table2", "DivideMix", "cifar10 symmetric 0.2"): {
        "method.warmup": 10 / 300, "method.confidence_penalty": False, "method.threshold": 0.5, "method.loss_memory": 1,
        "method.lambda_u": 0.0,
    },
    ("table2", "DivideMix", "cifar10 asymmetric 0.4"): {
        "method.confidence_penalty": True, "method.threshold": 0.5, "method.lambda_u": 0.0,
    },
    ("table2", "DivideMix", "cifar10 symmetric 0.8"): {"method.threshold": 0.5, "method.lambda_u": 25.0},
    ("table2", "DivideMix", "cifar10 symmetric 0.9"): {
        "method.threshold": 0.6, "method.loss_memory": 5, "method.lambda_u": 50.0,
    },
    ("table2", "DivideMix", "cifar100 symmetric 0.2"): {"method.warmup": 0.1, "method.lambda_u": 25.0},
    ("table2", "DivideMix", "cifar100 symmetric 0.9"): {
        "method.warmup": 0.1, "method.threshold": 0.6, "method.lambda_u": 150.0,
    },
    ("table3", "DivideMix", "clothing1m"): {
        "method.alpha": 0.5, "method.lambda_u": 0.0, "method.confidence_penalty": True, "method.warmup": 1 / 15,
    },
    ("table3", "Joint-Optim", "clothing1m"): {"epochs": 20, "optim.lr": 8e-4, "optim.weight_decay": 1e-3},
    ("table4", "DivideMix", "mini_webvision"): {
        "method.alpha": 0.5, "method.lambda_u": 0.0, "method.confidence_penalty": False,
    },
    ("table4", "Iterative-CV", "mini_webvision"): {"schedule.epochs": 120},
}  # fmt: skip


@pytest.mark.parametrize(("cell", "values"), THEIRS.items(), ids=lambda value: str(value))
def test_a_compared_method_has_its_own_papers_values(cell, values):
    name, row, column = cell
    spec = next(s for s in EXPERIMENTS[name].specs("paper") if (s.row, s.column) == (row, column))
    settings = Trial(spec, 0, {}).config.flat()
    assert {key: settings[key] for key in values} == pytest.approx(values)


@pytest.mark.parametrize(("column", "first"), [("cifar10 asymmetric 0.4", 0.06), ("cifar100 symmetric 0.2", 0.35)])
def test_the_last_stage_of_pencil_begins_at_a_fifth(column, first):
    spec = next(s for s in EXPERIMENTS["table2"].specs("paper") if (s.row, s.column) == ("PENCIL", column))
    config = Trial(spec, 0, {}).config
    *_, last = config.make_method().plan(config.epochs)
    assert config.optim.lr == first
    assert last.lr_scale * config.optim.lr == pytest.approx(0.2)


def test_joint_optim_finds_labels_for_ten_epochs_and_learns_them_for_ten():
    spec = next(s for s in EXPERIMENTS["table3"].specs("paper") if s.row == "Joint-Optim")
    config = Trial(spec, 0, {}).config
    find, learn = config.make_method().plan(config.epochs)
    own = config.make_schedule()
    assert (find.epochs, learn.epochs, learn.fresh) == (10, 10, True)
    rates = [learn.lr_scale * own(Clock(0, 1, epoch, 10), config.optim.lr) for epoch in range(10)]
    assert rates == pytest.approx([5e-4] * 5 + [5e-5] * 5)


@pytest.mark.parametrize("scale", ["laptop", "paper"])
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "human"])
def test_every_experiment_resolves_and_no_two_cells_are_the_same(name, scale):
    trials = EXPERIMENTS[name].trials(scale, {}, 1)
    assert trials or name in ("figA1", "tableG1", "tableG2", "tableI1")  # these train nothing
    assert len({trial.spec.label for trial in trials}) == len(trials)
    for trial in trials:
        assert trial.epochs > 0
        assert trial.work > 0
    assert len(EXPERIMENTS[name].trials(scale, {}, 2)) == 2 * len(trials)


def test_all_comes_to_everything_and_to_the_phenomenon_first():
    with pytest.warns(UserWarning, match="table3, table4 are left out: name them"):
        found = orders(["all"], "laptop", {"data.labels": "x.npz"})
    names = {trial.name for trial in runs(found)}
    for experiment in EXPERIMENTS.values():
        if experiment.name in ("table3", "table4"):  # asked for by name: few have their data
            continue
        given = {"data.labels": "x.npz"} if experiment.name == "human" else {}
        assert {trial.name for trial in experiment.trials("laptop", given)} <= names
    assert {name for name, _ in PRIORITY} == EXPERIMENTS.keys() - {"table3", "table4"}
    assert [name for name, _ in PRIORITY[:4]] == ["fig1", "fig2", "figC1", "figD1"]


def test_figures_share_the_runs_they_have_in_common():
    found = orders(["fig1", "fig2", "figD1"], "paper", {})
    assert sum(len(order.trials) for order in found) == 5
    assert len(runs(found)) == 2


def test_figures_are_drawn_from_runs_that_are_resumed_and_never_repeated(tiny_cifar, short, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--data.root", str(tiny_cifar), "--out", str(out), "--quiet"]
    assert main(["reproduce", "fig1", "figC1", *words]) == 0
    shown = capsys.readouterr().out
    assert "the figure does not count" in shown  # two epochs memorise nothing
    assert sorted(path.name for path in (out / "fig1").iterdir()) == [
        "fig1.csv", "fig1.json", "fig1.md", "fig1.png", "fig1.svg",
    ]  # fmt: skip
    rows = list(csv.DictReader((out / "fig1" / "fig1.csv").open()))
    assert {(row["run"], row["epoch"]) for row in rows} == {(r, e) for r in ("CE", "ELR") for e in ("1", "2")}
    assert sum(float(rows[0][key]) for key in ("wrong_correct", "wrong_memorized", "wrong_other")) == pytest.approx(1)
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*/summary.json")}
    assert len(before) == 5
    assert main(["reproduce", "fig2", "figD1", *words]) == 0  # made of runs that are there
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*/summary.json")} == before
    assert read_json(out / "fig2" / "fig2.json")["scale"] == "laptop"
    assert read_json(out / "fig2" / "fig2.json")["command"] == "elr reproduce fig2 --data.root DIR --out DIR"
    assert str(tmp_path) not in (out / "fig2" / "fig2.json").read_text()
    capsys.readouterr()
    assert main(["reproduce", "--list", "--out", str(out)]) == 0
    assert "figC1          3/3" in capsys.readouterr().out


def test_only_what_shows_epochs_pays_for_looking_at_them():
    looks = {"fig1": (1, 1), "figC1": (1, 1), "table1": (0, 0), "table2": (1, 0), "table5": (0, 0), "figH1": (0, 0)}
    for name, (test, train) in looks.items():
        for trial in EXPERIMENTS[name].trials("laptop", {}):
            assert (trial.config.evaluate.test_every, trial.config.evaluate.train_every) == (test, train), name


def test_an_unfinished_run_is_gone_on_with_only_when_asked(tiny_cifar, short, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["reproduce", "fig2", "--data.root", str(tiny_cifar), "--out", str(out), "--quiet"]
    assert main(words) == 0
    run = next((out / "runs").iterdir())
    (run / "summary.json").unlink()
    assert main(words) == 2
    assert "unfinished run of cifar10 symmetric 0.4/ELR (2 of 2 epochs); go on with --resume" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    assert (run / "summary.json").exists()


def test_a_part_of_a_table_is_run_and_the_rest_says_so(tiny_cifar, short, tmp_path, capsys):
    words = ["--only", "cifar10 symmetric 0.4/CE", "--data.root", str(tiny_cifar), "--out", str(tmp_path / "o")]
    assert main(["reproduce", "table1", *words, "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "| ELR | 89.15 ± 0.17 | not run |" in text
    assert "No row of these was run: cifar10 symmetric 0.2, cifar10 symmetric 0.6" in text
    line = next(line for line in text.splitlines() if line.startswith("| CE | 81.88 ± 0.29 |"))
    assert "not run" not in line
    assert len(list((tmp_path / "o" / "runs").iterdir())) == 1
    assert main(["reproduce", "table1", *words, "--dry-run"]) == 0
    assert "1 done already" in capsys.readouterr().out


def test_a_table_tells_of_the_machine_that_ran_it_and_not_of_the_one_that_shows_it(tiny_cifar, short, tmp_path):
    words = ["reproduce", "table1", "--only", "cifar10 symmetric 0.4/CE", "--data.root", str(tiny_cifar), "--quiet"]
    words += ["--out", str(tmp_path / "o")]
    assert main([*words, "--runtime.precision", "bfloat16"]) == 0
    (summary,) = (tmp_path / "o" / "runs").glob("*/summary.json")
    then = read_json(summary)
    then["facts"]["cpu"] = "another machine"
    write_json(summary, then)
    assert main([*words, "--show"]) == 0  # here in float32
    made = read_json(tmp_path / "o" / "table1" / "table1.json")["made_of"]
    assert made["precision"] == {"bfloat16": 1}
    assert list(made["machines"]) == [f"another machine, torch {then['facts']['torch']}"]
    assert made["networks"] == {"small_cnn": 1}
    assert (made["runs"], made["seeds"]) == (1, {"0": 1})
    (row,) = csv.DictReader((tmp_path / "o" / "table1" / "table1.csv").open())
    assert (row["precision"], row["cpu"]) == ("bfloat16", "another machine")


def test_a_dry_run_names_the_runs(tiny_cifar, short, tmp_path, capsys):
    words = ["--only", "cifar10 symmetric 0.4/ELR*", "--data.root", str(tiny_cifar), "--out", str(tmp_path / "o")]
    assert main(["reproduce", "table1", *words, "--dry-run", "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    runs = [line.partition("cifar10")[2] for line in lines if "cifar10" in line]
    assert runs == [f" symmetric 0.4/{row}, seed {seed}" for seed in (0, 1) for row in ("ELR", "ELR-cosine")]
    assert lines[-1].startswith("expected time     about ")
    assert not (tmp_path / "o").exists()


def test_a_second_seed_goes_on_being_shown_when_one_is_asked_for(tiny_cifar, short, tmp_path):
    words = ["table1", "--only", "cifar10 symmetric 0.2/CE", "--data.root", str(tiny_cifar), "--quiet"]
    for more in (["--seeds", "2"], []):
        assert main(["reproduce", *words, *more, "--resume", "--jobs", "1", "--out", str(tmp_path / "out")]) == 0
        rows = list(csv.DictReader((tmp_path / "out" / "table1" / "table1.csv").open()))
        assert [row["seed"] for row in rows] == ["0", "1"]


@pytest.mark.filterwarnings("default:table3, table4 are left out")
def test_mistakes_are_one_line(tmp_path, capsys):
    for words, message in {
        ("fig3",): "there is no figure or table 'fig3'",
        (): "which figure or table?",
        ("fig1", "--scale", "big"): "--scale must be one of laptop, paper",
        ("table1", "--only", "nothing"): "matches nothing; a name is",
        ("figA1", "--only", "nothing"): "matches nothing; figA1 cannot be divided",
        ("all", "--only", "nothing", "--labels", "f"): "matches nothing; a name is",
        ("human",): "give --labels FILE",
        ("fig1", "--data.root", str(tmp_path)): "CIFAR-10 not found",
    }.items():
        assert main(["reproduce", *words]) == 2
        *warned, said = capsys.readouterr().err.splitlines()
        assert message in said
        assert all("left out" in line for line in warned)


@pytest.mark.parametrize("scale", ["laptop", "paper"])
@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4", "table5"])
def test_no_stage_ends_before_its_rate_has_fallen(name, scale):
    """Milestones that lie beyond the end of a short stage leave it at the rate it began with."""
    for settings in {str(spec.settings): spec for spec in EXPERIMENTS[name].specs(scale)}.values():
        config = Trial(settings, 0, {}).config
        own = config.make_schedule()
        for number, stage in enumerate(config.make_method().plan(config.epochs)):
            if stage.schedule is None:
                first, last = (own(Clock(0, number, epoch, stage.epochs), 1.0) for epoch in (0, stage.epochs - 1))
                assert last < 0.2 * first, (settings.label, number)


def test_the_two_protocols_of_table_2_stand_in_columns_of_their_own(tiny_cifar, short, tmp_path, capsys):
    words = ["table2", "--only", "cifar10 symmetric 0.2/ELR+", "--data.root", str(tiny_cifar)]
    assert main(["reproduce", *words, "--out", str(tmp_path / "o"), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "| | paper, chosen on validation | paper, best on test | last epoch |" in text
    assert "| ELR+ | 94.6 | 95.8 | " in text  # line 381
    assert "| DivideMix | - | 96.1 | not run |" in text
    assert "M-DYR-H is run where the number is that method's" in text


def test_what_is_timed_when_it_is_shown_says_so_first(tiny_cifar, tmp_path, capsys):
    out = ["--out", str(tmp_path / "o"), "--data.root", str(tiny_cifar)]
    assert main(["reproduce", "tableI1", *out, "--dry-run"]) == 0
    assert "tableI1 is timed when it is shown: as long as about 12 epochs" in capsys.readouterr().out
    assert main(["reproduce", "--list", *out]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("tableI1"))
    assert "0.7 CE runs" in line
    assert main(["reproduce", "tableI1", *out, "--show"]) == 0  # runs nothing
    assert "Not run." in capsys.readouterr().out
    assert not (tmp_path / "o" / "tableI1" / "times.json").exists()


def test_watched_averages_survive_a_restart(tmp_path):
    settings = {
        "data.source": "digits", "noise.kind": "symmetric", "noise.rate": 0.4, "model.name": "small_cnn",
        "epochs": 4, "evaluate.terms": True, "evaluate.memory": 0.7, "optim.batch_size": 32, "optim.lr": 0.05,
    }  # fmt: skip
    records = {}
    for name in ("whole", "stopped"):
        records[name] = _train(settings, tmp_path / name, stop=name == "stopped")
    assert records["whole"] == records["stopped"]
    last = records["whole"][-1]
    assert last["held_accuracy"] > 0.3
    assert last["target_accuracy"] > 0.3
    assert last["clean_total"] == pytest.approx(last["clean_ce"] + last["clean_pull"], abs=1e-6)


def _train(settings, out, *, stop):
    from elr.data import load
    from elr.job.run import run_job

    class StopNow(Exception):  # noqa: N818
        pass

    class Watch:
        def batch(self, epoch, done, total):
            if stop and epoch == 3:
                raise StopNow

        def epoch(self, record, seconds):
            pass

    config = resolve(settings)
    data = load(config.data, config.noise, config.seed)
    maker = config.model_maker(data.shape, data.num_classes)
    try:
        run_job(config, data, maker, out, progress=Watch())
    except StopNow:
        run_job(config, data, maker, out, resume=True)
    return read_lines(out / "records.jsonl")


def test_settings_of_elr_plus_are_those_of_table_g2(tmp_path, capsys):
    assert main(["reproduce", "tableG2", "--out", str(tmp_path), "--quiet"]) == 0
    assert "(here" not in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "tableG2" / "tableG2.csv").open()))
    assert len(rows) == 24
    assert all(row["equal"] == "True" for row in rows)


def test_data_sets_that_are_not_here_say_so(tiny_cifar, tmp_path, capsys):
    assert main(["reproduce", "tableG1", "--data.root", str(tiny_cifar), "--out", str(tmp_path / "o"), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "| | read here | 180 | 20 | 40 | 32 x 32 | 10 |" in text
    assert text.count("not here") == 3


def test_tables_of_data_that_are_not_here_give_no_number(tmp_path, capsys):
    for name, missing in {"table3": "Clothing1M", "table4": "WebVision"}.items():
        assert main(["reproduce", name, "--data.root", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
        said = capsys.readouterr()
        assert missing in said.err
        assert not said.out
        assert not (tmp_path / "o").exists()


def test_the_linear_figures_are_drawn(tmp_path, capsys):
    assert main(["reproduce", "figA1", "--out", str(tmp_path), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "| flipped | ce | 100.0 | 0.0 |" in text  # every wrong label is memorised
    assert (tmp_path / "figA1" / "figA1.svg").exists()
