"""The early stage, measured: one row of numbers for each data set, from theta_0 to theta_T."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elr.theory.dynamics import REACHED, SPEED, Form, Path, coefficients, descend_to_t, fresh_accuracy, mean_over
from elr.theory.dynamics import project as project_on
from elr.theory.mixture import Mixture

Row = dict[str, Any]
CONSTANT = 3.0  # a value of c for which the proof of Eq. 11 goes through at sigma <= 1 (docs/theory.md)


def early_rows(
    data: Mixture, theta0: Tensor, eta: float, form: Form, delta: float, seeds: Sequence[int], *, sign: float = 1.0
) -> list[Row]:
    """Run to T and measure all that Propositions 3 and 5 and Theorem 4 speak of.

    Args:
        data: S data sets.
        theta0: start, (S, p).
        eta: step size.
        form: which reading of the dynamics.
        delta: the noise level that the data are said to have.
        seeds: of the data sets, for the rows.
        sign: -1 climbs instead.
    """
    path = descend_to_t(data, theta0, eta, form, sign=sign)
    n, p = data.x.shape[1:]
    columns = {**_travel(path, data.sigma, delta, eta, form), **_endpoints(data, path, form)}
    lists = {key: values.tolist() for key, values in columns.items()}
    setting = {"n": n, "p": p, "sigma": data.sigma, "delta": delta, "eta": eta, "form": form}
    return [
        {**setting, "seed": seed, **{key: _number(values[place]) for key, values in lists.items()}}
        for place, seed in enumerate(seeds)
    ]


def _number(value: float) -> float | None:
    """JSON has no NaN: what could not be measured is None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _travel(path: Path, sigma: float, delta: float, eta: float, form: Form) -> dict[str, Tensor]:
    reached = path.time > 0
    before = path.along[:-1]
    # PAPER Eq. 11, solved for the least c that makes it true at every t < T
    inner = 0.5 * ((1.0 - delta) - torch.tanh(before).abs())
    room = sigma * (1.0 + path.moved[:-1])
    start = path.along[0]
    return {
        "start": start,
        "T": torch.where(reached, path.time.double(), torch.nan),
        "crossing": torch.where(reached, _crossing(path), torch.nan),
        # P:562: theta^T v cannot grow faster than the step times the bound of Lemma 8
        "least_T": ((REACHED - start) / (SPEED[form] * eta * (1.0 + 2.0 * sigma))).clamp_min(1.0),
        "correlation": _extreme(path.correlation, torch.amin),
        "constant": _extreme((inner - path.correlation) / room, torch.amax),
        "constant_unnormalised": _extreme((inner - path.progress) / room, torch.amax),
        "gradient": _extreme(path.slope, torch.amax),
        "moved": _before_t(path),
        "moved_T": torch.where(reached, (path.last - path.first).norm(dim=1), torch.nan),
        "norm_T": torch.where(reached, path.last.norm(dim=1), torch.nan),
    }


def _crossing(path: Path) -> Tensor:
    """T as a real number: where the straight line between two steps passes 1/10. T itself is rounded up."""
    last = path.time.clamp_min(1)
    after, ahead = (path.along.gather(0, (last - back)[None])[0] for back in (0, 1))
    return last - (after - REACHED) / (after - ahead)


def _extreme(table: Tensor, pick: Any) -> Tensor:
    """Least or greatest value of each data set over t < T."""
    fill = math.inf if pick is torch.amin else -math.inf
    found: Tensor = pick(torch.where(table.isnan(), fill, table), dim=0)
    return found


def _before_t(path: Path) -> Tensor:
    """Greatest ||theta_t - theta_0|| over t < T, or over all t where T was not reached."""
    steps = torch.arange(len(path.moved))[:, None]
    inside = (steps < path.time) | (path.time == 0)
    return torch.where(inside & ~path.moved.isnan(), path.moved, 0.0).amax(dim=0)


def _endpoints(data: Mixture, path: Path, form: Form) -> dict[str, Tensor]:
    reached = path.time > 0
    wrong, clean = data.wrong, ~data.wrong
    found: dict[str, Tensor] = {"wrong_share": wrong.double().mean(dim=1)}
    ends = {}
    for name, theta in (("0", path.first), ("T", path.last)):
        valid = reached | (name == "0")
        squares = coefficients(data, theta, form) ** 2
        ends[name] = squares
        right = (project_on(data, theta).sign() == data.truth).double()
        values = {
            "accuracy": mean_over(right, wrong),  # the paper's A-hat
            "phi": fresh_accuracy(data, theta),
            "clean_square": mean_over(squares, clean),
            "wrong_square": mean_over(squares, wrong),
        }
        found |= {f"{key}_{name}": torch.where(valid, value, torch.nan) for key, value in values.items()}
    fell, rose = ends["T"] < ends["0"], ends["T"] > ends["0"]
    cosine = (path.last * data.v).sum(dim=1) / path.last.norm(dim=1)
    shares = {"clean_fell": mean_over(fell, clean), "wrong_rose": mean_over(rose, wrong), "cosine_T": cosine}
    return found | {key: torch.where(reached, value, torch.nan) for key, value in shares.items()}
