"""The claims inside the proofs: the gradient, the lemmas, and constants that arithmetic alone decides."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

from elr.theory.claim import Claim, Found, known
from elr.theory.early import Row
from elr.theory.lab import Lab
from elr.theory.lemmas import RADIUS


def _gradient(lab: Lab) -> Found:
    rows = lab.gradients
    return Found(
        "tanh(theta^T x): error 0",
        known(rows, "printed_error"),
        [row["printed_error"] < 1e-6 for row in rows],
        "tanh(theta^T x / 2): error 0",
        [row["corrected_error"] < 1e-10 for row in rows],
        f"corrected: {max(known(rows, 'corrected_error')):.0e}",
    )


def _speed(lab: Lab) -> Found:
    speeds = known(lab.gradients, "speed")
    near = [[abs(speed - wanted) < 1e-6 for speed in speeds] for wanted in (1.0, 2.0)]
    return Found("1 (P:599)", speeds, near[0], "2", near[1])


def _repair(lab: Lab) -> Found:
    errors = known(lab.gradients, "half_error")
    return Found("error 0", errors, [error < 1e-10 for error in errors])


def _start(lab: Lab) -> Found:
    values = lab.lengths
    near = [[abs(value - wanted) < 0.6 for value in values] for wanted in (2.0, 4.0)]
    return Found("2", values, near[0], "4", near[1])


def _largest(lab: Lab, *names: str) -> list[Row]:
    """Rows of the largest size, for these sets of examples."""
    p = max(row["p"] for row in lab.norms)
    return [row for row in lab.norms if row["p"] == p and row["set"] in names]


def _compare(rows: Sequence[Row], key: str, bound: Callable[[Row], float]) -> list[bool]:
    """For each draw, whether all of its sets meet the bound."""
    met: dict[int, bool] = {}
    for row in rows:
        met[row["seed"]] = met.get(row["seed"], True) and row[key] <= bound(row)
    return list(met.values())


EVERY = ("all", "clean", "wrong")


def _gradient_norm(lab: Lab) -> Found:
    rows = _largest(lab, "all")
    note = f"steepest gradient found: {max(known(rows, 'gradient')):.3f}"
    met = _compare(rows, "x_norm", lambda row: 1.0 + 2.0 * row["sigma"])
    return Found(f"<= {1 + 2 * rows[0]['sigma']:g}", known(rows, "x_norm"), met, note=note)


def _supremum(lab: Lab) -> Found:
    rows = _largest(lab, *EVERY)
    met = _compare(rows, "found", lambda row: row["sigma"] * (2.0 + row["c"] * RADIUS))
    worst = _largest(lab, "wrong") or rows
    bound = worst[0]["sigma"] * (2.0 + worst[0]["c"] * RADIUS)
    return Found(
        f"<= sigma (2 + c tau) = {bound:.2f} on W",
        known(worst, "found"),
        met,
        note="largest value that a search found",
    )


def _supremum_proof(lab: Lab) -> Found:
    rows = _largest(lab, "wrong") or _largest(lab, "all")
    c = rows[0]["c"]
    return Found(
        f"||ZZ^T|| / |W| <= c = {c:.2f}",
        [row["z_norm"] ** 2 for row in rows],
        [row["z_norm"] ** 2 <= c for row in rows],
        f"its root <= {c:.2f}",
        [row["z_norm"] <= c for row in rows],
    )


def _mean_square(lab: Lab) -> Found:
    rows = _largest(lab, *EVERY)
    squares = known(rows, "mean_square")
    return Found(
        "<= 2",
        squares,
        _compare(rows, "mean_square", lambda row: 2.0),
        "root <= 2 + o(1); the mean is 4",
        # the root of a mean of `count` squares with mean 4 has standard deviation 2 / sqrt(2 count)
        _compare(rows, "mean_square", lambda row: (2.0 + 8.0 / math.sqrt(2.0 * row["count"])) ** 2),
    )


def _norm(key: str, printed: str, bound: Callable[[Row], float]) -> Callable[[Lab], Found]:
    def measure(lab: Lab) -> Found:
        rows, wrong = _largest(lab, *EVERY), _largest(lab, "wrong")
        shown = wrong or rows
        text = f"{printed} = {bound(shown[0]):.2f} on W"
        return Found(text, known(shown, key), _compare(rows, key, bound), note="a draw counts if C and [n] meet it too")

    return measure


def correlation_floor(delta: float, noise: float, pull: float) -> float:
    """The right side of Eq. 11 where c sigma (1 + ||theta_t - theta_0||) is `noise` and |tanh(theta^T v)| is `pull`."""
    return 0.5 * ((1.0 - delta) - pull) - noise


def _threshold(rest: tuple[float, float], pull: float) -> Callable[[Lab], Found]:
    """Does the printed limit on sigma give 1/6? Its wrong constant is 2/3; the right one is 1/3."""

    def measure(lab: Lab) -> Found:
        delta = lab.plan.base.delta
        printed, right = (
            correlation_floor(delta, first - delta / 2 - second, pull)
            for first, second in ((2 / 3, rest[0]), (1 / 3, rest[1]))
        )
        texts = [f"{first} - Delta/2" + (f" - {second:g}" if second else "") for first, second in
                 (("2/3", rest[0]), ("1/3", rest[1]))]  # fmt: skip
        ok = [[value >= 1 / 6 - 1e-12] for value in (printed, right)]
        return Found(texts[0], [printed], ok[0], texts[1], ok[1], "right side of Eq. 11 there; 1/6 is needed")

    return measure


def _small_ball(lab: Lab) -> Found:
    base = lab.plan.base
    # P:700: c_Delta = sqrt(p / |W|), and twice that because symmetrisation costs a factor 2 that P:688 leaves out
    c = 2.0 * math.sqrt(base.p / (base.n * base.delta / 2))
    printed, right = 1.0 - c / (1e-4 / (2.0 * c)), 1.0 - 0.5e-4 - c / (2e4 * c)
    sigma = 1.0 / (50.0 * (2e4 * c + NormalDist().inv_cdf(1 - 0.5e-4)))
    note = f"what the proof then needs: sigma <= {sigma:.1e}"
    return Found("10^-4 / (2 c)", [printed], [printed >= 0.9999], "2 10^4 c", [right >= 0.9999 - 1e-12], note)


CLAIMS = (
    Claim("gradient", "Eq. 10, P:545", "relative error against autograd on the loss of P:537", _gradient),
    Claim("speed", "P:599", "how fast theta = Theta_1 - Theta_2 moves, in eta times its own gradient", _speed),
    Claim("repair", "P:535", "with theta = (Theta_1 - Theta_2)/2 instead, Eq. 10 and step eta are exact", _repair),
    Claim("start", "Lemma 7, P:836", "p E|theta_0^T v|^2 on the sphere of radius 2", _start),
    Claim("gradient_norm", "Lemma 8, P:842", "||X|| / sqrt(n), which bounds every gradient", _gradient_norm),
    Claim("supremum", "Lemma 9, P:864", "rms distance of tanh(theta^T x) from tanh(theta^T v), tau = 3", _supremum),
    Claim("supremum_proof", "Lemma 9, P:878", "the norm at the end of the proof", _supremum_proof),
    Claim("mean_square", "Lemma 10, P:887", "mean of (theta_0^T z)^2", _mean_square),
    Claim("noise_norm", "Lemma 10, P:888", "||ZZ^T / |I| ||^(1/2)", _norm("z_norm", "<= c", lambda row: row["c"])),
    Claim(
        "data_norm", "Lemma 10, P:889", "||XX^T / |I| ||^(1/2)",
        _norm("x_norm", "<= 1 + sigma c", lambda row: 1.0 + row["sigma"] * row["c"]),
    ),
    Claim(
        "threshold_start", "Prop. 3, P:593", "limit of c sigma for Eq. 11 to give 1/6 at t = 0",
        _threshold((0.0, 0.0), 0.0),
    ),
    Claim(
        "threshold_later", "Prop. 3, P:616", "limit of 2 c sigma for Eq. 11 to give 1/6 at t < T",
        _threshold((0.1, 0.05), 0.1),
    ),
    Claim("small_ball", "Thm 4, P:704", "delta for a bound of .9999 at T; shown: the bound", _small_ball),
)  # fmt: skip
