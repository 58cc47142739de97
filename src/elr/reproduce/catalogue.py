"""Every figure and table by name, and the order in which ``elr reproduce all`` works through them."""

from elr.reproduce import figures, linear, listed, tables, web
from elr.reproduce.experiment import Experiment, Spec
from elr.reproduce.scale import Scale

FOUR = {"laptop": 1, "paper": 4}


def _one_seed(scale: Scale) -> int:
    return 1  # PAPER Figures 1, 2, B.1, C.1, D.1 show one run


def _none(scale: Scale) -> list[Spec]:
    return []


EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "fig1",
            "CE memorises wrong labels, ELR does not",
            "Figure 1, lines 138-151",
            lambda scale: [figures.cross_entropy(scale), figures.regularized(scale)],
            figures.show_fractions,
            _one_seed,
        ),
        Experiment(
            "fig2",
            "what the regularizer does to the gradient",
            "Figure 2, lines 282-295",
            lambda scale: [figures.regularized(scale)],
            figures.show_gradient,
            _one_seed,
        ),
        Experiment(
            "figA1",
            "the linear model memorises, with ELR it does not",
            "Figure A.1, lines 923-937",
            _none,
            linear.show_linear,
            _one_seed,
        ),
        Experiment(
            "figB1",
            "label noise flips the sign of p - y: linear model and network",
            "Figure B.1, lines 945-958",
            lambda scale: [figures.cross_entropy(scale)],
            linear.show_entries,
            _one_seed,
        ),
        Experiment(
            "figC1",
            "KL divergence in the place of ELR's term",
            "Figure C.1, lines 973-991",
            figures.kl,
            figures.show_fractions,
            _one_seed,
        ),
        Experiment(
            "figD1",
            "targets without the regularizer overfit the labels",
            "Figure D.1, lines 993-998",
            lambda scale: [figures.cross_entropy(scale), figures.regularized(scale)],
            figures.show_targets,
            _one_seed,
        ),
        Experiment(
            "figH1",
            "sensitivity to beta, lambda and mixup's alpha",
            "Figure H.1, lines 1181-1192",
            figures.sensitivity,
            figures.show_sensitivity,
            lambda scale: FOUR[scale],
        ),
        Experiment(
            "table1",
            "CE, Bootstrap, Forward, GCE, SL, ELR, ELR with cosine",
            "Table 1, lines 314-353",
            tables.table1,
            tables.shower({"paper": tables.printed_1}),
        ),
        Experiment(
            "table2",
            "ELR+ beside Co-teaching+, mixup, PENCIL, MD-DYR-SH, DivideMix",
            "Table 2, lines 365-409",
            tables.table2,
            tables.shower(
                {"paper, chosen on validation": tables.chosen_2, "paper, best on test": tables.best_2},
                ("last", "selected", "best"),
                "MD-DYR-SH: the paper's column has the better of two methods of Arazo et al. in every cell; M-DYR-H "
                "is run where the number is that method's (CIFAR-10 at 20, 50 and 80 %, CIFAR-100 at 80 %).\n",
            ),
        ),
        Experiment(
            "table3",
            "Clothing1M",
            "Table 3, lines 415-435",
            web.table3,
            web.show_clothing,
            _one_seed,
        ),
        Experiment(
            "table4",
            "mini WebVision, tested on WebVision and on ILSVRC12",
            "Table 4, lines 438-463",
            web.table4,
            web.show_webvision,
            _one_seed,
        ),
        Experiment(
            "table5",
            "ablation: networks, mixup, weight averaging",
            "Table 5, lines 466-492",
            tables.table5,
            tables.shower({"paper": tables.printed_5}),
        ),
        Experiment(
            "tableG1",
            "data sets",
            "Table G.1, lines 1115-1136",
            _none,
            listed.show_data,
            _one_seed,
        ),
        Experiment(
            "tableG2",
            "settings of ELR+",
            "Table G.2, lines 1156-1176",
            _none,
            listed.show_settings,
            _one_seed,
        ),
        Experiment(
            "tableI1",
            "training times, as ratios",
            "Table I.1, lines 1196-1209",
            _none,
            listed.show_time,
            _one_seed,
            listed.timed_epochs,
        ),
        Experiment(
            "human",
            "CIFAR-10 with labels that people gave: CE, ELR, ELR+",
            "not in the paper",
            tables.human,
            tables.shower({}),
            _one_seed,
        ),
    )
}

# (experiment, what of it): the phenomenon first, then the numbers that most people look up, then the rest.
PRIORITY: tuple[tuple[str, str], ...] = (
    ("fig1", "*"),
    ("fig2", "*"),
    ("figC1", "*"),
    ("figD1", "*"),
    ("figA1", "*"),
    ("figB1", "*"),
    ("tableG1", "*"),
    ("tableG2", "*"),
    ("table1", "cifar10 symmetric 0.4/*"),
    ("table1", "cifar10 symmetric 0.8/*"),
    ("table1", "cifar10 asymmetric 0.4/*"),
    ("table5", "cifar10 symmetric 0.4/*"),
    ("human", "*"),
    ("table1", "cifar100 symmetric 0.4/CE"),
    ("table1", "cifar100 symmetric 0.4/ELR"),
    ("figH1", "*"),
    ("table5", "*"),
    ("table1", "*"),
    ("table2", "*"),
    ("tableI1", "*"),
)  # Tables 3 and 4 are run when they are named: few have their data
