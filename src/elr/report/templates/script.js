"use strict";

/* Tables: headings become buttons that sort, long tables get a filter. */

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      // Numbers are looked at from the top, names from the start.
      const numeric = body.rows.length > 0 && typeof key(body.rows[0], column) === "number";
      const before = heading.getAttribute("aria-sort");
      const order = before === null ? (numeric ? "descending" : "ascending") : before === "ascending" ? "descending" : "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      body.append(...[...body.rows].sort((a, b) => sign * compare(key(a, column), key(b, column))));
    });
  });
  if (body.rows.length > 20) {
    const label = document.createElement("label");
    label.className = "filter";
    const input = document.createElement("input");
    input.type = "search";
    label.append("Show only ", input);
    table.parentElement.prepend(label);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }
}

/* Charts: what the mouse or a finger is on is told below, as tooltips do not exist on a phone. */

document.addEventListener("pointerover", (event) => {
  const hit = event.target instanceof Element ? event.target.closest(".hit") : null;
  const told = hit && hit.closest("figure").querySelector(".told");
  if (told) told.textContent = hit.querySelector("title").textContent.replaceAll("\n", " · ");
});

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("#facts details")) details.open = true;
});

/* Review: what is decided is a list to which every decision adds and from which undo takes. */

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);

function element(kind, words = "", attributes = {}) {
  const made = document.createElement(kind);
  made.textContent = words;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// An id is often a path, whose parts stand in order whatever script they are written in.
function path(id) {
  return element("bdi", id, { dir: "ltr" });
}

function pictures() {
  const all = new Map(Object.entries(data.pictures));
  // Those of the cards are in the page already.
  for (const image of document.querySelectorAll("img[data-key]")) all.set(image.dataset.key, image.src);
  return all;
}

function store(run) {
  const place = `elr review ${run.key}`;
  const labels = new Set(run.classes);
  const decisions = new Set(["keep", "accept", "change", "unsure"]);
  // [id, decision, label, queue it was decided in, label given then]
  const sound = (entry) =>
    Array.isArray(entry) && entry.length === 5 && decisions.has(entry[1]) && labels.has(entry[2]) && labels.has(entry[4]);
  let log = [];

  const read = () => {
    try {
      const stored = JSON.parse(localStorage.getItem(place) ?? "[]");
      log = Array.isArray(stored) ? stored.filter(sound) : [];
    } catch {
      log = []; // storage is switched off, or holds what is not ours
    }
  };
  const write = () => {
    try {
      localStorage.setItem(place, JSON.stringify(log));
    } catch {
      find("unkept").hidden = false;
    }
  };
  read();
  return {
    place,
    read,
    add(id, decision, label, queue, given) {
      log.push([id, decision, label, queue, given]);
      write();
    },
    undo(known) {
      const last = log.findLastIndex(([id]) => known.has(id));
      if (last < 0) return null;
      const [[id, , , queue]] = log.splice(last, 1);
      write();
      return { id, queue };
    },
    // The last word on every row. Whoever has seen the audit's opinion of a row cannot check it any more, so that for
    // rows drawn at random only what was decided in their queue counts; for suspects, whatever was decided anywhere.
    judged(queue) {
      const counted = log.filter((entry) => queue !== "drawn" || entry[3] === "drawn");
      return new Map(counted.map(([id, decision, label, , given]) => [id, { decision, label, given }]));
    },
  };
}

function cell(value) {
  return /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}

// Rows in the order of the page, then those that another page of the same run had.
function corrections(run, judged) {
  const ids = new Set([...run.suspects, ...run.drawn].map((row) => row.id));
  const place = new Map([...ids].map((id, k) => [id, k]));
  const order = ([id]) => place.get(id) ?? place.size;
  const rows = [...judged]
    .sort((a, b) => order(a) - order(b))
    .map(([id, { decision, label, given }]) => [id, given, decision, label]);
  return [["id", "given_label", "decision", "label"], ...rows].map((row) => row.map(cell).join(",") + "\n").join("");
}

function review(runs) {
  const images = pictures();
  const pairOf = (suspect) => JSON.stringify([suspect.given, suspect.suggested]);
  // By run, for as long as the page is open: the browser may keep nothing.
  const stores = new Map();
  // What the other queue says of a row would lead whoever checks the audit, so of rows drawn at random nothing is told
  // but the label they have: no suggestion, no evidence, and not how an answer compares with either.
  const blind = () => kind === "drawn";
  const judged_here = () => kept.judged(kind);
  const file = () => (blind() ? "checked.csv" : "corrections.csv");
  let run, kept, known, kind, queue, at;

  function open(number) {
    run = runs[number];
    if (!stores.has(run.key)) stores.set(run.key, store(run));
    kept = stores.get(run.key);
    known = new Set([...run.suspects, ...run.drawn].map((row) => row.id));
    const counts = new Map();
    for (const suspect of run.suspects) counts.set(pairOf(suspect), (counts.get(pairOf(suspect)) ?? 0) + 1);
    const pairs = [...counts].sort((a, b) => b[1] - a[1]);
    find("pair").replaceChildren(
      element("option", `all (${run.suspects.length})`, { value: "" }),
      ...pairs.map(([pair, count]) => {
        const [given, suggested] = JSON.parse(pair);
        return element("option", `${given} → ${suggested} (${count})`, { value: pair });
      }),
    );
    const counted = (rows, one) => `${rows.length} ${one}${rows.length === 1 ? "" : "s"}`;
    find("to-suspects").textContent = `Judge ${counted(run.suspects, "suspect")}`;
    find("to-drawn").textContent = `Check ${counted(run.drawn, "row")} drawn at random`;
    find("queues").hidden = run.suspects.length === 0 || run.drawn.length === 0;
    // Rows drawn at random come first: once they have been seen as suspects, it is too late to ask.
    const asked = kept.judged("drawn");
    turn_to(kind ?? (run.drawn.some((row) => !asked.has(row.id)) ? "drawn" : "suspects"), null);
  }

  function turn_to(wanted, id) {
    kind = run[wanted].length > 0 ? wanted : wanted === "drawn" ? "suspects" : "drawn";
    for (const each of ["suspects", "drawn"]) find(`to-${each}`).setAttribute("aria-pressed", String(each === kind));
    find("about").replaceChildren(...run.about[kind].map((words, k) => (k % 2 ? element("code", words) : words)));
    for (const part of ["of-pair", "near", "evidence", "accept"]) find(part).hidden = blind();
    find("download").textContent = `Download ${file()}`;
    filter("", id);
  }

  function switch_to(wanted, id = null) {
    turn_to(wanted, id);
    remember();
    find("card").focus(); // its name says where one is now, and the keys work
  }

  // A reload comes back to this queue, of this run.
  function remember() {
    history.replaceState(null, "", `#${blind() ? "drawn" : "review"}` + (runs.length > 1 ? `=${run.key}` : ""));
  }

  function filter(pair, id = null) {
    find("pair").value = pair;
    queue = run[kind].filter((suspect) => pair === "" || pairOf(suspect) === pair);
    at = queue.findIndex((suspect) => suspect.id === id);
    if (at < 0) at = open_after(-1);
    show();
  }

  // The next one without a decision, from the start again after the last; where there is none, the place itself.
  function open_after(place) {
    const judged = judged_here();
    for (let step = 1; step <= queue.length; step += 1) {
      const next = (place + step) % queue.length;
      if (!judged.has(queue[next].id)) return next;
    }
    return Math.max(place, 0);
  }

  function judge(decision, label) {
    kept.add(queue[at].id, decision, label, kind, queue[at].given);
    at = open_after(at);
    show();
  }

  function choose(label) {
    const suspect = queue[at];
    if (label === suspect.given) judge("keep", label);
    else if (label === suspect.suggested) judge("accept", label);
    else judge("change", label);
  }

  function undo() {
    const undone = kept.undo(known);
    if (undone === null) return;
    const { id, queue: from } = undone;
    if (from !== kind) switch_to(from, id);
    else filter(queue.some((row) => row.id === id) ? find("pair").value : "", id);
  }

  function move(step) {
    at = (at + step + queue.length) % queue.length;
    show();
  }

  // [key, class]: classes that are digits are their own keys; nine at most are counted; of more, the likely ones.
  function shortcuts(suspect) {
    const others = (labels) => labels.filter((label) => label !== suspect.given && (blind() || label !== suspect.suggested));
    if (run.classes.every((label) => /^[0-9]$/.test(label))) return others(run.classes).map((label) => [label, label]);
    if (run.classes.length <= 9) {
      const keys = new Map(run.classes.map((label, k) => [label, String(k + 1)]));
      return others(run.classes).map((label) => [keys.get(label), label]);
    }
    return others(run.likely[suspect.given] ?? []).slice(0, 9).map((label, k) => [String(k + 1), label]);
  }

  function picture(key, words) {
    const image = element("img", "", { alt: words });
    image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth <= 64));
    image.src = images.get(key);
    return image;
  }

  function exhibit(example, words) {
    if (example.picture !== null) return picture(example.picture, words);
    return element("p", example.text ?? `no picture: example ${example.id}`, { class: "words", dir: "auto" });
  }

  function near(list, neighbours, label, words) {
    find(`${list}-title`).replaceChildren(`Nearest labelled `, element("bdi", label), `, as ${words}`);
    find(list).replaceChildren(
      ...neighbours.map((neighbour) => {
        const item = element("li");
        item.append(exhibit(neighbour, `example ${neighbour.id}, labelled ${neighbour.label}`), path(neighbour.id));
        return item;
      }),
      ...(neighbours.length === 0 ? [element("li", "none known")] : []),
    );
  }

  function describe(list, pairs) {
    find(list).replaceChildren(
      ...pairs.map(([word, ...values]) => {
        const pair = element("div");
        const told = element("dd");
        told.append(...values);
        pair.append(element("dt", word), told);
        return pair;
      }),
    );
  }

  function show() {
    const suspect = queue[at];
    const judged = judged_here();
    const own = judged.get(suspect.id);
    const place = blind() ? `Row ${at + 1} of ${queue.length} drawn at random` : `Suspect ${at + 1} of ${queue.length}`;
    find("place").replaceChildren(`${place}: example `, path(suspect.id));
    find("decided").replaceChildren(
      ...(own ? [`Judged: ${word(own.decision)}, label `, element("bdi", own.label)] : ["Not judged yet"]),
    );
    find("exhibit").replaceChildren(exhibit(suspect, `example ${suspect.id}`));
    const given = ["given label", element("bdi", suspect.given)];
    find("keep-label").textContent = suspect.given;
    if (blind()) describe("labels", [given]);
    else {
      const suggested = ["suggested label", element("bdi", suspect.suggested), " ", element("small", suspect.probability)];
      describe("labels", [given, suggested]);
      describe("evidence", suspect.evidence);
      near("agreeing", suspect.agreeing, suspect.given, "given");
      near("disagreeing", suspect.disagreeing, suspect.suggested, "suggested");
      find("accept-label").textContent = suspect.suggested;
    }
    find("quick").replaceChildren(
      ...shortcuts(suspect).map(([key, label]) => {
        const button = element("button", "", { type: "button", "aria-keyshortcuts": key });
        button.append(element("kbd", key), " ", element("bdi", label));
        button.addEventListener("click", () => choose(label));
        return button;
      }),
    );
    tell(judged);
    close();
    // What had the focus may be gone, and with it the keys.
    if (begun && !find("review").contains(document.activeElement)) find("card").focus();
  }

  function word(decision) {
    if (!blind() || decision === "unsure") return decision;
    return decision === "keep" ? "right" : "wrong";
  }

  function tell(judged) {
    const done = (rows) => rows.filter((row) => judged.has(row.id));
    const here = done(queue);
    const words = here.map((row) => word(judged.get(row.id).decision));
    const parts = (blind() ? ["right", "wrong", "unsure"] : ["keep", "accept", "change", "unsure"])
      .map((own) => [own, words.filter((each) => each === own).length])
      .filter(([, count]) => count > 0)
      .map(([own, count]) => `${count} ${own}`);
    const all = run[kind];
    const whole = queue.length < all.length ? `; of all ${all.length}, ${done(all).length}` : "";
    const elsewhere = blind() ? 0 : [...judged.keys()].filter((id) => !known.has(id)).length;
    const others = elsewhere > 0 ? `; ${elsewhere} more on other pages of this run, which are downloaded too` : "";
    const left = Math.max(run.more - elsewhere, 0);
    const more = !blind() && whole === "" && left > 0 ? `, but ${left.toLocaleString("en")} more look wrong` : "";
    const end = here.length === queue.length ? `. All judged${more}: download ${file()}` : "";
    find("progress").textContent =
      `${here.length} of ${queue.length} judged` + (parts.length ? ` (${parts.join(", ")})` : "") + whole + others + end;
    find("done").max = queue.length;
    find("done").value = here.length;
    for (const button of [find("undo"), find("download")]) {
      // Disabled it would lose the focus, and with it the keys.
      if (judged.size === 0 && button === document.activeElement) find("card").focus();
      button.disabled = judged.size === 0;
    }
  }

  function download() {
    const link = element("a", "", { download: file() });
    link.href = URL.createObjectURL(new Blob([corrections(run, judged_here())], { type: "text/csv" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  /* The search among classes */

  let active = 0;

  function matching() {
    const wanted = find("search").value.trim().toLowerCase();
    const found = run.classes.filter((label) => label.toLowerCase().includes(wanted));
    const starts = (label) => (label.toLowerCase().startsWith(wanted) ? 0 : 1);
    return found.sort((a, b) => starts(a) - starts(b)).slice(0, 50);
  }

  function offer() {
    const { given, suggested } = queue[at];
    const found = matching();
    active = Math.min(Math.max(active, 0), found.length - 1);
    find("matches").replaceChildren(
      ...found.map((label, k) => {
        const item = element("li", "", { role: "option", id: `match-${k}`, "aria-selected": String(k === active) });
        const role = label === given ? " (given)" : label === suggested && !blind() ? " (suggested)" : "";
        item.append(element("bdi", label), role);
        item.addEventListener("click", () => choose(label));
        return item;
      }),
    );
    find("matches").hidden = found.length === 0;
    find("search").setAttribute("aria-expanded", String(found.length > 0));
    if (found.length > 0) {
      find("search").setAttribute("aria-activedescendant", `match-${active}`);
      find(`match-${active}`).scrollIntoView({ block: "nearest" });
    } else find("search").removeAttribute("aria-activedescendant");
  }

  function close() {
    find("search").value = "";
    find("search").setAttribute("aria-expanded", "false");
    find("search").removeAttribute("aria-activedescendant");
    find("matches").hidden = true;
    find("matches").replaceChildren();
    if (document.activeElement === find("search")) find("card").focus();
  }

  function search_key(event) {
    // Enter ends the composition of a character, and chooses nothing; Safari says so only by the code 229.
    if (event.isComposing || event.keyCode === 229) return;
    const found = matching();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      active += event.key === "ArrowDown" ? 1 : -1;
      offer();
    } else if (event.key === "Enter" && found.length > 0) choose(found[active]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  find("search").addEventListener("keydown", search_key);
  find("search").addEventListener("focus", () => { active = 0; offer(); });
  find("search").addEventListener("input", () => { active = 0; offer(); });
  find("search").addEventListener("blur", () => { find("matches").hidden = true; find("search").setAttribute("aria-expanded", "false"); });
  find("matches").addEventListener("pointerdown", (event) => event.preventDefault()); // the search keeps the focus

  const actions = {
    keep: () => judge("keep", queue[at].given),
    accept: () => { if (!blind()) judge("accept", queue[at].suggested); },
    unsure: () => judge("unsure", queue[at].given),
    undo,
    previous: () => move(-1),
    next: () => move(1),
    "to-suspects": () => switch_to("suspects"),
    "to-drawn": () => switch_to("drawn"),
    download,
  };
  for (const [id, action] of Object.entries(actions)) find(id).addEventListener("click", action);

  const keys = {
    k: actions.keep,
    a: actions.accept,
    u: actions.unsure,
    z: undo,
    c: () => find("search").focus(),
    ArrowLeft: actions.previous,
    ArrowRight: actions.next,
  };
  // A keyboard with other letters has ours in the same places.
  function named(event) {
    if (event.key.length > 1) return event.key;
    const foreign = event.key > "~" && /^Key[A-Z]$/.test(event.code);
    return (foreign ? event.code.slice(3) : event.key).toLowerCase();
  }

  // Only while the focus is in this section: a letter typed while reading above must not judge what is not seen.
  find("review").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target.closest("select") && ["Enter", "Escape"].includes(event.key)) find("card").focus();
    if (event.target.closest("input, select, textarea")) return;
    const key = named(event);
    // A key held down must not judge what nobody has seen. Arrows only look; Enter would press a button again and again.
    if (event.repeat && !key.startsWith("Arrow")) {
      if (key === "Enter") event.preventDefault();
      return;
    }
    const shortcut = shortcuts(queue[at]).find(([own]) => own === key);
    const action = shortcut ? () => choose(shortcut[1]) : Object.hasOwn(keys, key) ? keys[key] : null;
    if (action === null) return;
    event.preventDefault();
    action();
  });

  find("run").replaceChildren(...runs.map((each, k) => element("option", each.name, { value: String(k) })));
  find("of-run").hidden = runs.length === 1;
  find("run").addEventListener("change", () => { open(Number(find("run").value)); remember(); });
  find("pair").addEventListener("change", () => filter(find("pair").value));
  // The same page in another tab.
  addEventListener("storage", (event) => {
    const changed = [...stores.values()].find((each) => each.place === event.key);
    if (changed === undefined) return;
    changed.read();
    if (changed === kept) show();
  });
  // A link to the section leads to its card; a reload does not follow the link again.
  const enter = () => find("card").focus({ preventScroll: true });
  find("review").addEventListener("focus", enter);

  let begun = false;
  find("judge").hidden = false;
  const [asked_for, of_run] = location.hash.slice(1).split("=");
  const here = asked_for === "drawn" || asked_for === "review";
  if (here) kind = asked_for === "drawn" ? "drawn" : "suspects";
  const first = Math.max(runs.findIndex((each) => each.key === of_run), 0);
  find("run").value = String(first);
  open(first);
  begun = true;
  if (here && location.hash !== "#review") find("review").scrollIntoView(); // no element has this name
  if (here) enter();
}

if (data.runs.length > 0) review(data.runs);
