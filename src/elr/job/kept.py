"""What a finished run keeps for the audit and its page."""

from pathlib import Path

import numpy as np

from elr.audit.evidence import Evidence, Rows, in_order
from elr.audit.issues import label_issues
from elr.audit.suspects import Features, kept_rows, write_features
from elr.engine.features import features_of
from elr.engine.train import Job, Outcome


def gathered(job: Job, outcome: Outcome) -> tuple[Rows, Evidence] | None:
    """Every example that training learnt from or chose by, and what was seen of it; None if nothing was to be kept."""
    if outcome.witness is None:
        return None
    facts = {"epochs": len(outcome.records), "peak": outcome.selected_epoch}
    facts |= {"clean_val": True} if job.data.clean_val else {}
    evidence = Evidence(**outcome.witness.gather(job.method.belief()), facts=facts)
    parts = {"train": job.data.train} | ({} if job.data.val is None else {"val": job.data.val})
    ids = [str(id_) for part in parts.values() for id_ in part.ids.tolist()]
    sources = [name for name, part in parts.items() for _ in range(len(part))]
    rows = Rows(ids, sources, np.concatenate([part.y for part in parts.values()]), job.data.classes)
    return in_order(rows, evidence)


def keep_features(out: Path, job: Job, rows: Rows, evidence: Evidence) -> None:
    """Features of suspects and of a sample, so that a page can show what a suspect looks like to the network."""
    issues = label_issues(rows, evidence.belief, evidence)
    kept = kept_rows(issues["label_quality"], issues["is_label_issue"], job.seed)
    device = job.runtime.resolved_device()
    layout = job.runtime.layout(device)
    values = None
    for name in ("train", "val"):
        examples = getattr(job.data, name)
        place = np.flatnonzero(np.array(rows.source)[kept] == name)
        if len(place) == 0:
            continue
        row_of = {str(id_): row for row, id_ in enumerate(examples.ids.tolist())}
        own = np.array([row_of[rows.ids[k]] for k in kept[place]])
        # Fails for a compiled network, or for one that does not end in a linear layer.
        found = features_of(job.method, job.data, examples, own, device, channels_last=layout)
        if found.shape[:1] != own.shape or found.ndim != 2:
            raise ValueError(f"the last linear layer sees {found.shape} for {len(own)} examples")
        values = np.zeros((len(kept), found.shape[1]), dtype=np.float16) if values is None else values
        values[place] = found
    assert values is not None
    write_features(out, Features(kept, values))
