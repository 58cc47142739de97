"""Where to cut the list of labels: by the precision expected of it, or by how many rows a person can check.

By itself an audit flags a label that is more likely wrong than right and is not the most likely class either, so that
a flag always comes with something better. A list that is asked for by its length or its precision is a list to look
through: it holds the labels of lowest quality whatever they are, since above a quality of .5 the label itself is always
the most likely class, and no list could grow beyond that.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elr.audit.issues import LabelIssues

Floats = npt.NDArray[np.floating]
LOW, HIGH = float(np.nextafter(0.0, 1.0)), float(np.nextafter(1.0, 0.0))  # thresholds that flag none, and all


class Cut(NamedTuple):
    """How a list is to be cut; one of these at most, or where the data say."""

    threshold: float | None = None
    precision: float | None = None
    budget: int | None = None

    def of(self, issues: LabelIssues) -> LabelIssues:
        """The audit with the list that precision or budget ask for; a threshold was asked for while judging."""
        quality = issues["label_quality"]
        if self.precision is not None:
            return below(issues, for_precision(quality, self.precision))
        if self.budget is not None:
            return below(issues, for_budget(quality, self.budget))
        return issues

    def words(self) -> list[str]:
        """As the options of a command."""
        return [
            word for name, value in self._asdict().items() if value is not None for word in (f"--{name}", str(value))
        ]


def for_precision(quality: Floats, precision: float) -> float:
    """Threshold of the longest list of lowest quality whose expected precision, the mean of 1 - q, is high enough."""
    if not 0.0 < precision < 1.0:
        raise ValueError(f"precision must lie between 0 and 1, got {precision:g}")
    doubt = 1.0 - np.sort(quality)
    expected = np.cumsum(doubt) / np.arange(1, len(doubt) + 1)  # falls, because the doubt does
    return _cut(quality, int((expected >= precision).sum()))


def for_budget(quality: Floats, budget: int) -> float:
    """Threshold below which at most ``budget`` rows lie, the ones of lowest quality; rows that tie are not parted."""
    if budget < 1:
        raise ValueError(f"budget must be at least 1 row, got {budget}")
    return _cut(quality, min(budget, len(quality)))


def below(issues: LabelIssues, threshold: float) -> LabelIssues:
    """The same audit with every label flagged whose quality is below the threshold."""
    flags = {"is_label_issue": issues["label_quality"] < threshold}
    return replace(issues, columns={**issues.columns, **flags}, threshold=threshold)


def _cut(quality: Floats, count: int) -> float:
    """A number with ``count`` qualities below it, or fewer where they tie."""
    if count == len(quality):
        return HIGH
    return min(max(float(np.sort(quality)[count]), LOW), HIGH)
