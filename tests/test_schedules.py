"""Learning rates at every epoch against literal values from the paper, and against torch's own schedulers."""

import pytest
import torch

from elr.engine.optim import OptimConfig, build_optimizer, set_lr
from elr.engine.schedule import SCHEDULES, Constant, Cosine, Linear, MultiStep, OneCycle
from elr.parts.clock import Clock


def rates(schedule, lr, epochs, batches=7):
    """Rate of every epoch; it must not change within one, nor with the stage or the pass."""
    result = []
    for epoch in range(epochs):
        here = {
            schedule(Clock(5, stage, epoch, epochs, turn, batch, batches), lr)
            for stage in (0, 1)
            for turn in (0, 1)
            for batch in (0, batches - 1)
        }
        assert len(here) == 1
        result.extend(here)
    return result


def test_multistep_of_the_paper_on_cifar_10():
    """.02, by 100 after 40 and 80 epochs, 120 in all."""
    expected = [0.02] * 40 + [2e-4] * 40 + [2e-6] * 40
    assert rates(MultiStep((40, 80), 0.01), 0.02, 120) == pytest.approx(expected, rel=1e-12)


def test_multistep_of_the_paper_on_cifar_100():
    expected = [0.02] * 80 + [2e-4] * 40 + [2e-6] * 30
    assert rates(MultiStep((80, 120), 0.01), 0.02, 150) == pytest.approx(expected, rel=1e-12)


def test_multistep_of_elr_plus():
    assert rates(MultiStep((150,), 0.1), 0.02, 200) == pytest.approx([0.02] * 150 + [0.002] * 50, rel=1e-12)


def test_multistep_without_milestones_drops_after_one_and_two_thirds():
    assert rates(MultiStep(), 0.02, 120) == rates(MultiStep((40, 80)), 0.02, 120)
    assert rates(MultiStep(), 1.0, 7) == pytest.approx([1, 1, 1, 0.01, 0.01, 1e-4, 1e-4])


def test_multistep_is_that_of_torch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.02)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [40, 80], 0.01)
    assert rates(MultiStep((40, 80), 0.01), 0.02, 120) == pytest.approx(stepped(optimizer, scheduler, 120), rel=1e-9)


def test_cosine_of_the_paper_restarts_every_10_epochs():
    """.02 down to .001, 150 epochs; the values of one period are .001 + .0095 (1 + cos(k 18 degrees))."""
    period = [0.02, 0.0195350370, 0.0181856615, 0.0160839599, 0.0134356615]
    period += [0.0105, 0.0075643385, 0.0049160401, 0.0028143385, 0.0014649630]
    assert rates(Cosine(10, 0.001), 0.02, 150) == pytest.approx(period * 15, abs=5e-10)


def test_cosine_falls_to_a_twentieth_unless_told():
    assert rates(Cosine(10), 0.02, 30) == pytest.approx(rates(Cosine(10, 0.001), 0.02, 30), rel=1e-12)
    assert min(rates(Cosine(10), 1e-4, 10)) == pytest.approx(5e-6 + 9.5e-5 * (1 - 0.9510565163) / 2, rel=1e-6)


def test_cosine_is_that_of_torch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=10, eta_min=0.001)
    assert rates(Cosine(10, 0.001), 0.02, 150) == pytest.approx(stepped(optimizer, scheduler, 150), rel=1e-9)


def stepped(optimizer, scheduler, epochs):
    """Rates of a torch scheduler that is stepped once an epoch."""
    result = []
    for _ in range(epochs):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return result


def test_constant_is_constant():
    assert rates(Constant(), 0.3, 5) == [0.3] * 5


def test_one_cycle_rises_and_falls_in_straight_lines_batch_by_batch():
    schedule = OneCycle(warmup=0.25, start=0.2, end=0.1)
    clocks = [Clock(0, epoch=e, epochs=5, batch=b, batches=20) for e in range(5) for b in range(20)]
    seen = [schedule(clock, 2.0) for clock in clocks]
    assert seen[0] == pytest.approx(0.4)
    assert seen[25] == max(seen) == pytest.approx(2.0)
    assert seen[12] == pytest.approx(0.4 + 1.6 * 12 / 25)
    assert seen[70] == pytest.approx(2.0 - 1.8 * 45 / 75)
    assert seen[99] == pytest.approx(2.0 - 1.8 * 74 / 75)
    assert OneCycle(warmup=0.0)(clocks[0], 2.0) == 2.0


def test_linear_of_co_teaching():
    """.001 for 80 epochs, then (200 - epoch) / 120 of it: the authors' alpha plan."""
    expected = [0.001] * 80 + [(200 - epoch) / 120 * 0.001 for epoch in range(80, 200)]
    assert rates(Linear(80, 0.0), 0.001, 200) == pytest.approx(expected, rel=1e-12)
    assert rates(Linear(0.4, 0.0), 0.001, 200) == pytest.approx(expected, rel=1e-12)


def test_linear_falls_towards_its_end_and_waits_for_its_milestone():
    assert rates(Linear(2, 0.5), 1.0, 6) == pytest.approx([1, 1, 1, 0.875, 0.75, 0.625])
    assert rates(Linear(0.0, 0.0), 1.0, 4) == pytest.approx([1, 0.75, 0.5, 0.25])
    assert rates(Linear(9, 0.0), 1.0, 4) == [1.0] * 4


def test_a_schedule_written_for_more_epochs_is_squeezed_into_those_there_are():
    """60 epochs with a restart every 10 in 13 epochs of 30 batches: 65 batches to a cycle, 6.5 to a step."""
    squeezed, whole = Cosine(10, 0.001, epochs=60), Cosine(10, 0.001)
    seen = [squeezed(Clock(0, epoch=e, epochs=13, batch=b, batches=30), 0.02) for e in range(13) for b in range(30)]
    assert seen == [whole(Clock(0, epoch=step * 60 // 390, epochs=60), 0.02) for step in range(390)]
    assert seen[0] == seen[65] == seen[325] == 0.02
    assert seen[-1] == pytest.approx(0.0014649630, abs=5e-10)


def test_schedules_by_name():
    names = {"constant": Constant, "multistep": MultiStep, "cosine": Cosine, "onecycle": OneCycle, "linear": Linear}
    assert names == SCHEDULES


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MultiStep((80, 40)), "milestones"),
        (lambda: MultiStep((40, 40)), "milestones"),
        (lambda: MultiStep((0,)), "milestones"),
        (lambda: Cosine(0), "period"),
        (lambda: OneCycle(warmup=1.0), "warmup"),
        (lambda: OneCycle(warmup=-0.1), "warmup"),
        (lambda: Linear(-1.0), "milestone"),
        (lambda: Linear(end=1.5), "end"),
        (lambda: Constant(epochs=0), "epochs"),
        (lambda: Cosine(10, epochs=-1), "epochs"),
    ],
)
def test_impossible_schedules_are_refused(make, words):
    with pytest.raises(ValueError, match=f"schedule.{words}"):
        make()


def test_the_rate_reaches_every_group_times_its_multiplier():
    class Slow(torch.nn.Linear):
        def optim_scales(self):
            return {"bias": (0.5, 0.0)}

    optimizer = build_optimizer(Slow(3, 2), OptimConfig(lr=0.02, weight_decay=1e-3))
    set_lr(optimizer, 0.01)
    groups = {group["params"][0].dim(): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups}
    assert groups == {2: (0.01, 1e-3), 1: (0.005, 0.0)}
