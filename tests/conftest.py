"""Shared by all tests: one thread, so that sums have one order and several test processes do not fight for cores."""

import os

import pytest
import torch

from elr.engine.device import WITHOUT_AMX, bfloat16_works

if not bfloat16_works():  # tests in bfloat16 then run with what is left of it, as the error message advises
    os.environ["ONEDNN_MAX_CPU_ISA"] = WITHOUT_AMX
    bfloat16_works.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def g() -> torch.Generator:
    """A seeded generator for draws in a test."""
    return torch.Generator().manual_seed(0)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Tests that share a fixture of their module run in one process: it is made once, and some take half a minute."""
    for item in items:
        if any(fixtures[-1].scope == "module" for fixtures in item._fixtureinfo.name2fixturedefs.values()):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not tested because the machine lacks something stands in the last lines, not among the dots."""
    reasons = {str(report.longrepr[-1]) for report in terminalreporter.stats.get("skipped", [])}
    for reason in sorted(reason for reason in reasons if "on this machine" in reason):
        terminalreporter.write_line(f"NOT TESTED: {reason.removeprefix('Skipped: ')}")
