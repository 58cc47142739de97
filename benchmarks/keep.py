"""Keep what ``elr reproduce`` found: figures and tables, and what finished runs recorded, without weights and paths.

    python -m benchmarks.keep OUT      copies from OUT, the --out of elr reproduce, to results/reproduce

The records are enough for the queue to go on elsewhere: copy results/reproduce/runs to OUT/runs.
"""

import argparse
import re
import shutil
from pathlib import Path

from elr.report.records import write_text
from elr.reproduce.catalogue import EXPERIMENTS

RESULTS = Path("results/reproduce")
RECORDS = ("records.jsonl", "timing.jsonl")
LOOKS = ("evaluate.json", "transition.csv")  # of some runs: elr evaluate --json, and T
PATHS = re.compile(r'(?<=[ "])/[^ "]+')  # in a command, as it was typed
PLACES = re.compile(r"^(root|labels|weights) = .*\n", re.MULTILINE)  # in a configuration


def main() -> None:
    """Copy what is finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    for name in EXPERIMENTS:
        if (out / name).is_dir():
            shutil.copytree(out / name, RESULTS / name, dirs_exist_ok=True)
    for summary in sorted(out.glob("runs/*/summary.json")):
        run, kept = summary.parent, RESULTS / "runs" / summary.parent.name
        kept.mkdir(parents=True, exist_ok=True)
        write_text(kept / "summary.json", PATHS.sub("PATH", summary.read_text(encoding="utf-8")))
        write_text(kept / "config.toml", PLACES.sub("", (run / "config.toml").read_text(encoding="utf-8")))
        for record in (*RECORDS, *(look for look in LOOKS if (run / look).is_file())):
            shutil.copyfile(run / record, kept / record)


if __name__ == "__main__":
    main()
