"""The page in a browser: opened from disk, judged by keyboard and by finger, read by axe.

The browser is the one of the machine; Playwright's own is never downloaded.
"""

import csv
import io
import json
import os
import shutil
from dataclasses import replace

import pytest
from page_views import HOSTILE, audit, drawn, suspects, view

from elr.cli import main
from elr.noise import NoiseManifest
from elr.report.page import write_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
if BROWSER is None:
    pytest.skip("no browser on this machine: the review page was not tested", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="no Playwright here: the review page was not tested")

ANIMALS = ("cat", "dog", "a, b", '=1+"2"', "line\nbreak", "猫", "eel", "fox", "gnu", "hen", "ibis")
LONG = "a_class_name_that_is_longer_than_a_telephone_is_wide_and_has_no_place_to_break"


@pytest.fixture(scope="module")
def browser():
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=root)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pages by name; animals have more classes than there are keys."""
    path = tmp_path_factory.mktemp("pages")
    write_page(path / "digits.html", [view(30)])
    animals = view(15, ANIMALS, key="animals", audit=audit(ANIMALS, found=15), drawn=drawn(8, ANIMALS))
    write_page(path / "animals.html", [animals])
    write_page(path / "drawn.html", [view(30, audit=audit(found=30), drawn=drawn(6))])
    long = view(12, (LONG, "b"), key="long", name=LONG, path=LONG, audit=audit((LONG, "b")))
    write_page(path / "several.html", [view(30), replace(view(12), key="other", name="other"), long])
    # Axe looks at every cell of every map: few classes, but two runs, warnings, and all that a page can have.
    few = ("cat", "dog", "eel", LONG)
    warned = audit(few, warnings=["targets have collapsed"])
    also = view(3, few, key="b", name="b", audit=warned, lacks=("a test part",))
    write_page(path / "few.html", [view(25, few, drawn=drawn(4, few)), also])
    many = [f"class {k}" for k in range(25)]
    write_page(path / "many.html", [view(5, many, key="many", audit=audit(many))])
    words = tuple(replace(s, picture=None, text=f"{LONG} {HOSTILE}", id=HOSTILE) for s in suspects(1, (HOSTILE, "b")))
    hostile = view(0, (HOSTILE, "b"), key=HOSTILE, name=HOSTILE, suspects=words, audit=audit((HOSTILE, "b")))
    write_page(path / "hostile.html", [hostile])
    return path


@pytest.fixture
def show(browser, folder):
    """Opens a page by its name; in the end there was no error and nothing had been asked for over a network."""
    contexts, complaints, asked = [], [], []

    def opened(name="digits", *, width=1100, place="", **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, accept_downloads=True, **options)
        contexts.append(context)
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto((folder / f"{name}.html").as_uri() + place)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}


def progress(page):
    return page.locator("#progress").inner_text()


def reload(page):
    """Reload as a person does, who is not there in the millisecond of the last key.

    The browser hands what is stored to another process in its own time, and opens its store at the first use: with no
    other page of the same file a busy machine twice reloaded before that and found nothing. A second one keeps it open.
    """
    beside = page.context.new_page()
    beside.goto(page.url)
    page.wait_for_timeout(500)
    page.reload()
    beside.close()


def press(page, keys):
    for key in keys:
        page.keyboard.press(key)


def tab_to(page, selector, limit=120):
    """Press Tab until this has the focus."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached by keyboard")


def exported(page, act, name="corrections.csv"):
    """Rows of the file that is downloaded, its name and bytes checked."""
    with page.expect_download() as download:
        act()
    assert download.value.suggested_filename == name
    with open(download.value.path(), "rb") as file:
        content = file.read()
    assert not content.startswith(b"\xef\xbb\xbf")
    assert b"\r\n" not in content
    rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
    assert rows[0] == ["id", "given_label", "decision", "label"]
    return rows[1:]


