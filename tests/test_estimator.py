"""The scikit-learn door: its own checks, and what a user of scikit-learn takes for granted."""

import copy
import pickle
import random
from unittest import SkipTest

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import elr
from elr.estimator import NoisyLabelClassifier

QUICK = {"epochs": 8, "lr": 0.1, "random_state": 0}

# scikit-learn skips a check by itself where the surroundings lack something; any other skip fails here.
ALLOWED_SKIPS = {
    "SCIPY_ARRAY_API is not set": "has to be set before SciPy is imported; arrays of other libraries are not claimed",
}


@parametrize_with_checks(
    [
        NoisyLabelClassifier(epochs=20),
        NoisyLabelClassifier("early_stopping", "linear", epochs=20, lr=0.1, schedule="onecycle"),
    ]
)
def test_scikit_learn_check(estimator, check):
    try:
        check(estimator)
    except SkipTest as skip:
        if not any(known in str(skip) for known in ALLOWED_SKIPS):
            pytest.fail(f"skipped without a reason: {skip}")
        raise


@pytest.fixture(scope="module")
def blobs():
    """Three easy groups, (90, 2), in mixed order."""
    return make_blobs(90, centers=[[-4, 0], [4, 0], [0, 6]], cluster_std=0.7, random_state=0)


@pytest.fixture(scope="module")
def digits():
    """(200, 8, 8) bytes and their labels."""
    bunch = load_digits()
    return (bunch.images[:200] * 15).astype(np.uint8), bunch.target[:200]


def test_the_same_picture_is_the_same_as_bytes_and_as_other_numbers(digits):
    x, y = digits
    settings = {**QUICK, "augment": False, "model": {"name": "small_cnn", "width": 8}}
    on_bytes = NoisyLabelClassifier(**settings).fit(x, y)
    expected = on_bytes.predict_proba(x)
    for same in (x.astype(np.int64), x.astype(np.float64), x / 255):
        np.testing.assert_allclose(on_bytes.predict_proba(same), expected, atol=1e-5)
    with pytest.raises(ValueError, match="pixels lie between -1 and 239, but the model was trained on bytes"):
        on_bytes.predict(x.astype(np.float32) - 1)
    on_numbers = NoisyLabelClassifier(**settings).fit(x.astype(np.float32), y)
    with pytest.raises(ValueError, match=r"images are bytes \(uint8\), but the model was trained on other numbers"):
        on_numbers.predict(x)


def test_labels_of_an_audit_are_those_of_y(blobs):
    x, y = blobs
    issues = NoisyLabelClassifier(**QUICK).fit(x, y + 5).label_issues_
    assert issues.classes == (5, 6, 7)
    np.testing.assert_array_equal(issues["given_label"], y + 5)
    assert np.isin(issues["suggested_label"], [5, 6, 7]).all()


def test_a_model_that_is_none_is_named(blobs):
    with pytest.raises(
        ValueError, match="model must be a name, a table, a module or a function that builds one, got 3"
    ):
        NoisyLabelClassifier(model=3).fit(*blobs)


def states():
    return random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002


def test_call_of_the_readme_learns_easy_groups(blobs):
    X, y = blobs
    clf = NoisyLabelClassifier(method="elr", model="mlp", epochs=60, random_state=0).fit(X, y)
    assert clf.score(X, y) == 1.0
    assert clf.n_iter_ == len(clf.records_) == 60
    assert clf.records_[-1]["epoch"] == 60
    assert {"loss", "lr", "agreement"} <= clf.records_[-1].keys()
    assert clf.n_features_in_ == 2
    assert clf.selected_epoch_ is None


def test_elr_beats_cross_entropy_on_digits_with_four_of_ten_labels_wrong():
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, test = order[:800], order[800:]
    given = y[train].copy()
    wrong = rng.random(800) < 0.4
    given[wrong] = (given[wrong] + rng.integers(1, 10, wrong.sum())) % 10
    settings = {"epochs": 40, "lr": 0.05, "batch_size": 64, "schedule": "cosine", "random_state": 0}
    ce, robust = (NoisyLabelClassifier(method, **settings).fit(X[train], given) for method in ("ce", "elr"))
    assert robust.score(X[test], y[test]) > ce.score(X[test], y[test]) + 0.1
    memorized = [np.mean(clf.predict(X[train])[wrong] == given[wrong]) for clf in (ce, robust)]
    assert memorized[1] < memorized[0] / 2
    suspected = robust.targets_.argmax(axis=1) != given
    assert suspected[wrong].mean() > 0.7
    assert suspected[~wrong].mean() < 0.1


