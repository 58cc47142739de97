"""``elr predict`` and ``elr evaluate``: a finished run on new data, or on its own."""

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from elr.cli.flags import Parser, add_data_options, given_settings, parse
from elr.cli.progress import Watched, left_out, loading, say
from elr.config import resolve
from elr.data import Data, DataConfig, load, load_unlabelled
from elr.job.claim import changed_facts, data_facts
from elr.report.metrics import TOP, accuracy, top_k
from elr.report.records import replacing
from elr.run import Run


def predict(argv: Sequence[str]) -> int:
    """``elr predict``."""
    parser = Parser(
        prog="elr predict",
        usage="elr predict RUN INPUT [--out FILE] [--probabilities] [--data.on_bad_file skip and other flags of data]",
        description="Classify inputs with a finished run; CSV to standard output or --out. Inputs are read with the "
        "run's own column names and on_bad_file, unless flags say otherwise.",
    )
    parser.add_argument("RUN", help="run directory")
    parser.add_argument(
        "DATA", metavar="INPUT", help="folder of images, manifest, .npz with x, or a named data set (its test part)"
    )
    parser.add_argument("--out", metavar="FILE", help="write the CSV here; an existing file is not replaced")
    parser.add_argument("--probabilities", action="store_true", help="a column for every class")
    args, given = _reading_arguments(parser, argv)
    if args.out is not None:
        _check_new(Path(args.out))  # before the work, which may take long
    run = Run(args.RUN)
    with loading(quiet=args.quiet) as tell:
        found = load_unlabelled(_with_flags(run.input_config(given["data.source"]), given))
        p = run.probabilities(Watched(run.as_trained(found.inputs), tell), which=args.which)
    if found.skipped:
        say(left_out(found.skipped), args.quiet)
    header = ["id", "predicted_label", "probability", *(run.classes if args.probabilities else ())]
    rows = [
        [name, run.classes[k], f"{q[k]:.6f}", *([f"{v:.6f}" for v in q] if args.probabilities else ())]
        for name, q, k in zip(found.ids.tolist(), p, p.argmax(axis=1), strict=True)
    ]
    if args.out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([header, *rows])
        return 0
    _check_new(Path(args.out))  # again: somebody may have been quicker
    with replacing(Path(args.out)) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    print(f"{len(rows):,} predictions in {args.out}")
    return 0


def _check_new(path: Path) -> None:
    """Refuse a place where no new file can be."""
    if path.exists():
        raise FileExistsError(f"{path} exists already; choose another --out")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into")


def _reading_arguments(parser: Parser, argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Our own arguments, with those that both commands have, and settings for how data are read."""
    parser.add_argument(
        "--which", choices=["result", "last", "selected"], default="result", help="which weights [result]"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only errors and the result")
    own = {action.dest for action in parser._actions}
    columns = ("data.path_column", "data.label_column", "data.split_column", "data.id_column")
    known = add_data_options(parser, ("data.root", "data.on_bad_file", *columns))
    args = parse(parser, argv, known)
    return args, given_settings(args, own)


def _with_flags(config: DataConfig, given: Mapping[str, Any]) -> DataConfig:
    """How a run reads data, but for what flags say."""
    known = {f"data.{key}": value for key, value in asdict(config).items()}
    return resolve({**known, **given}).data


def evaluate(argv: Sequence[str]) -> int:
    """``elr evaluate``."""
    parser = Parser(
        prog="elr evaluate",
        usage="elr evaluate RUN [DATA] [--split PART] [--json] [--data.root DIR and other flags of data]",
        description="Accuracy of a finished run on labelled data, which are read with the run's own column names and "
        "on_bad_file, unless flags say otherwise.",
    )
    parser.add_argument("RUN", help="run directory")
    parser.add_argument("DATA", nargs="?", help="labelled data (default: what the run was trained on)")
    parser.add_argument(
        "--split", choices=["train", "val", "test"], help="which part [test; all of DATA if it has no test part]"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    args, given = _reading_arguments(parser, argv)
    run = Run(args.RUN)
    with loading(quiet=args.quiet) as tell:
        data = _evaluation_data(run, given)
        split = args.split or ("train" if "data.source" in given and data.test is None else "test")
        examples = getattr(data, split)
        if examples is None:
            raise ValueError(f"{data.name} has no {split} part; choose another --split")
        judged_by = "given" if examples.y_true is None else "true"
        labels = examples.y if examples.y_true is None else examples.y_true
        p = run.probabilities(Watched(run.as_trained(examples.inputs), tell), which=args.which)
    if data.skipped:
        say(left_out(data.skipped), args.quiet)
    predicted = p.argmax(axis=1)
    result: dict[str, Any] = {
        "examples": len(labels),
        "labels": judged_by,
        "accuracy": accuracy(predicted, labels),
    }
    if len(run.classes) > TOP:
        result["top5_accuracy"] = top_k(p, labels)
    result["classes"] = {}
    for k, name in enumerate(run.classes):
        if (labels == k).any():
            result["classes"][name] = float(np.mean(predicted[labels == k] == k))
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"accuracy {result['accuracy']:.2%} on {len(labels):,} examples ({data.name}, {split}, {judged_by} labels)")
    if "top5_accuracy" in result:
        print(f"top-5 accuracy {result['top5_accuracy']:.2%}")
    for name, value in sorted(result["classes"].items(), key=lambda item: item[1]):
        print(f"  {name:<24}{value:>8.1%}")
    return 0


def _evaluation_data(run: Run, given: Mapping[str, Any]) -> Data:
    config = run.config
    if "data.source" not in given:
        data = load(_with_flags(config.data, given), config.noise, config.seed)
        _check_unchanged(run, data)
        return data
    # Nothing is held out: all of these data are there to be evaluated on.
    own = replace(run.input_config(given["data.source"]), val_fraction=0.0)
    return load(_with_flags(own, given), seed=config.seed, classes=run.classes)


def _check_unchanged(run: Run, data: Data) -> None:
    """Make sure that data are what a run was trained on: in others, class numbers mean other classes."""
    # Not the transform: that of the run is used anyway, and the last digits of a mean depend on the machine.
    facts = {key: value for key, value in data_facts(data).items() if key != "transform"}
    if data.classes != run.classes:
        what = "classes"
    elif changed := changed_facts(run.facts, facts):
        key = changed[0]
        words = {"sha256": "ids or labels", "inputs_sha256": "inputs", "files_sha256": "image files"}
        what = words.get(key, f"{key} is {facts[key]!r}, was {run.facts[key]!r}")
    else:
        return
    raise ValueError(f"the data have changed since training ({what}); name what to evaluate as DATA")
