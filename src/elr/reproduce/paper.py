"""What the paper prints: the numbers of its tables, with the line of the LaTeX source they stand in."""

from typing import NamedTuple


class Printed(NamedTuple):
    """A test accuracy in %, as printed."""

    mean: float
    sd: float | None = None  # over noise realisations, where the paper has several


Column = tuple[str, str, float]  # data set, noise, rate

SYMMETRIC_1 = (0.2, 0.4, 0.6, 0.8)
ASYMMETRIC_1 = (0.1, 0.2, 0.3, 0.4)
COLUMNS_1 = [("symmetric", rate) for rate in SYMMETRIC_1] + [("asymmetric", rate) for rate in ASYMMETRIC_1]
COLUMNS_2 = [("symmetric", rate) for rate in (0.2, 0.5, 0.8, 0.9)] + [("asymmetric", 0.4)]

# PAPER Table 1, lines 325-342. "GSE" is generalized cross entropy; the last row has cosine annealing.
_TABLE_1 = """
cifar10  CE         86.98 0.12  81.88 0.29  74.14 0.56  53.82 1.04  90.69 0.17  88.59 0.34  86.14 0.40  80.11 1.44
cifar10  Bootstrap  86.23 0.23  82.23 0.37  75.12 0.56  54.12 1.32  90.32 0.21  88.26 0.24  86.57 0.35  81.21 1.47
cifar10  Forward    87.99 0.36  83.25 0.38  74.96 0.65  54.64 0.44  90.52 0.26  89.09 0.47  86.79 0.36  83.55 0.58
cifar10  GCE        89.83 0.20  87.13 0.22  82.54 0.23  64.07 1.38  90.91 0.22  89.33 0.17  85.45 0.74  76.74 0.61
cifar10  SL         89.83 0.32  87.13 0.26  82.81 0.61  68.12 0.81  91.72 0.31  90.44 0.27  88.48 0.46  82.51 0.45
cifar10  ELR        91.16 0.08  89.15 0.17  86.12 0.49  73.86 0.61  93.27 0.11  93.52 0.23  91.89 0.22  90.12 0.47
cifar10  ELR-cosine 92.12 0.35  91.43 0.21  88.87 0.24  80.69 0.57  94.57 0.23  93.28 0.19  92.70 0.41  90.35 0.38
cifar100 CE         58.72 0.26  48.20 0.65  37.41 0.94  18.10 0.82  66.54 0.42  59.20 0.18  51.40 0.16  42.74 0.61
cifar100 Bootstrap  58.27 0.21  47.66 0.55  34.68 1.1   21.64 0.97  67.27 0.78  62.14 0.32  52.87 0.19  45.12 0.57
cifar100 Forward    39.19 2.61  31.05 1.44  19.12 1.95  8.99  0.58  45.96 1.21  42.46 2.16  38.13 2.97  34.44 1.93
cifar100 GCE        66.81 0.42  61.77 0.24  53.16 0.78  29.16 0.74  68.36 0.42  66.59 0.22  61.45 0.26  47.22 1.15
cifar100 SL         70.38 0.13  62.27 0.22  54.82 0.57  25.91 0.44  73.12 0.22  72.56 0.22  72.12 0.24  69.32 0.87
cifar100 ELR        74.21 0.22  68.28 0.31  59.28 0.67  29.78 0.56  74.20 0.31  74.03 0.31  73.71 0.22  73.26 0.64
cifar100 ELR-cosine 74.68 0.31  68.43 0.42  60.05 0.78  30.27 0.86  74.52 0.32  74.20 0.25  74.02 0.33  73.73 0.34
"""

# PAPER Table 2, lines 381-400. The column ELR+ chooses the epoch on validation data, all others (and ELR+*) the best
# epoch on the test data; DivideMix at 40 % asymmetric on CIFAR-100 was run by the authors of ELR.
ROWS_2 = ("CE", "Co-teaching+", "mixup", "PENCIL", "MD-DYR-SH", "DivideMix", "ELR+", "ELR+*")
_TABLE_2 = """
cifar10  symmetric  0.2  86.8 89.5 95.6 92.4 94.0 96.1 94.6 95.8
cifar10  symmetric  0.5  79.4 85.7 87.1 89.1 92.0 94.6 93.8 94.8
cifar10  symmetric  0.8  62.9 67.4 71.6 77.5 86.8 93.2 91.1 93.3
cifar10  symmetric  0.9  42.7 47.9 52.2 58.9 69.1 76.0 75.2 78.7
cifar10  asymmetric 0.4  83.2 -    -    88.5 87.4 93.4 92.7 93.0
cifar100 symmetric  0.2  62.0 65.6 67.8 69.4 73.9 77.3 77.5 77.6
cifar100 symmetric  0.5  46.7 51.8 57.3 57.5 66.1 74.6 72.4 73.6
cifar100 symmetric  0.8  19.9 27.9 30.8 31.1 48.2 60.2 58.2 60.8
cifar100 symmetric  0.9  10.1 13.7 14.6 15.3 24.3 31.5 30.8 33.4
cifar100 asymmetric 0.4  -    -    -    -    -    72.1 76.5 77.5
"""