@pytest.mark.parametrize(
    ("names", "kind"), [(["ape", "bee", "cow"], "U"), ([7, -1, 30], "i"), ([2.0, 1.0, 5.0], "f"), ([True, False], "b")]
)
def test_labels_come_back_as_they_were_given(blobs, names, kind):
    X, y = blobs
    labels = np.array(names)[y % len(names)]
    clf = NoisyLabelClassifier(**QUICK).fit(X, labels)
    assert clf.classes_.tolist() == sorted(names)
    assert clf.predict(X).dtype.kind == kind
    assert clf.score(X, labels) > (0.95 if len(names) == 3 else 0.6)


def test_probabilities_are_on_the_simplex_in_the_order_of_the_classes(blobs):
    X, y = blobs
    clf = NoisyLabelClassifier(**QUICK).fit(X, y)
    p = clf.predict_proba(X)
    assert p.shape == (90, 3)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(X))


@pytest.mark.parametrize("method", ["elr", "elr_plus"])
def test_same_random_state_gives_the_same_bits(blobs, method):
    X, y = blobs
    settings = {**QUICK, "model": {"name": "mlp", "hidden": (16,), "dropout": 0.2}}
    first, again = (NoisyLabelClassifier(method, **settings).fit(X, y).predict_proba(X) for _ in range(2))
    other = NoisyLabelClassifier(method, **{**settings, "random_state": 1}).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_generator_is_drawn_from_once_a_fit(blobs):
    X, y = blobs
    for make in (np.random.default_rng, np.random.RandomState):
        state = make(3)
        clf = NoisyLabelClassifier(**{**QUICK, "random_state": state})
        first, second = clf.fit(X, y).predict_proba(X), clf.fit(X, y).predict_proba(X)
        assert not np.array_equal(first, second)
        again = NoisyLabelClassifier(**{**QUICK, "random_state": make(3)}).fit(X, y).predict_proba(X)
        np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("state", [None, 0, np.random.default_rng(0)])
def test_global_generators_are_left_alone(blobs, state):
    X, y = blobs
    before = states()
    model = {"name": "mlp", "dropout": 0.5}
    clf = NoisyLabelClassifier("early_stopping", model, **{**QUICK, "random_state": state}).fit(X, y)
    clf.predict_proba(X)
    assert states() == before


