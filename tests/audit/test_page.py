"""The page of a run as text: what it says, what it escapes, what it weighs."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from page_views import DIGITS, HOSTILE, audit, confusion, digit, drawn, records, suspects, view

from elr.report.markup import data_block, number, percent
from elr.report.page import page, write_page
from elr.report.sections import SUREST
from elr.report.view import Neighbour, RunView, Suspect

VOID = {"meta", "link", "img", "input", "br"}


class Outline(HTMLParser):
    """Elements with their attributes, all text outside scripts and styles, and whether what opens is closed."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.elements, self.words, self.scripts, self._open = [], [], {}, []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append((tag, dict(attributes)))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, words):
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script":
            self.scripts[attributes.get("id", "code")] = words
        elif tag != "style":
            self.words.append(words)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))

    @property
    def data(self):
        return json.loads(self.scripts["data"])

    def count(self, tag):
        return sum(own == tag for own, _ in self.elements)


def outline(*runs):
    return Outline(page(runs))


# What it says


def test_the_first_words_are_what_happened():
    found = outline(view())
    assert "12,934 of 50,000 labels look wrong; here are the 20 surest." in found.text
    assert "91.0 % of these are expected to be wrong indeed" in found.text
    assert found.text.index("12,934") < found.text.index("What was learnt")


def test_the_noise_rate_says_what_it_rests_on():
    words = outline(view()).text
    assert "Estimated share of wrong labels: 25.0 %; other assumptions give 20.0 % to 31.0 %" in words
    assert "rests on assumptions, not a confidence interval" in words
    assert "labels that are confused the same way in all examples of a class" in words


def test_warnings_stand_right_after_the_first_sentence():
    words = outline(view(audit=audit(warnings=["targets have collapsed"]))).text
    assert words.index("Beware: targets have collapsed.") < words.index("Estimated share")


def test_one_label_that_looks_wrong_is_spoken_of_in_the_singular():
    words = outline(view(1, audit=audit(found=1, examples=100))).text
    assert "1 of 100 labels looks wrong; here is the surest." in words


def test_nothing_found_is_said_and_nothing_is_queued():
    found = outline(view(0, audit=audit(found=0)))
    assert "None of the 50,000 labels looks wrong." in found.text
    assert "There is nothing to review." in found.text
    assert found.data["runs"] == []


def test_rows_drawn_are_queued_without_what_the_audit_thinks_even_where_nothing_looks_wrong():
    found = outline(view(0, audit=audit(found=0), drawn=drawn(4)))
    rows = found.data["runs"][0]["drawn"]
    assert [row["id"] for row in rows] == [row.id for row in drawn(4)]
    assert {key for row in rows for key in row} == {"id", "given", "suggested", "picture", "text"}
    assert "There is nothing to review." not in found.text


def test_of_many_classes_the_likely_ones_of_rows_drawn_have_keys_too():
    classes = [f"class {k}" for k in range(12)]
    one = outline(view(1, classes, audit=audit(classes), confusion=confusion(classes), drawn=drawn(6, classes)))
    run = one.data["runs"][0]
    assert {row["given"] for row in run["drawn"]} <= set(run["likely"])


@pytest.mark.parametrize(("found", "cut"), [(30, False), (31, True)])
def test_a_queue_that_is_cut_is_told_with_the_command_for_all(found, cut):
    run = outline(view(30, path="my runs/a", audit=audit(found=found))).data["runs"][0]
    told = ["These are the 30 surest of 31 that look wrong; ", "elr report 'my runs/a' --suspects 31", " shows all."]
    assert run["about"]["suspects"] == (told if cut else [])
    assert run["more"] == found - 30


def test_without_an_audit_the_page_says_what_it_lacks():
    bare = view(0, audit=None, confusion=None, calibration=None, lacks=("evidence: it was trained without",))
    words = outline(bare).text
    assert "Labels were not audited" in words
    assert "What this page lacks:" in words
    assert "evidence: it was trained without" in words
    assert "Without an audit nothing is known about single classes." in words


def test_a_run_that_has_nothing_yet_is_still_a_page():
    words = outline(RunView("key", "new", "runs/new", ("a", "b"))).text
    assert "The run is not finished." in words
    assert "No epoch was recorded." in words


def test_a_page_needs_a_run():
    with pytest.raises(ValueError, match="a page needs a run"):
        page([])


def test_the_surest_are_there_without_javascript():
    found = outline(view(30))
    images = [attributes for tag, attributes in found.elements if tag == "img"]
    assert len(images) == SUREST
    assert images[0]["alt"] == "example e0, labelled 0"


def test_figure_1_is_drawn_where_the_truth_is_known():
    words = outline(view()).text
    assert "these are the curves of Figure 1" in words
    assert "memorised: the wrong label: 20.0 %" in words  # in the tooltips


