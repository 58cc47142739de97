"""Figures in files: the same numbers always give the same bytes."""

from pathlib import Path
from typing import Any

from elr.report.records import replacing


def new_figure(width: float, height: float) -> Any:
    """An empty figure that needs no display, in inches."""
    # Imported here: matplotlib takes longer to import than all that is ours.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_figure(figure: Any, stem: Path) -> list[Path]:
    """Write ``stem``.png and ``stem``.svg."""
    import matplotlib

    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    # Without a fixed salt and date, an SVG of the same numbers differs every time it is drawn.
    with matplotlib.rc_context({"svg.hashsalt": "elr"}):
        for path in paths:
            with replacing(path) as temporary:
                kind = path.suffix[1:]
                figure.savefig(temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return paths


def label_epochs(axis: Any) -> None:
    """Epochs below: there are no halves of them."""
    axis.set_xlabel("epoch")
    axis.xaxis.get_major_locator().set_params(integer=True)


def plain(axis: Any) -> None:
    """A light grid and no frame on the right and above."""
    axis.grid(alpha=0.25)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
