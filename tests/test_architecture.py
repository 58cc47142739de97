"""The shape of the package: who imports whom, what is public, what importing does, what the README says there is."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import elr

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "elr"
FILES = sorted(SOURCE.rglob("*.py"))

# What each part may import of ours. The doors import everything and nobody imports them.
ALLOWED = {
    "parts": ("parts",),
    "noise": ("noise",),
    "models": ("models",),
    "losses": ("losses", "parts"),
    "data": ("data", "noise", "parts"),
    "methods": ("methods", "losses", "parts", "data.stream", "noise.transition"),
    "engine": ("engine", "methods.base", "data", "parts", "report.records", "report.metrics", "report.gradients"),
    "report": ("report",),
    "audit": ("audit", "report.records", "data.table", "noise"),
    "theory": ("theory", "losses", "report"),
}
DOORS = {
    "__main__",
    "bench",
    "cli",
    "config",
    "convert",
    "demo",
    "estimator",
    "fit",
    "job",
    "pages",
    "plan",
    "reproduce",
    "run",
    "tune",
}
PUBLIC = {
    "ELRLoss",
    "NoisyLabelClassifier",
    "Run",
    "WithIndex",
    "__version__",
    "elr_gradient",
    "elr_penalty",
    "find_label_issues",
    "fit",
}


def name_of(path: Path) -> str:
    """Dotted name below the package: ``losses.elr``."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """Dotted names of all that a file imports, wherever it does so; submodules are told from names by the disk."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            assert node.module is not None
            for alias in node.names:
                place = SOURCE.parent / Path(*node.module.split("."), alias.name)
                is_module = place.is_dir() or place.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def ours(path: Path) -> set[str]:
    return {name.removeprefix("elr.") for name in imported(path) if name == "elr" or name.startswith("elr.")}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    part = name_of(path).partition(".")[0]
    if part == "__init__" or part in DOORS:
        return
    allowed = ALLOWED[part]
    for name in ours(path):
        assert any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed), f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nobody_but_the_command_line_imports_it(path: Path) -> None:
    if name_of(path).partition(".")[0] not in ("cli", "__main__"):
        assert not {name for name in ours(path) if name.partition(".")[0] == "cli"}


def test_the_rule_would_see_a_wrong_import(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def late():\n    from elr.methods import elr, base\n    import elr.config\n")
    assert ours(wrong) == {"methods.elr", "methods.base", "config"}


def test_the_engine_knows_no_method_by_name() -> None:
    names = {path.stem for path in (SOURCE / "methods").glob("*.py")} - {"__init__", "base"}
    for path in (SOURCE / "engine").glob("*.py"):
        words = {node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant)}
        assert not words & names, f"{path} names a method"


@pytest.mark.parametrize("path", sorted((SOURCE / "report").glob("*.py")), ids=name_of)
def test_reports_do_not_need_torch(path: Path) -> None:
    heads = {name.partition(".")[0] for name in imported(path)}
    assert not heads & {"torch", "torchvision", "timm", "safetensors", "sklearn"}


def test_every_part_is_named_in_the_rule() -> None:
    parts = {name_of(path).partition(".")[0] for path in FILES} - {"__init__"}
    assert parts == set(ALLOWED) | DOORS


def test_public_names_are_these() -> None:
    assert set(elr.__all__) == PUBLIC
    assert all(hasattr(elr, name) for name in PUBLIC)
    assert all(getattr(elr, name).__doc__ for name in PUBLIC if name != "__version__")


PROBE = """
import json, logging, random, sys, warnings
import numpy, torch

def state():
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": [str(part) for part in numpy.random.get_state()],
        "random": str(random.getstate()),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "handlers": [str(logging.root.handlers), str(logging.root.level), str(logging.getLogger("elr").handlers)],
        "filters": str(warnings.filters),
        "hooks": [str(sys.excepthook), str(warnings.showwarning)],
    }

before = state()
import elr
after = state()
print(json.dumps({"changed": [key for key in before if before[key] != after[key]], "modules": sorted(sys.modules)}))
"""


def test_importing_changes_nothing_and_loads_nothing_optional() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result["changed"] == []
    loaded = {name.partition(".")[0] for name in result["modules"]}
    optional = {"matplotlib", "rich", "torchvision", "timm", "pyarrow", "tkinter", "pandas", "sklearn", "optuna"}
    assert not loaded & optional
    assert "torch._dynamo" not in result["modules"]


def test_the_readme_lists_every_file_with_what_it_is() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Files\n")[2]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block is not None, "README.md has no fenced block below '## Files'"
    lines = [line.split(maxsplit=1) for line in block[1].splitlines() if line.startswith("src/elr/")]
    assert all(len(line) == 2 for line in lines), "a file has no description"
    listed = [path for path, _ in lines]
    assert sorted(listed) == sorted(path.relative_to(ROOT).as_posix() for path in FILES)


# Nothing that is loaded may run code


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """(dotted name, call) for every call of a plain name or attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def constant(call: ast.Call, keyword: str) -> object:
    return next((k.value.value for k in call.keywords if k.arg == keyword and isinstance(k.value, ast.Constant)), None)


def unsafe(tree: ast.Module) -> list[str]:
    """What in a file could execute code from data."""
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        banned = {"dill", "joblib", "cloudpickle", "shelve", "marshal", "cPickle"}
        found += [name for name in (*names, module) if name.partition(".")[0] in banned]
        if module == "pickle":
            found += [alias.name for alias in node.names if alias.name != "UnpicklingError"]
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle" and node.attr != "UnpicklingError":
            found.append(f"pickle.{node.attr}")
    for name, call in calls(tree):
        if name in ("np.load", "numpy.load") and constant(call, "allow_pickle") is not False:
            found.append(name)
        if name == "torch.load" and constant(call, "weights_only") is not True:
            found.append(name)
        if name in ("eval", "exec", "compile", "__import__", "yaml.load", "os.system"):
            found.append(name)
    return found


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_loaded_can_run_code(path: Path) -> None:
    assert unsafe(tree_of(path)) == []


def test_the_rule_would_see_unsafe_loading() -> None:
    text = """
import pickle, joblib
import numpy as np
from pickle import loads
pickle.load(f), np.load(p), np.load(p, allow_pickle=True), torch.load(p), torch.load(p, weights_only=False), eval("1")
np.load(p, allow_pickle=False), torch.load(p, weights_only=True), pickle.UnpicklingError, model.eval()
"""
    expected = ["joblib", "loads", "pickle.load", "np.load", "np.load", "torch.load", "torch.load", "eval"]
    assert sorted(unsafe(ast.parse(text))) == sorted(expected)