# PAPER Table 3, line 428: Clothing1M, ResNet-50 pretrained on ImageNet.
TABLE_3 = {
    "CE": Printed(69.10),
    "Forward": Printed(69.84),
    "GCE": Printed(69.75),
    "SL": Printed(71.02),
    "Joint-Optim": Printed(72.16),
    "DivideMix": Printed(74.76),
    "ELR": Printed(72.87),
    "ELR+": Printed(74.81),
}

# PAPER Table 4, lines 450-455: trained on mini WebVision, InceptionResNetV2. (top 1, top 5) on WebVision, on ILSVRC12.
# The column "Iterative-CV" cites Wang et al. 2018; its numbers are those of INCV (Chen et al. 2019).
TABLE_4 = {
    "D2L": ((62.68, 84.00), (57.80, 81.36)),
    "MentorNet": ((63.00, 81.40), (57.80, 79.92)),
    "Co-teaching": ((63.58, 85.20), (61.48, 84.70)),
    "Iterative-CV": ((65.24, 85.34), (61.60, 84.98)),
    "DivideMix": ((77.32, 91.64), (75.20, 90.84)),
    "ELR": ((76.26, 91.26), (68.71, 87.84)),
    "ELR+": ((77.78, 91.68), (70.29, 89.76)),
}


class Ablation(NamedTuple):
    """One of the eight configurations of Table 5."""

    networks: int
    mixup: bool
    averaging: bool

    @property
    def label(self) -> str:
        """``2 networks, mixup, averaging``."""
        return ", ".join(
            [f"{self.networks} network{'s' * (self.networks > 1)}", *["mixup"] * self.mixup]
            + ["weight averaging"] * self.averaging
        )


# PAPER Table 5, lines 477-483: CIFAR-10, symmetric noise, PreActResNet-18.
TABLE_5 = {
    Ablation(1, True, True): {0.4: Printed(93.04, 0.12), 0.8: Printed(87.23, 0.30)},
    Ablation(1, True, False): {0.4: Printed(91.05, 0.13), 0.8: Printed(81.43, 0.52)},
    Ablation(1, False, True): {0.4: Printed(92.09, 0.08), 0.8: Printed(76.50, 0.65)},
    Ablation(1, False, False): {0.4: Printed(90.83, 0.07), 0.8: Printed(72.54, 0.35)},
    Ablation(2, True, True): {0.4: Printed(93.68, 0.51), 0.8: Printed(88.62, 0.26)},
    Ablation(2, True, False): {0.4: Printed(93.51, 0.47), 0.8: Printed(84.75, 0.26)},
    Ablation(2, False, True): {0.4: Printed(92.95, 0.05), 0.8: Printed(80.13, 0.51)},
    Ablation(2, False, False): {0.4: Printed(91.86, 0.14), 0.8: Printed(73.49, 0.47)},
}

# PAPER Table G.1, lines 1124-1130: training, validation and test examples, pixels, classes.
TABLE_G1 = {
    "CIFAR-10": ("45K", "5K", "10K", "32 x 32", 10),
    "CIFAR-100": ("45K", "5K", "10K", "32 x 32", 100),
    "Clothing-1M": ("1M", "14K", "10K", "224 x 224", 14),
    "Webvision1.0": ("66K", "-", "2.5K", "256 x 256", 50),
}

# PAPER Table G.2, lines 1163-1170.
TABLE_G2 = {
    "batch size": ("128", "128", "64", "32"),
    "architecture": ("PreActResNet-18", "PreActResNet-18", "ResNet-50 (pretrained)", "InceptionResNetV2"),
    "training epochs": ("200", "250", "15", "100"),
    "learning rate (lr)": ("0.02", "0.02", "0.002", "0.02"),
    "lr scheduler": (
        "divide 10 at 150th epoch",
        "divide 10 at 200th epoch",
        "divide 10 at 7th epoch",
        "divide 10 at 50th epoch",
    ),
    "weight decay": ("5e-4", "5e-4", "1e-3", "5e-4"),
}

# PAPER Table I.1, line 1203: hours on one V100, CIFAR-10, 40 % symmetric noise.
TABLE_I1 = {"Co-teaching+": 4.4, "DivideMix": 5.4, "ELR": 1.1, "ELR+": 2.3}


def _table_1() -> dict[str, dict[Column, Printed]]:
    found: dict[str, dict[Column, Printed]] = {}
    for line in _TABLE_1.split("\n")[1:-1]:
        data, row, *numbers = line.split()
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        for (noise, rate), (mean, sd) in zip(COLUMNS_1, pairs, strict=True):
            found.setdefault(row, {})[data, noise, rate] = Printed(float(mean), float(sd))
    return found


def _table_2() -> dict[str, dict[Column, Printed]]:
    found: dict[str, dict[Column, Printed]] = {row: {} for row in ROWS_2}
    for line in _TABLE_2.split("\n")[1:-1]:
        data, noise, rate, *numbers = line.split()
        for row, number in zip(ROWS_2, numbers, strict=True):
            if number != "-":
                found[row][data, noise, float(rate)] = Printed(float(number))
    return found


TABLE_1 = _table_1()
TABLE_2 = _table_2()
