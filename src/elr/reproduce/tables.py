"""The paper's tables on CIFAR, and human labels: which runs they are made of, and our number beside the printed one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elr.reproduce.experiment import Finished, Results, Show, Shown, Spec, View, spread
from elr.reproduce.paper import COLUMNS_1, COLUMNS_2, TABLE_1, TABLE_2, TABLE_5, Printed
from elr.reproduce.published import of_arazo, values
from elr.reproduce.scale import Scale, Settings, double, elr_values, plus_values, single

CIFARS = ("cifar10", "cifar100")
# PAPER line 406: the epoch chosen on noisy validation, or the best epoch on the test data as the columns quoted from
# other papers have it. We show both, and the last epoch, apart.
READINGS = {"last": "last epoch", "selected": "chosen on noisy validation", "best": "best epoch on test"}
ROWS_1: dict[str, Settings] = {
    "CE": {"method.name": "ce"},
    # The paper does not say which; SL's comparison, from which it takes the method, has the hard form.
    "Bootstrap": {"method.name": "bootstrap_hard"},
    "Forward": {"method.name": "forward"},
    "GCE": {"method.name": "gce"},
    "SL": {"method.name": "sl"},
    "ELR": {"method.name": "elr"},
    "ELR-cosine": {"method.name": "elr"},
}
METHODS_2 = {
    "CE": "ce",
    "Co-teaching+": "co_teaching_plus",
    "mixup": "mixup",
    "PENCIL": "pencil",
    "MD-DYR-SH": "md_dyr_sh",  # or M-DYR-H: of_arazo
    "DivideMix": "dividemix",
    "ELR+": "elr_plus",
}
HUMAN = ("aggregate", "random1")
LABELS = "FILE"  # --labels says which


def _column(data: str, noise: str, rate: float) -> str:
    return f"{data} {noise} {rate:g}"


def _place(data: str, noise: str, rate: float) -> Settings:
    return {"data.source": data, "noise.kind": noise, "noise.rate": rate}


def table1(scale: Scale) -> list[Spec]:
    """PAPER Table 1: methods that only change the loss; one network, one schedule."""
    return [
        Spec(row, _column(data, *noise), {**_single_row(scale, row, data, *noise), **_place(data, *noise)})
        for data in CIFARS
        for noise in COLUMNS_1
        for row in ROWS_1
    ]


def _single_row(scale: Scale, row: str, data: str, noise: str, rate: float) -> Settings:
    settings = {**single(scale, data, cosine=row == "ELR-cosine"), **ROWS_1[row]}
    settings |= values(scale, settings["method.name"], data, noise, rate)
    if row.startswith("ELR"):
        settings |= elr_values(data, noise)
    if row == "Forward":  # a network to estimate T, then one trained with it: each has the whole schedule
        settings |= {"schedule.epochs": settings["epochs"], "epochs": 2 * settings["epochs"]}
    return settings


def table2(scale: Scale) -> list[Spec]:
    """PAPER Table 2: methods with two networks, selection, mixup."""
    return [
        # Tested every epoch: the best one is one of the two protocols.
        Spec(
            row,
            _column(data, *noise),
            {**_double_row(scale, _method_2(row, data, *noise), data, *noise), "evaluate.test_every": 1},
        )
        for data in CIFARS
        for noise in COLUMNS_2
        for row in METHODS_2
    ]


def _method_2(row: str, data: str, noise: str, rate: float) -> str:
    return of_arazo(data, noise, rate) if row == "MD-DYR-SH" else METHODS_2[row]


def _double_row(scale: Scale, method: str, data: str, noise: str, rate: float) -> Settings:
    settings = {**double(scale, data, method), "method.name": method, **_place(data, noise, rate)}
    settings |= values(scale, method, data, noise, rate)
    if method == "elr_plus":
        settings |= plus_values(scale, data, noise)
    if method == "pencil" and scale == "laptop":
        # Its last stage is shorter than the milestones: the schedule is squeezed into it. The authors' factor for that
        # stage belongs to their rate, which is lower than the laptop's.
        settings |= {"schedule.epochs": settings["epochs"], "method.last_lr": 1.0}
    return settings


def table5(scale: Scale) -> list[Spec]:
    """PAPER Table 5: networks, mixup and weight averaging, each on and off."""
    return [
        Spec(
            kind.label,
            _column("cifar10", "symmetric", rate),
            {
                **_double_row(scale, "elr_plus", "cifar10", "symmetric", rate),
                "method.networks": kind.networks,
                "method.averaging": "ramp" if kind.averaging else "none",
                "method.alpha": 1.0 if kind.mixup else 0.0,
            },
        )
        for rate in (0.4, 0.8)
        for kind in TABLE_5
    ]


def human(scale: Scale) -> list[Spec]:
    """Labels that people gave: not in the paper, whose noise is simulated. ``--labels FILE`` has them."""
    return [
        Spec(row, f"cifar10 human {column}", {**settings, **_people(column)})
        for column in HUMAN
        for row, settings in {
            "CE": {**single(scale, "cifar10"), "method.name": "ce"},
            "ELR": {**single(scale, "cifar10"), "method.name": "elr", **elr_values("cifar10", "symmetric")},
            "ELR+": {**double(scale, "cifar10", "elr_plus"), "method.name": "elr_plus"}
            | plus_values(scale, "cifar10", "symmetric"),
        }.items()
    ]


def _people(column: str) -> Settings:
    return {"data.source": "cifar10", "data.labels": LABELS, "data.labels_column": column}


Print = Callable[[str, str], Printed | None]  # row, column -> the paper's number


def printed_1(row: str, column: str) -> Printed | None:
    """What Table 1 has."""
    return TABLE_1[row].get(_key(column))


def chosen_2(row: str, column: str) -> Printed | None:
    """What Table 2 has for the epoch chosen on validation: ELR+ alone."""
    return TABLE_2[row].get(_key(column)) if row == "ELR+" else None


def best_2(row: str, column: str) -> Printed | None:
    """What Table 2 has for the best epoch on the test data: ELR+* and all others."""
    return TABLE_2["ELR+*" if row == "ELR+" else row].get(_key(column))


def printed_5(row: str, column: str) -> Printed | None:
    """What Table 5 has."""
    return next(cells.get(_key(column)[2]) for kind, cells in TABLE_5.items() if kind.label == row)


def _key(column: str) -> tuple[str, str, float]:
    data, noise, rate = column.split()
    return data, noise, float(rate)


def shower(printed: Mapping[str, Print], readings: Sequence[str] = ("last", "selected"), note: str = "") -> Show:
    """A way to show a table beside the printed numbers, which come from these functions by the name of their column."""

    def show(view: View) -> Shown:
        results = view.results
        rows = [
            {**_numbers(run), "column": column, "row": row, **_printed(printed, row, column)}
            for (row, column), runs in results.items()
            for run in runs
        ]
        columns = list(dict.fromkeys(column for _, column in results))
        begun = {column for (_, column), runs in results.items() if runs}
        parts = [_part(column, results, printed, readings) for column in columns if column in begun]
        if idle := [column for column in columns if column not in begun]:
            parts.append(f"No row of these was run: {', '.join(idle)}.\n")
        parts += [note] if note else []
        return Shown(rows, "\n".join(parts))

    return show


def _printed(printed: Mapping[str, Print], row: str, column: str) -> dict[str, Any]:
    found = {name: look(row, column) for name, look in printed.items()}
    means = {name: number and number.mean for name, number in found.items()}
    return means | {f"{name}_sd": number and number.sd for name, number in found.items()}


def _numbers(run: Finished) -> dict[str, Any]:
    config, summary = run.trial.config, run.summary
    tested = [record["test_accuracy"] for record in run.records if "test_accuracy" in record]
    return {
        "method": config.method.name,
        "network": run.network,
        "epochs": summary["epochs"],
        "seed": run.trial.seed,
        "last": 100 * summary["test_accuracy"],
        "selected": None if summary["selected_test_accuracy"] is None else 100 * summary["selected_test_accuracy"],
        "best": 100 * max(tested) if len(tested) > 1 else None,
        "memorized": None if summary["wrong_memorized"] is None else 100 * summary["wrong_memorized"],
        "minutes": summary["seconds"] / 60,
        "threads": summary["threads"],
        "precision": run.precision,
        "cpu": summary["facts"]["cpu"],
    }


def _part(column: str, results: Results, printed: Mapping[str, Print], readings: Sequence[str]) -> str:
    """One column of the paper's table as a table of its own: rows are methods."""
    names = list(printed)
    text = f"**{column}**\n\n| | " + " | ".join([*names, *(READINGS[key] for key in readings)])
    text += " | wrong labels memorised | epochs | seeds | arithmetic | minutes |\n"
    text += "|---" * (len(names) + len(readings) + 6) + "|\n"
    for (row, where), runs in results.items():
        if where == column:
            cells = [_cell(look(row, column)) for look in printed.values()]
            cells += _measured([_numbers(run) for run in runs], readings)
            text += f"| {row} | " + " | ".join(cells) + " |\n"
    return text


def _cell(number: Printed | None) -> str:
    if number is None:
        return "-"
    return f"{number.mean:g}" + (f" ± {number.sd:g}" if number.sd is not None else "")


def _measured(found: Sequence[dict[str, Any]], readings: Sequence[str]) -> list[str]:
    if not found:
        return ["not run", *[""] * (len(readings) + 4)]
    cells = [spread([row[key] for row in found], 2) for key in (*readings, "memorized")]
    seeds, arithmetic = (", ".join(sorted({str(row[key]) for row in found})) for key in ("seed", "precision"))
    return [*cells, f"{found[0]['epochs']}", seeds, arithmetic, spread([row["minutes"] for row in found], 1)]