def test_fit_writes_nothing(blobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    NoisyLabelClassifier("early_stopping", **QUICK).fit(*blobs).predict(blobs[0])
    assert not list(tmp_path.iterdir())


def test_same_model_as_elr_fit(blobs, tmp_path):
    X, y = blobs
    clf = NoisyLabelClassifier(epochs=3, random_state=5, validation_fraction=0.1).fit(X, y)
    optim = {"lr": clf.lr, "batch_size": clf.batch_size}
    run = elr.fit("mlp", (X, y), epochs=3, seed=5, optim=optim, out=tmp_path / "run")
    np.testing.assert_array_equal(clf.predict_proba(X), run.predict_proba(X))
    assert clf.records_ == run.records


def test_targets_are_in_the_order_of_the_rows_and_see_through_wrong_labels(blobs):
    X, y = blobs
    given = y.copy()
    given[::10] = (given[::10] + 1) % 3
    clf = NoisyLabelClassifier(random_state=0).fit(X, given)
    assert clf.targets_.shape == (90, 3)
    np.testing.assert_allclose(clf.targets_.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(clf.targets_.argmax(axis=1), y)


@pytest.mark.parametrize("method", ["elr", "elr_plus", "kl"])
def test_rows_held_out_for_validation_have_nan_targets(blobs, method):
    X, y = blobs
    clf = NoisyLabelClassifier(method, validation_fraction=0.2, **QUICK).fit(X, y)
    missing = np.isnan(clf.targets_).all(axis=1)
    assert missing.sum() == 18
    np.testing.assert_array_equal(np.bincount(y[missing]), [6, 6, 6])
    np.testing.assert_array_equal(clf.targets_[~missing].argmax(axis=1), y[~missing])
    assert 1 <= clf.selected_epoch_ <= clf.n_iter_


def test_method_without_targets_lacks_the_attribute(blobs):
    assert not hasattr(NoisyLabelClassifier("ce", **QUICK).fit(*blobs), "targets_")
    with pytest.raises(NotFittedError):
        _ = NoisyLabelClassifier().targets_


def test_early_stopping_predicts_with_the_epoch_it_chose():
    X, y = make_blobs(120, centers=2, cluster_std=6.0, random_state=1)  # overlapping: more epochs do not help
    settings = {"lr": 0.05, "schedule": "constant", "random_state": 0, "validation_fraction": 0.2}
    stopped = NoisyLabelClassifier("early_stopping", epochs=12, **settings).fit(X, y)
    assert stopped.selected_epoch_ < 12
    as_long = NoisyLabelClassifier("ce", epochs=stopped.selected_epoch_, **settings).fit(X, y)
    np.testing.assert_array_equal(stopped.predict_proba(X), as_long.predict_proba(X))


@pytest.mark.parametrize("fraction", [None, 0.0, 0.4, 0.9])
@pytest.mark.parametrize("method", ["elr_plus", "early_stopping"])
def test_as_few_as_one_row_of_a_class_can_be_fitted(method, fraction):
    clf = NoisyLabelClassifier(method, validation_fraction=fraction, **QUICK)
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.1]])
    assert set(clf.fit(X[:2], ["a", "b"]).predict(X)) <= {"a", "b"}
    assert clf.selected_epoch_ is None
    clf.fit(X, ["a", "b", "b"])
    assert (clf.selected_epoch_ is not None) == (fraction == 0.4)  # .9 would take the last row of a class


def test_batch_norm_survives_a_single_row_left_over(blobs):
    X, y = blobs
    clf = NoisyLabelClassifier(model={"name": "mlp", "batch_norm": True}, **QUICK).fit(X[:33], y[:33])
    assert clf.score(X, y) > 0.9