def test_ten_are_judged_by_keyboard_alone_survive_a_reload_and_are_exported(show):
    page = show()
    tab_to(page, 'a[href="#review"]')
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'card'")
    press(page, "kaaukaaaua")
    assert progress(page) == "10 of 30 judged (2 keep, 6 accept, 2 unsure)"
    reload(page)
    assert progress(page) == "10 of 30 judged (2 keep, 6 accept, 2 unsure)"
    assert page.locator("#place").inner_text() == "Suspect 11 of 30: example e10"
    tab_to(page, "#download")
    rows = exported(page, lambda: page.keyboard.press("Enter"))
    decisions = {"k": "keep", "a": "accept", "u": "unsure"}
    expected = []
    for key, suspect in zip("kaaukaaaua", suspects(10), strict=True):
        label = suspect.suggested_label if key == "a" else suspect.given_label
        expected.append([suspect.id, suspect.given_label, decisions[key], label])
    assert rows == expected


def test_undo_takes_decisions_back_one_by_one_and_after_a_reload(show):
    page = show(place="#review")
    press(page, "kau")
    page.keyboard.press("z")
    assert progress(page) == "2 of 30 judged (1 keep, 1 accept)"
    assert "example e2" in page.locator("#place").inner_text()
    reload(page)
    press(page, "zz")
    assert progress(page) == "0 of 30 judged"
    assert page.locator("#undo").is_disabled()
    press(page, "z")
    assert progress(page) == "0 of 30 judged"


def test_undo_brings_back_what_was_decided_before(show):
    page = show(place="#review")
    press(page, ["k", "ArrowLeft", "a", "z"])
    assert page.locator("#decided").inner_text() == "Judged: keep, label 0"


def test_a_digit_is_the_key_of_its_own_class(show):
    page = show(place="#review")
    press(page, "7")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#decided").inner_text() == "Judged: change, label 7"
    press(page, "0")  # the label given: not one of the others, so not a key
    assert progress(page) == "1 of 30 judged (1 change)"


def test_another_class_is_found_by_typing(show):
    page = show("animals", place="#review")
    page.keyboard.press("c")
    page.keyboard.type("o")
    assert page.locator("#matches li").all_inner_texts() == ["dog (suggested)", "fox"]
    press(page, ["ArrowDown", "Enter"])
    assert progress(page) == "1 of 15 judged (1 change)"
    press(page, "ck")  # a letter in the search is a letter
    assert progress(page) == "1 of 15 judged (1 change)"
    page.keyboard.press("Escape")
    press(page, "k")  # and a key again afterwards
    assert progress(page) == "2 of 15 judged (1 keep, 1 change)"
    page.keyboard.press("c")
    page.keyboard.type("nothing like it")
    page.keyboard.press("Enter")
    assert progress(page) == "2 of 15 judged (1 keep, 1 change)"
    page.locator("#search").fill("gn")
    page.locator("#matches li").click()
    rows = exported(page, lambda: page.locator("#download").click())
    assert [row[2:] for row in rows] == [["change", "fox"], ["keep", "dog"], ["change", "gnu"]]


def test_choosing_the_suggested_class_is_accepting_it(show):
    page = show("animals", place="#review")
    page.keyboard.press("c")
    page.keyboard.type("dog")
    page.keyboard.press("Enter")
    assert progress(page) == "1 of 15 judged (1 accept)"


def test_of_many_classes_the_likely_ones_have_keys(show):
    page = show("animals", place="#review")
    quick = page.locator("#quick button")
    assert quick.count() == 9
    chosen = quick.nth(2).locator("bdi").inner_text()
    press(page, "3")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#decided").inner_text() == f"Judged: change, label {chosen}"


def test_a_label_with_commas_quotes_and_line_ends_comes_back_from_the_file(show):
    page = show("animals", place="#review")
    press(page, "k" * 15)
    assert progress(page).endswith("All judged: download corrections.csv")
    rows = exported(page, lambda: page.locator("#download").click())
    assert [row[1] for row in rows[:11]] == list(ANIMALS)
    assert all(row[1] == row[3] for row in rows)