def test_without_the_truth_the_curves_are_called_an_estimate():
    words = outline(view(records=records(truth=False))).text
    assert "The truth is not known here, so the curves of Figure 1 of the paper are estimated" in words
    assert "memorised: the wrong label" not in words
    assert "validation labels predicted" in words


@pytest.mark.parametrize(
    ("keys", "drawn"), [(("ce", "penalty", "agreement"), 3), (("ce",), 1), (("loss",), 1), ((), 0)]
)
def test_the_terms_that_exist_are_drawn(keys, drawn):
    kept = [{key: value for key, value in record.items() if key in ("epoch", *keys)} for record in records()]
    section = page([view(records=kept)]).partition('<section id="terms">')[2].partition("</section>")[0]
    assert section.count("<figure>") == drawn


def test_an_epoch_without_a_number_is_a_gap_in_the_curve():
    broken = records()
    broken[3]["ce"], broken[5]["ce"] = math.nan, math.inf
    del broken[8]["penalty"]
    source = page([view(records=broken)])
    assert "nan" not in source.partition('<section id="terms">')[2].partition("</section>")[0]
    Outline(source)


def test_one_epoch_and_one_thousand_can_be_drawn():
    for epochs in (1, 1000):
        source = page([view(records=records(epochs))])
        assert source.count('class="hit"') < 6 * 120 + len(DIGITS) ** 2 + 10
        Outline(source)


def test_every_chart_has_a_name_for_those_who_do_not_see_it():
    charts = [attributes for tag, attributes in outline(view()).elements if attributes.get("class") == "chart"]
    assert len(charts) == 3 + 3 + 1 + 1
    assert all(chart["role"] == "img" and len(chart["aria-label"]) > 20 for chart in charts)


def test_many_classes_are_a_table_of_pairs_instead_of_a_map():
    classes = [f"class {k}" for k in range(100)]
    many = view(20, classes, audit=audit(classes), confusion=confusion(classes))
    section = page([many]).partition('<section id="confusion">')[2].partition("</section>")[0]
    assert "too many for a map" in section
    assert section.count("<tr>") == 1 + 20
    assert "class 98" in section  # the pair confused most
    assert 'class="chart"' not in section


def test_one_class_pair_is_enough():
    two = suspects(5, ("cat", "dog"))
    pair = tuple(replace(suspect, given_label="cat", suggested_label="dog") for suspect in two)
    found = outline(view(0, ("cat", "dog"), suspects=pair))
    assert {(s["given"], s["suggested"]) for s in found.data["runs"][0]["suspects"]} == {("cat", "dog")}


def test_a_class_without_labels_has_no_share_of_wrong_ones():
    health = [{"label": "a", "given": 0, "found": 0, "wrong": None, "missed": 0.0}]
    Outline(page([view(audit=audit(class_health=health))]))


def test_several_runs_stand_side_by_side_and_what_differs_is_marked():
    other = view(10, key="fedcba", name="again", config={"optim.lr": "0.1"}, summary={"method": "ce"})
    found = outline(view(), other)
    assert "Labels of 2 runs" in found.text
    assert found.text.count("labels look wrong; here are") == 2
    assert "optim.lr differs" in found.text
    assert "commit differs" not in found.text
    assert [run["key"] for run in found.data["runs"]] == ["0123456789abcdef", "fedcba"]


def test_a_text_or_a_row_is_shown_where_there_is_no_picture():
    row = Suspect(
        "r1", "0", "1", 0.9, 0.1, text="petal length 1.4\nwidth 0.2", agreeing=(Neighbour("r2", "0", text="1.3"),)
    )
    found = outline(view(0, suspects=(row,)))
    assert "petal length 1.4 width 0.2" in found.text
    assert found.data["runs"][0]["suspects"][0]["agreeing"][0]["text"] == "1.3"
    assert found.count("img") == 0


def test_evidence_is_in_words_and_what_is_not_known_is_left_out():
    evidence = dict(outline(view()).data["runs"][0]["suspects"][0]["evidence"])
    assert evidence["belief in the given label"] == "0.1\u00a0%"
    assert evidence["first epoch that predicts it"] == "never"
    assert evidence["times learnt"] == "3"
    assert evidence["mean margin of the given label"] == "-1.25"
    assert "loss at the early-learning peak" not in evidence


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0.0"), (1.0, "100.0"), (0.99999, ">99.9"), (1e-5, "<0.1"), (0.5, "50.0"), (0.9994, "99.9")],
)
def test_only_all_is_100_percent_and_only_nothing_is_0(share, words):
    assert percent(share) == f"{words}\u00a0%"


def test_numbers_are_as_a_person_writes_them():
    assert [number(value) for value in (12934, 0.12345, 51234.5, True, None, math.nan, "x")] == [
        "12,934",
        "0.123",
        "51,234",
        "yes",
        "\u2013",
        "\u2013",
        "x",
    ]


# What it escapes