def test_images_can_have_any_usual_shape(digits):
    X, y = digits
    settings = {**QUICK, "augment": False, "model": {"name": "small_cnn", "width": 8}}
    grey = NoisyLabelClassifier(**settings).fit(X, y)
    assert grey.score(X, y) > 0.6
    for same in (X[..., None], X[:, None]):
        clf = NoisyLabelClassifier(**settings).fit(same, y)
        np.testing.assert_array_equal(clf.predict_proba(same), grey.predict_proba(X))
    colour = np.stack([X, X // 2, 255 - X], axis=-1)
    last = NoisyLabelClassifier(**settings).fit(colour, y)
    planes = colour.transpose(0, 3, 1, 2)
    first = NoisyLabelClassifier(**settings).fit(planes, y)
    np.testing.assert_array_equal(last.predict_proba(colour), first.predict_proba(planes))
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8\); the model was fitted on \(3, 8, 8\)"):
        last.predict(X)


def test_image_network_refuses_vectors_in_one_line(blobs):
    with pytest.raises(ValueError, match=r"small_cnn needs images .* use mlp"):
        NoisyLabelClassifier(model="small_cnn", **QUICK).fit(*blobs)


def test_own_network_is_copied_never_trained(blobs):
    X, y = blobs
    net = nn.Linear(2, 3)
    before = copy.deepcopy(net.state_dict())
    clf = NoisyLabelClassifier(model=net, **QUICK).fit(X, y)
    assert clf.score(X, y) > 0.9
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    built = NoisyLabelClassifier("elr_plus", lambda: nn.Linear(2, 3), **QUICK).fit(X, y)
    assert len(built.method_.nets) == 2


def test_pipeline_and_cross_validation(blobs):
    X, y = blobs
    pipeline = make_pipeline(StandardScaler(), NoisyLabelClassifier(standardize=False, **QUICK))
    assert cross_val_score(pipeline, X * [1e3, 1e-3], y, cv=3).min() > 0.9


def test_grid_search_goes_over_plain_parameters_and_entries_of_tables(blobs):
    X, y = blobs
    pipeline = make_pipeline(StandardScaler(), NoisyLabelClassifier(**QUICK))
    grid = {
        "noisylabelclassifier__method__lam": [0.0, 3.0],
        "noisylabelclassifier__epochs": np.array([1, 8]),  # NumPy's integers are integers
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    best = search.best_estimator_[-1]
    assert len(search.cv_results_["params"]) == 4
    assert best.method == {"name": "elr", "lam": search.best_params_["noisylabelclassifier__method__lam"]}
    assert best.method_.lam == best.method["lam"]
    assert search.best_score_ > 0.9


def test_set_params_reaches_into_tables_and_leaves_shared_ones_alone():
    table = {"name": "mlp", "hidden": (8,)}
    clf = NoisyLabelClassifier(model=table).set_params(model__dropout=0.1, method="kl", method__lam=2, epochs=3)
    assert clf.model == {"name": "mlp", "hidden": (8,), "dropout": 0.1}
    assert clf.method == {"name": "kl", "lam": 2}
    assert clf.epochs == 3
    assert table == {"name": "mlp", "hidden": (8,)}
    with pytest.raises(ValueError, match="Invalid parameter 'metod'"):
        clf.set_params(metod__lam=1)


def test_clone_keeps_parameters_and_forgets_the_fit(blobs):
    clf = NoisyLabelClassifier({"name": "elr", "lam": 1.0}, schedule="cosine", **QUICK).fit(*blobs)
    twin = clone(clf)
    assert twin.get_params() == clf.get_params()
    with pytest.raises(NotFittedError):
        twin.predict(blobs[0])


@pytest.mark.parametrize("method", ["ce", "elr", "elr_plus", "kl", "early_stopping"])
def test_fitted_estimator_can_be_pickled_and_copied(blobs, method):
    X, y = blobs
    clf = NoisyLabelClassifier(method, **{**QUICK, "epochs": 2}).fit(X, y)
    for twin in (pickle.loads(pickle.dumps(clf)), copy.deepcopy(clf)):  # noqa: S301  our own bytes
        np.testing.assert_array_equal(twin.predict_proba(X), clf.predict_proba(X))
        assert twin.fit(X, y).n_iter_ == 2


def test_column_names_are_remembered_and_checked(blobs):
    arrow = pytest.importorskip("pyarrow")
    X, y = blobs
    table = arrow.table({"height": X[:, 0], "width": X[:, 1]})
    clf = NoisyLabelClassifier(**QUICK).fit(table, y)
    assert clf.feature_names_in_.tolist() == ["height", "width"]
    np.testing.assert_array_equal(clf.predict(table), NoisyLabelClassifier(**QUICK).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(table.rename_columns(["height", "depth"]))


def test_verbose_shows_a_line_for_each_epoch(blobs, capsys):
    NoisyLabelClassifier(verbose=True, **{**QUICK, "epochs": 2}).fit(*blobs)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "elr  epoch 2/2  loss" in lines[1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "erl"}, "unknown method 'erl'; did you mean 'elr'"),
        ({"method": {"name": "elr", "lamb": 1}}, "unknown option 'method.lamb'; did you mean 'method.lam'"),
        ({"model": "mpl"}, "unknown model 'mpl'; did you mean 'mlp'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": -1.0}, "lr must be positive, got -1.0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"validation_fraction": 1.0}, r"validation_fraction must lie in \[0, 1\), got 1.0"),
        ({"random_state": -1}, "random_state must be a whole number from 0 on, .* got -1"),
        ({"random_state": "x"}, "random_state must be .* got 'x'"),
        ({"standardize": "maybe"}, "standardize must be true or false, got 'maybe'"),
    ],
)
def test_wrong_parameter_is_refused_in_fit_with_one_line(blobs, parameters, message):
    with pytest.raises(ValueError, match=message) as error:
        NoisyLabelClassifier(**parameters).fit(*blobs)
    assert "\n" not in str(error.value)


def test_one_class_is_refused_by_its_name():
    with pytest.raises(ValueError, match="one class only, 'cat'"):
        NoisyLabelClassifier().fit([[0.0], [1.0]], ["cat", "cat"])