def test_a_pair_is_judged_by_itself(show):
    page = show(place="#review")
    pair = page.locator("#pair")
    chosen = pair.locator("option").nth(1).inner_text()
    pair.select_option(index=1)
    count = int(chosen.partition("(")[2][:-1])
    assert page.locator("#place").inner_text().startswith(f"Suspect 1 of {count}:")
    given, _, suggested = chosen.partition(" (")[0].partition(" → ")
    assert [page.locator(f"#{part}-label").inner_text() for part in ("keep", "accept")] == [given, suggested]
    page.locator("#accept").focus()
    page.keyboard.press("a")
    assert progress(page) == f"1 of {count} judged (1 accept); of all 30, 1" + (
        ". All judged: download corrections.csv" if count == 1 else ""
    )
    pair.select_option(index=0)
    assert progress(page) == "1 of 30 judged (1 accept)"


def test_a_key_held_down_judges_one(show):
    page = show(place="#review")
    for key in ["a", "a", "a"]:
        page.keyboard.down(key)  # the second and third are repeats
    assert progress(page) == "1 of 30 judged (1 accept)"
    page.keyboard.up("a")
    page.locator("#keep").focus()
    for key in ["Enter", "Enter", "Enter"]:
        page.keyboard.down(key)
    page.keyboard.up("Enter")
    assert progress(page) == "2 of 30 judged (1 keep, 1 accept)"
    for key in ["ArrowRight", "ArrowRight", "ArrowRight"]:
        page.keyboard.down(key)
    assert page.locator("#place").inner_text() == "Suspect 6 of 30: example e5"


def test_undoing_the_last_decision_with_the_button_leaves_the_keys_alive(show):
    page = show(place="#review")
    press(page, "k")
    page.locator("#undo").focus()
    page.keyboard.press("Enter")
    assert page.locator("#undo").is_disabled()
    assert page.evaluate("document.activeElement.id") == "card"
    press(page, "a")
    assert progress(page) == "1 of 30 judged (1 accept)"


def test_enter_that_ends_the_composition_of_a_character_chooses_nothing(show):
    page = show("animals", place="#review")
    page.keyboard.press("c")
    page.locator("#search").dispatch_event("keydown", {"key": "Enter", "isComposing": True, "bubbles": True})
    assert progress(page) == "0 of 15 judged"
    page.keyboard.type("猫")
    page.keyboard.press("Enter")
    assert progress(page) == "1 of 15 judged (1 change)"


def test_a_queue_that_is_not_all_says_so(show):
    page = show(place="#review")
    said = page.locator("#about").inner_text()
    assert said == (
        "These are the 30 surest of 12,934 that look wrong; elr report runs/digits --suspects 12934 shows all."
    )
    press(page, "k" * 30)
    end = "All judged, but 12,904 more look wrong: download corrections.csv"
    assert progress(page) == f"30 of 30 judged (30 keep). {end}"


def test_keys_do_nothing_while_reading_elsewhere(show):
    page = show()
    press(page, "kau")
    page.locator("#health button").first.focus()
    press(page, "kau")
    assert progress(page) == "0 of 30 judged"


def test_keys_with_control_belong_to_the_browser(show):
    page = show(place="#review")
    page.keyboard.press("Control+a")
    assert progress(page) == "0 of 30 judged"


def test_every_run_has_decisions_of_its_own(show):
    page = show("several", place="#review")
    press(page, "kk")
    page.locator("#run").select_option("other")
    assert progress(page) == "0 of 12 judged"
    page.locator("#accept").click()
    reload(page)
    assert progress(page) == "1 of 12 judged (1 accept)"
    page.locator("#run").select_option("digits")
    assert progress(page).startswith("2 of 30 judged")


