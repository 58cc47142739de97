"""The audit of a run directory."""

from pathlib import Path

from elr.audit.evidence import read_evidence
from elr.audit.issues import LabelIssues, label_issues
from elr.audit.threshold import Cut
from elr.audit.truth import Found, found_of
from elr.noise import NoiseManifest
from elr.report.records import read_json

WHERE_DATA_SAY = Cut()


def audit_run(path: Path, cut: Cut = WHERE_DATA_SAY) -> LabelIssues:
    """Judge every label a run was given, from the files it left. Nothing is written."""
    if not (path / "config.toml").is_file():
        raise FileNotFoundError(f"{path} is not a run: it has no config.toml")
    if not (path / "classes.json").is_file():
        raise FileNotFoundError(f"{path} is only half written: it has no classes.json")
    classes = read_json(path / "classes.json")
    if not isinstance(classes, list) or not all(isinstance(name, str | int) for name in classes):
        raise ValueError(f"{path / 'classes.json'} is damaged: it holds no list of names")
    rows, evidence = read_evidence(path, tuple(classes))
    if evidence.belief.shape[1] != len(classes):
        raise ValueError(f"{path} is damaged: evidence of {evidence.belief.shape[1]} classes, {len(classes)} names")
    if len(classes) < 2:
        raise ValueError(f"{path} has one class only: there is no other label to suggest")
    return cut.of(label_issues(rows, evidence.belief, evidence, cut.threshold))


def found_in_run(issues: LabelIssues, path: Path) -> Found | None:
    """How good the audit of a run was, if noise was injected into its labels; None if the truth is not known."""
    if not (path / "noise.npz").is_file():
        return None
    noise = NoiseManifest.load(path)
    true = [noise.classes[k] for k in noise.old.tolist()]
    return found_of(issues, noise.ids.tolist(), noise.old != noise.new, true)
