"""Write all generated parts."""

from docs.render import PARTS, render
from docs.render.comparison import result_files
from docs.render.markdown import ROOT
from elr.bench.table import read_csv
from elr.report.comparison import draw_comparison

for name in ("bench_digits", "bench_cifar10"):
    rows = [row for path in result_files(name) for row in read_csv(path)]
    draw_comparison(rows, ROOT / "docs" / "figures" / name)
for name in PARTS:
    (ROOT / name).write_text(render(name), encoding="utf-8")