def test_decisions_of_all_runs_last_as_long_as_the_page_where_a_browser_keeps_nothing(show):
    page = show("several")
    page.context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('switched off'); } })"
    )
    reload(page)
    page.locator("#review").focus()
    press(page, "ka")
    page.locator("#run").select_option("other")
    page.locator("#accept").click()
    page.locator("#run").select_option("digits")
    assert progress(page) == "2 of 30 judged (1 keep, 1 accept)"
    page.locator("#run").select_option("other")
    assert progress(page) == "1 of 12 judged (1 accept)"
    assert page.locator("#unkept").is_visible()


def test_what_another_tab_decides_about_another_run_is_there_when_it_is_turned_to(show, folder):
    page = show("several")
    page.locator("#run").select_option("other")
    page.locator("#run").select_option("digits")
    page.evaluate("() => { window.told = new Promise((tell) => addEventListener('storage', () => tell(true))); }")
    tab = page.context.new_page()
    tab.goto((folder / "several.html").as_uri())
    tab.locator("#run").select_option("other")
    tab.locator("#keep").click()
    assert page.evaluate("window.told")
    page.locator("#run").select_option("other")
    assert progress(page) == "1 of 12 judged (1 keep)"


# Rows drawn at random


def test_rows_drawn_at_random_are_a_second_queue_within_reach_of_the_keyboard(show):
    page = show("drawn", place="#review")
    assert page.locator("#to-suspects").get_attribute("aria-pressed") == "true"
    press(page, ["k", "Shift+Tab", "Shift+Tab"])
    assert page.evaluate("document.activeElement.id") == "to-drawn"
    page.keyboard.press("Enter")
    assert page.locator("#to-drawn").get_attribute("aria-pressed") == "true"
    # What a screen reader says: the focus is on the card, which has the heading as its name; the status has changed.
    assert page.evaluate("document.activeElement.id") == "card"
    assert page.locator("#card").get_attribute("aria-labelledby") == "place"
    assert page.locator("#place").inner_text() == "Row 1 of 6 drawn at random: example e5"
    assert progress(page) == "0 of 6 judged"
    press(page, "ku")
    assert page.locator("#place").inner_text() == "Row 3 of 6 drawn at random: example e3"
    reload(page)
    assert progress(page) == "2 of 6 judged (1 right, 1 unsure)"
    assert page.locator("#place").inner_text() == "Row 3 of 6 drawn at random: example e3"
    page.locator("#to-suspects").click()
    assert progress(page) == "2 of 30 judged (2 keep)"  # e0, and e5 that is in both
    page.locator("#accept").focus()  # which is gone in a moment
    press(page, "z")  # d0 was judged last, as a row drawn
    assert page.evaluate("document.activeElement.id") == "card"
    assert progress(page) == "1 of 6 judged (1 right)"
    assert page.locator("#place").inner_text() == "Row 2 of 6 drawn at random: example d0"


@pytest.mark.parametrize("name", ["drawn", "animals"])
def test_who_checks_a_row_drawn_is_not_told_what_the_audit_thinks(show, name):
    page = show(name, place="#drawn")
    for hidden in ("#accept", "#near", "#evidence", "#of-pair"):
        assert page.locator(hidden).is_hidden()
    assert page.locator("#labels dt").all_inner_texts() == ["given label"]
    assert "suggested" not in page.locator("#judge").inner_text().lower()
    press(page, "a")
    assert progress(page).startswith("0 of")
    page.keyboard.press("c")
    assert not [words for words in page.locator("#matches li").all_inner_texts() if "suggested" in words]
    # Neither is told afterwards whether the audit would have said the same.
    page.locator("#matches li").filter(has_not_text="given").first.click()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#decided").inner_text().startswith("Judged: wrong, label")
    assert "(1 wrong)" in progress(page)


