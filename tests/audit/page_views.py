"""Runs to show: real digits as pictures, everything else small and known."""

import io
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from elr.report.view import Bin, Calibration, Drawn, Neighbour, Picture, RunView, Suspect

DIGITS = tuple("0123456789")
HOSTILE = "</script><img src=x onerror=alert(1)>"


@cache
def images() -> np.ndarray:
    return (255 * load_digits().images / 16).astype(np.uint8)


@cache
def digit(k: int, side: int = 32) -> Picture:
    """The k-th of 1,797 handwritten digits, enlarged."""
    file = io.BytesIO()
    Image.fromarray(images()[k]).resize((side, side), Image.Resampling.BICUBIC).save(file, "PNG")
    return Picture(file.getvalue(), side, side)


def suspects(count: int, classes: Sequence[str] = DIGITS, *, side: int = 32, near: int = 2) -> tuple[Suspect, ...]:
    """Surest first; given and suggested labels go round."""
    result = []
    for k in range(count):
        given, suggested = classes[k % len(classes)], classes[(k + 1 + k % 3) % len(classes)]
        agreeing = [Neighbour(f"n{j}", given, digit((k + 300 * j + 300) % 1797, side)) for j in range(near)]
        disagreeing = [Neighbour(f"m{j}", suggested, digit((k + 300 * j + 1000) % 1797, side)) for j in range(near)]
        quality = 0.001 + 0.4 * k / count
        evidence = {"target_given": quality, "mean_margin": -1.25, "first_agreement": 0, "learnt": 3, "peak_loss": None}
        result.append(
            Suspect(
                f"e{k}",
                given,
                suggested,
                1.0 - quality,
                quality,
                picture=digit(k, side),
                agreeing=tuple(agreeing),
                disagreeing=tuple(disagreeing),
                evidence=evidence,
            )
        )
    return tuple(result)


def drawn(count: int, classes: Sequence[str] = DIGITS, *, side: int = 32) -> tuple[Drawn, ...]:
    """Every other row is a suspect too, the last first."""
    both = suspects(count, classes, side=side, near=0)
    rows = [Drawn(s.id, s.given_label, s.suggested_label, s.picture) for s in both[::-2]]
    other = [Drawn(f"d{k}", classes[k % len(classes)], classes[0], digit(1796 - k, side)) for k in range(count)]
    return tuple(row for pair in zip(rows, other, strict=False) for row in pair)[:count]


def audit(classes: Sequence[str] = DIGITS, *, found: int = 12_934, examples: int = 50_000, **other):
    """What ``LabelIssues.summary`` gives."""
    health = [
        {"label": name, "given": 100 + k, "found": 30 - k, "wrong": (30 - k) / (100 + k), "missed": 1.5 * k}
        for k, name in enumerate(classes)
    ]
    return {
        "examples": examples,
        "found": found,
        "threshold": 0.5,
        "expected_precision": 0.91 if found else None,
        "expected_recall": 0.8 if found else None,
        "noise_rate": 0.25,
        "noise_range": [0.2, 0.31],
        "noise_rate_rests_on": "labels that are confused the same way in all examples of a class",
        "classes": list(classes),
        "transition": [],
        "confused_pairs": [],
        "class_health": health,
        "warnings": [],
        **other,
    }


def confusion(classes: Sequence[str] = DIGITS) -> list[list[float]]:
    """Every class is taken for the next one, and a little for all others."""
    C = len(classes)
    return [[90.0 if j == k else 8.0 + j if k == (j + 1) % C else 0.1 for k in range(C)] for j in range(C)]


def records(epochs: int = 12, *, truth: bool = True) -> list[dict[str, float]]:
    """What a run of ELR records."""
    result = []
    for epoch in range(1, epochs + 1):
        part = epoch / epochs
        record = {"epoch": epoch, "loss": 1.0 - part, "ce": 2.0 - part, "penalty": -3.0 * part, "agreement": part}
        record |= {"train_agreement": 0.7 * part, "val_accuracy": 0.6 * part}
        if truth:
            known = {"clean_correct": part, "wrong_correct": 0.7, "wrong_memorized": 0.2, "wrong_other": 0.1}
            record |= {**known, "test_accuracy": 0.9 * part}
        result.append(record)
    return result


def view(count: int = 30, classes: Sequence[str] = DIGITS, **other) -> RunView:
    """A run that has everything."""
    whole = RunView(
        "0123456789abcdef",
        "digits",
        "runs/digits",
        tuple(classes),
        {"method": "elr", "test_accuracy": 0.98, "epochs": 12, "seconds": 9.1, "selected_epoch": 8},
        records(),
        audit(classes),
        confusion(classes),
        Calibration("Validation predictions against given labels.", (Bin(0.8, 1.0, 0.95, 0.9, 120),)),
        suspects(count, classes) if count else (),
        {"data": "digits", "noise": "sha256 7f94c1", "commit": "882661c"},
        {"optim.lr": "0.05"},
    )
    return replace(whole, **other)