def everywhere(word):
    """A run with this word wherever a user may have put one."""
    classes = (word, "plain")
    near = (Neighbour(word, word, text=word),)
    own = tuple(
        replace(s, id=f"{word}{s.id}", text=word, agreeing=near, disagreeing=near, source=word, evidence={word: word})
        for s in suspects(4, classes)
    )
    return view(
        0,
        classes,
        name=word,
        path=word,
        summary={"method": word},
        audit=audit(classes, warnings=[word], noise_rate_rests_on=word),
        suspects=own,
        facts={word: word},
        config={word: f"{word}\n{word}"},
        lacks=(word,),
    )


@pytest.mark.parametrize(
    "word", [HOSTILE, "\"'><svg onload=alert(1)>", "<!--", "]]>", "&lt;b&gt;", "${title} $policy $$", "a\u2028b\u2029c"]
)
def test_a_label_with_markup_is_shown_as_text(word):
    plain, hostile = outline(everywhere("word")), outline(everywhere(word))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert [sorted(attributes) for _, attributes in hostile.elements] == [sorted(a) for _, a in plain.elements]
    assert re.sub(r"\s+", " ", word) in hostile.text
    assert hostile.data["runs"][0]["classes"] == [word, "plain"]
    assert hostile.data["runs"][0]["suspects"][0]["agreeing"][0]["id"] == word


def test_other_scripts_come_through_as_they_are(tmp_path):
    classes = ("猫", "قطة", "🐈", "e\u0301")
    write_page(tmp_path / "page.html", [view(4, classes, audit=audit(classes))])
    found = Outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert found.data["runs"][0]["classes"] == list(classes)
    assert all(name in found.text for name in classes)


def test_a_name_from_right_to_left_does_not_reorder_the_sentence():
    assert "<bdi>قطة</bdi>" in page([view(4, ("قطة", "b"))])


def test_a_file_name_in_a_broken_encoding_can_be_written(tmp_path):
    broken = replace(suspects(1)[0], id="scan\udcff.png")
    write_page(tmp_path / "page.html", [view(0, suspects=(broken,))])
    assert "scan\ufffd.png" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_no_string_can_leave_the_data():
    block = data_block("data", {"a": "</script><!-- <script> & \u2028"})
    inside = block.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    assert not set("<>&\u2028") & set(inside)
    assert json.loads(inside) == {"a": "</script><!-- <script> & \u2028"}


# What it brings along, and what it weighs


def test_the_page_names_no_address_outside_itself():
    source = page([view()])
    bare = re.sub(r"data:image/[a-z]+;base64,[\w+/=]+", "", source)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<(iframe|object|embed|base|form)\b", bare)
    for _, attributes in Outline(source).elements:
        assert all(value.startswith(("data:", "#")) for key, value in attributes.items() if key in ("src", "href"))


def test_the_policy_admits_this_style_and_this_script_only():
    found = outline(view())
    policy = next(a["content"] for _, a in found.elements if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(found.scripts["code"].encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not any("style" in a or any(key.startswith("on") for key in a) for _, a in found.elements)


def test_each_picture_is_there_once():
    shared = digit(1700)
    own = tuple(replace(s, agreeing=(Neighbour("n", "0", shared),), disagreeing=()) for s in suspects(30))
    source = page([view(0, suspects=own)])
    for picture in (shared, own[0].picture, own[29].picture):
        assert source.count(base64.b64encode(picture.data).decode()) == 1


def test_three_hundred_thumbnails_with_neighbours_are_below_5_mb(tmp_path):
    write_page(tmp_path / "page.html", [view(0, records=records(200), suspects=suspects(300, near=4))])
    assert (tmp_path / "page.html").stat().st_size < 5_000_000
    assert "left out" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_larger_thumbnails_than_there_is_room_for_cost_neighbours_and_not_suspects(tmp_path):
    whole = view(0, records=records(200), suspects=suspects(300, side=96, near=3))
    write_page(tmp_path / "page.html", [whole])
    assert (tmp_path / "page.html").stat().st_size < 5_000_000
    found = Outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    shown = found.data["runs"][0]["suspects"]
    assert all(suspect["picture"] for suspect in shown)
    assert all(neighbour["picture"] for neighbour in shown[0]["agreeing"])
    assert re.search(r"[\d,]+ pictures are left out", found.text)


def test_a_row_drawn_has_its_picture_whatever_else_there_is_no_room_for(monkeypatch):
    monkeypatch.setattr("elr.report.page.PICTURE_BYTES", 20_000)
    found = outline(view(0, suspects=suspects(40, near=4), drawn=drawn(40)))
    assert re.search(r"[\d,]+ pictures are left out", found.text)
    assert not all(suspect["picture"] for suspect in found.data["runs"][0]["suspects"])
    there = {attributes["data-key"] for tag, attributes in found.elements if tag == "img"} | set(found.data["pictures"])
    assert {row["picture"] for row in found.data["runs"][0]["drawn"]} <= there


def test_the_same_run_gives_the_same_bytes():
    assert page([view()]) == page([view()])