def test_the_suggested_class_has_no_other_place_than_the_rest(show):
    page = show("drawn", place="#drawn")
    given = page.locator("#keep-label").inner_text()
    shown = page.locator("#quick bdi").all_inner_texts()
    assert shown == [label for label in "0123456789" if label != given]
    assert len({(style["weight"], style["border"]) for style in page.locator("#quick button").evaluate_all(
        "all => all.map((b) => ({weight: getComputedStyle(b).fontWeight, border: getComputedStyle(b).border}))"
    )}) == 1  # fmt: skip


def test_decisions_of_both_queues_are_in_one_file_each_row_once_and_those_of_the_draw_in_their_own(show):
    page = show("drawn")  # with a draw on the page it comes first
    page.locator("#review").focus()
    rows = drawn(6)
    press(page, ["k", "u", rows[2].suggested_label, "9", "k", "k"])
    assert progress(page) == "6 of 6 judged (3 right, 2 wrong, 1 unsure). All judged: download checked.csv"
    checked = {
        "e5": [rows[0].given_label, "keep", rows[0].given_label],
        "d0": [rows[1].given_label, "unsure", rows[1].given_label],
        "e3": [rows[2].given_label, "accept", rows[2].suggested_label],
        "d1": [rows[3].given_label, "change", "9"],
        "e1": [rows[4].given_label, "keep", rows[4].given_label],
        "d2": [rows[5].given_label, "keep", rows[5].given_label],
    }
    download = page.locator("#download").click
    assert {row[0]: row[1:] for row in exported(page, download, "checked.csv")} == checked
    page.locator("#to-suspects").click()
    press(page, "a")
    first = suspects(1)[0]
    accepted = {"e0": [first.given_label, "accept", first.suggested_label]}
    assert {row[0]: row[1:] for row in exported(page, download)} == {**checked, **accepted}
    page.locator("#to-drawn").click()
    assert {row[0]: row[1:] for row in exported(page, download, "checked.csv")} == checked


def test_what_was_decided_with_the_suggestion_in_view_does_not_count_as_checked(show):
    page = show("drawn", place="#review")
    press(page, "a" * 6)  # e0 to e5, of which e1, e3 and e5 were drawn
    assert progress(page).startswith("6 of 30 judged")
    page.locator("#to-drawn").click()
    assert progress(page) == "0 of 6 judged"
    assert page.locator("#decided").inner_text() == "Not judged yet"
    press(page, "k")
    assert [row[:3:2] for row in exported(page, page.locator("#download").click, "checked.csv")] == [["e5", "keep"]]


def test_what_was_decided_on_a_longer_page_is_not_lost_on_a_shorter_one(show, folder):
    page = show(place="#review")
    press(page, "a" * 10)
    write_page(folder / "shorter.html", [view(4)])
    page.goto((folder / "shorter.html").as_uri())
    said = "4 of 4 judged (4 accept); 6 more on other pages of this run, which are downloaded too"
    assert progress(page) == f"{said}. All judged, but 12,924 more look wrong: download corrections.csv"
    assert [row[0] for row in exported(page, page.locator("#download").click)] == [f"e{k}" for k in range(10)]


def test_keys_of_another_alphabet_are_known_by_their_place(show):
    page = show(place="#review")
    for key, code in (("л", "KeyK"), ("ф", "KeyA"), ("ѿ", "Digit7")):
        page.locator("#card").dispatch_event("keydown", {"key": key, "code": code, "bubbles": True})
    assert progress(page) == "2 of 30 judged (1 keep, 1 accept)"


def test_a_menu_is_left_with_enter(show):
    page = show(place="#review")
    page.locator("#pair").focus()
    press(page, ["ArrowDown", "Enter", "k"])
    assert progress(page).startswith("1 of")
    assert "(1 keep)" in progress(page)


def test_the_picture_is_in_view_while_another_class_is_sought(show):
    page = show("animals", place="#review")
    page.set_viewport_size({"width": 1280, "height": 720})
    press(page, "c")
    box = page.locator("#exhibit").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 720
    assert page.locator("#matches li").first.is_visible()


