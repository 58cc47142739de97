"""The generated parts of the pages, from the source and from result files. ``make docs`` writes them."""

from collections.abc import Callable

from docs.render import audit, comparison, reproduction, runs, source, theory
from docs.render.markdown import ROOT

PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"digits": runs.digits, "tree": source.tree},
    "docs/audit.md": {"ranking": audit.ranking, "audit_bench": audit.audit_bench},
    "docs/fastnet.md": {"curve": runs.curve},
    "docs/marks.md": {"marks": runs.marks},
    "docs/methods.md": {
        "registry": source.registry,
        "bench_digits": comparison.bench_digits,
        "bench_cifar10": comparison.bench_cifar10,
    },
    "docs/reproduction.md": {"paper_scale": reproduction.paper_scale, "experiments": reproduction.experiments},
    "docs/theory.md": {
        "claims": theory.claims,
        "settings": theory.settings,
        "starts": theory.starts,
        "thresholds": theory.thresholds,
    },
}


def render(name: str) -> str:
    """A page with its generated parts up to date."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for mark, part in PARTS[name].items():
        text = between(text, mark, part())
    return text


def between(text: str, name: str, body: str) -> str:
    """Replace what stands between the two marks of this name."""
    before, mark, rest = text.partition(f"<!-- {name}:begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not mark or not end:
        raise ValueError(f"there are no marks for {name}")
    return before + mark + body + end + after