def test_a_reload_comes_back_to_the_run_and_the_queue(show):
    page = show("few", place="#drawn")
    press(page, "k")
    reload(page)
    assert page.locator("#place").inner_text().startswith("Row 2 of 4")
    page.locator("#run").select_option("b")
    reload(page)
    assert page.locator("#run").locator("option:checked").inner_text() == "b"
    assert page.locator("#place").inner_text().startswith("Suspect 1 of 3")


def test_without_a_draw_there_is_nothing_to_switch_to(show):
    assert show(place="#drawn").locator("#queues").is_hidden()


def test_two_tabs_do_not_contradict_each_other(show, folder):
    page = show(place="#review")
    other = page.context.new_page()
    other.goto((folder / "digits.html").as_uri())
    press(page, "ka")
    other.wait_for_function("document.getElementById('progress').textContent.startsWith('2 of 30')")


def test_what_a_browser_does_not_keep_is_said(show):
    page = show()
    assert page.locator("#unkept").is_hidden()
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    page.locator("#keep").click()
    assert page.locator("#unkept").is_visible()
    assert progress(page) == "1 of 30 judged (1 keep)"


def test_damaged_storage_is_an_empty_one(show):
    page = show()
    place = "elr review 0123456789abcdef"
    for stored in ("{", "7", '[["e0"], ["e1", "burn", "0"], ["e2", "keep", "no such class"], null]'):
        page.evaluate("([place, stored]) => localStorage.setItem(place, stored)", [place, stored])
        reload(page)
        assert progress(page) == "0 of 30 judged"


def test_a_finger_is_enough(show):
    page = show(width=360, has_touch=True, is_mobile=True)
    page.locator('a[href="#review"]').tap()
    page.locator("#accept").tap()
    page.locator("#quick button").first.tap()
    page.locator("#undo").tap()
    assert progress(page) == "1 of 30 judged (1 accept)"
    page.locator("#curves .hit").nth(3).tap()
    assert page.locator("#curves .told").first.inner_text().startswith("epoch 4 · predicted correctly: 33.3")


@pytest.mark.parametrize("name", ["digits", "animals", "several", "hostile", "drawn#drawn"])
def test_nothing_scrolls_sideways_on_a_phone(show, name):
    page = show(name.partition("#")[0], width=360, place="#" + name.partition("#")[2])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(show, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here: access was not tested")
    page = show("few", color_scheme=scheme, place="#review")
    press(page, "kac")  # with the list of classes open
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.locator("#to-drawn").click()
    found = axe.Axe().run(page, "#review")
    assert found.violations_count == 0, found.generate_report()


def test_names_with_markup_run_nothing(show):
    page = show("hostile", place="#review")
    assert page.locator("#keep-label").inner_text() == HOSTILE
    assert HOSTILE in page.locator("#exhibit").inner_text()
    press(page, "c")
    assert page.locator("#matches li").first.inner_text() == f"{HOSTILE} (given)"
    press(page, ["Escape", "k"])
    assert exported(page, lambda: page.locator("#download").click()) == [[HOSTILE, HOSTILE, "keep", HOSTILE]]
    assert page.locator("img[src=x]").count() == 0


def test_a_table_is_sorted_by_its_headings(show):
    page = show()
    heading = page.locator("#health th[scope=col]").nth(2)
    column = page.locator("#health tbody tr td:nth-child(3)")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert [int(value) for value in column.all_inner_texts()] == list(range(30, 20, -1))
    heading.locator("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [int(value) for value in column.all_inner_texts()] == list(range(21, 31))


def test_a_long_table_can_be_narrowed_down(show):
    page = show("many")
    page.locator("#health .filter input").fill("class 2")
    shown = page.locator("#health tbody tr:visible th").all_inner_texts()
    assert shown == ["class 2", "class 20", "class 21", "class 22", "class 23", "class 24"]


def test_the_page_is_read_without_javascript(show):
    page = show(java_script_enabled=False)
    assert page.locator("#surest img").count() == 20
    assert page.locator("#surest img").first.evaluate("image => image.naturalWidth") == 32
    assert page.locator("noscript p").is_visible()
    assert page.locator("#judge").is_hidden()
    assert page.locator("#curves svg.chart").count() == 3


def test_paper_is_white_whatever_the_screen_is(show):
    page = show(color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(20, 22, 26)"
    page.emulate_media(media="print")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert page.locator("#review").is_hidden()


def given_labels(path):
    with open(path, newline="", encoding="utf-8") as file:
        return {row["id"]: row["given_label"] for row in csv.DictReader(file)}


def test_the_whole_loop_from_a_run_to_a_run_on_corrected_labels(show, folder, run, tmp_path):
    """Report a real run, judge ten, reload, export, relabel, train again: what was accepted is what is trained on."""
    assert main(["report", str(run), "--out", str(folder / "real.html"), "--quiet"]) == 0
    page = show("real")
    page.locator("#review").focus()
    press(page, "aaaaaaakku")
    reload(page)
    assert progress(page).startswith("10 of")
    rows = exported(page, lambda: page.locator("#download").click())
    assert [row[2] for row in rows] == ["accept"] * 7 + ["keep"] * 2 + ["unsure"]
    corrections, labels, second = tmp_path / "corrections.csv", tmp_path / "labels-v2.csv", tmp_path / "second"
    with open(corrections, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["id", "given_label", "decision", "label"], *rows])
    assert main(["relabel", str(run), str(corrections), "--out", str(labels)]) == 0
    words = ["digits", "--data.labels", str(labels), "--model", "mlp", "--epochs", "1", "--out", str(second), "--quiet"]
    assert main(["train", *words]) == 0
    before, after = (given_labels(place / "rows.csv") for place in (run, second))
    changed = {id_: label for id_, label in after.items() if before[id_] != label}
    assert changed == {row[0]: row[3] for row in rows[:7]}


def test_the_whole_loop_from_a_draw_to_an_interval(show, folder, run, tmp_path, capsys):
    """Draw rows, judge all of them by keyboard as somebody would who knows the truth, and get the noise rate."""
    assert main(["audit", str(run), "--review", "40", "--quiet"]) == 0
    with open(run / "review.csv", newline="", encoding="utf-8") as file:
        ids = [row["id"] for row in csv.DictReader(file)]
    noise = NoiseManifest.load(run)
    old, new = (
        dict(zip(map(str, noise.ids.tolist()), labels.tolist(), strict=True)) for labels in (noise.old, noise.new)
    )
    assert main(["report", str(run), "--out", str(folder / "draw.html")]) == 0
    assert "40 rows drawn at random can be checked on the page, too" in capsys.readouterr().out
    page = show("draw", place="#review")
    tab_to(page, "#to-drawn")
    page.keyboard.press("Enter")
    for k, id_ in enumerate(ids, 1):
        assert page.locator("#place").inner_text() == f"Row {k} of 40 drawn at random: example {id_}"
        assert page.locator("#exhibit img").count() == 1
        page.keyboard.press("u" if k == 7 else "k" if old[id_] == new[id_] else noise.classes[old[id_]])
    assert progress(page).endswith("All judged: download checked.csv")
    tab_to(page, "#download")
    rows = exported(page, lambda: page.keyboard.press("Enter"), "checked.csv")
    assert len(rows) == 40
    with open(tmp_path / "checked.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["id", "given_label", "decision", "label"], *rows])
    assert main(["audit", str(run), "--checked", str(tmp_path / "checked.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["review"]
    wrong = sum(old[id_] != new[id_] for k, id_ in enumerate(ids, 1) if k != 7)
    assert (found["checked"], found["wrong"], found["unsure"], found["unchecked"]) == (39, wrong, 1, 0)
    assert 0.0 <= found["low"] < found["high"] <= 1.0
