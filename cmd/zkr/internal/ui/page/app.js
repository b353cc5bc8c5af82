// The page: one stream of changes, and a row for each path that is touched only if it has changed.
import { add as addEvents, expire, forget } from "./timeline.js";
import { body, head, kind, recipes, stuck, who, words } from "./row.js";
import { clock, age, count, el, now, number, say, setClock, span, tick } from "./text.js";

const $ = (id) => document.getElementById(id);
const list = $("rows");
const rows = new Map(); // by ID: {data, element, button, panel, words, visible}
let order = []; // the rows, by path
let site = { can_break: false };
let status = { live: true };
let ready = false;
let heard = Date.now(); // when zkr has said something last
let silent = 0; // since when it says nothing, or 0
let tried = 0; // when a silent stream was replaced last
let filter = "all";
let current = null; // the row that a key moves from

// ---- rows

const byPath = (a, b) => (a.data.path < b.data.path ? -1 : a.data.path > b.data.path ? 1 : 0);
const oldest = ({ data }) => Math.min(...(data.contenders ?? []).map((c) => c.held || c.since), Infinity);
const orders = {
  path: byPath,
  stuck: (a, b) => stuck(b.data, now()) - stuck(a.data, now()) || byPath(a, b),
  waiting: (a, b) => b.data.waiting - a.data.waiting || byPath(a, b),
  age: (a, b) => (oldest(a) < oldest(b) ? -1 : oldest(a) > oldest(b) ? 1 : byPath(a, b)),
};
const sorting = () => orders[$("order").value] ?? byPath;

// Ages are kept up to date where they can be seen.
const near = new Set();
const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) {
      near.add(target);
      tick(target);
    } else {
      near.delete(target);
    }
  }
}, { rootMargin: "200px" });

function create(data) {
  const button = el("button", { type: "button", class: "head", "aria-expanded": "false", tabindex: "-1" });
  const panel = el("div", { class: "body", hidden: true, id: `body-${data.id}` });
  button.setAttribute("aria-controls", panel.id);
  const row = { data, button, panel, element: el("article", { role: "listitem", "data-row": data.id }, button, panel) };
  button.addEventListener("click", () => toggle(row));
  button.addEventListener("focus", () => select(row));
  button.addEventListener("click", () => history.replaceState(null, "", row.panel.hidden ? location.pathname : `#${encodeURIComponent(row.data.path)}`));
  return row;
}

function fill(row, data) {
  row.data = data;
  row.words = words(data);
  row.element.dataset.recipe = kind(data);
  row.element.dataset.path = data.path;
  row.button.replaceChildren(...head(data));
  if (!row.panel.hidden) fillBody(row);
}

function fillBody(row) {
  // The button that has the focus keeps it, if its contender is still there.
  const focused = row.panel.contains(document.activeElement) ? document.activeElement : null;
  const contender = focused?.closest("[data-contender]")?.dataset.contender;
  const label = focused?.textContent;
  row.panel.replaceChildren(...body(row.data, site.can_break ? ask : null));
  if (!focused) return;
  const again = [...row.panel.querySelectorAll("button")]
    .find((b) => b.textContent === label && b.closest("[data-contender]")?.dataset.contender === contender);
  (again ?? row.button).focus();
}

function toggle(row, open = row.panel.hidden) {
  if (open) {
    row.panel.hidden = false;
    fillBody(row);
  } else {
    row.panel.hidden = true;
    row.panel.replaceChildren();
  }
  row.button.setAttribute("aria-expanded", String(open));
}

function select(row) {
  if (current === row) return;
  if (current) current.button.tabIndex = -1;
  current = row;
  if (row) row.button.tabIndex = 0;
}

// holders reports whether those who hold have changed.
const holders = (data) => (data.contenders ?? []).filter((c) => c.state !== "waits").map((c) => c.id).join();

function apply(message) {
  setClock(message.now);
  if (message.reset) {
    site = message.reset;
    document.title = `zkr ${site.path} on ${site.servers ?? ""}`;
    say($("root"), site.path);
    say($("ensemble"), `on ${site.servers ?? ""}`);
  }

  const kept = new Set();
  let added = false;
  for (const data of message.set ?? []) {
    kept.add(data.id);
    const known = rows.get(data.id);
    if (!known) {
      const row = create(data);
      fill(row, data);
      rows.set(data.id, row);
      order.push(row);
      added = true;
      continue;
    }
    const passed = !message.reset && holders(known.data) !== holders(data);
    fill(known, data);
    if (passed && data.recipe !== "queue") flash(known.element);
    show(known);
  }

  const removed = message.reset ? [...rows.keys()].filter((id) => !kept.has(id)) : message.removed ?? [];
  for (const id of removed) drop(id);
  if (added) place();
  if (added && !linked) linked = follow();
  if (message.reset) forget();
  if (message.events) addEvents(message.events, go);
  if (message.status || message.reset) status = message.status ?? { live: true };
  ready = message.ready;
  chips();
  state();
}

function drop(id) {
  const row = rows.get(id);
  if (!row) return;
  rows.delete(id);
  order.splice(order.indexOf(row), 1);
  sight.unobserve(row.element);
  near.delete(row.element);
  if (current === row) {
    const focused = row.element.contains(document.activeElement);
    current = null;
    row.element.remove();
    const next = order.find((r) => !r.element.hidden);
    if (focused) next?.button.focus();
  }
  row.element.remove();
}

// place puts new rows where they belong, and touches no other.
function place() {
  order.sort(sorting());
  let next = null;
  let batch = document.createDocumentFragment();
  const flush = () => {
    if (batch.childNodes.length) list.insertBefore(batch, next);
    batch = document.createDocumentFragment();
  };
  for (const row of order.toReversed()) {
    if (row.element.parentNode === list) {
      flush();
      next = row.element;
    } else {
      show(row);
      sight.observe(row.element);
      batch.prepend(row.element);
    }
  }
  flush();
  if (!current) select(order.find((r) => !r.element.hidden) ?? null);
}

function flash(element) {
  element.classList.remove("fresh");
  void element.offsetWidth; // begins the animation anew
  element.classList.add("fresh");
}

// resort puts all rows in another order.
function resort() {
  order.sort(sorting());
  list.append(...order.map((r) => r.element));
}

// A link to a path is its address with the path behind #.
let linked = false;
function follow() {
  const path = decodeURIComponent(location.hash.slice(1));
  const row = path && order.find((r) => r.data.path === path);
  if (row) go(row.data.id);
  return !path || Boolean(row);
}

// go opens the row of an event.
function go(id) {
  const row = rows.get(id);
  if (!row) return;
  if (row.element.hidden) {
    $("search").value = "";
    filter = "all";
    refilter();
  }
  toggle(row, true);
  row.button.focus();
  row.element.scrollIntoView({ block: "center" });
}

// ---- what is shown

const filters = {
  all: () => true,
  "in use": (d) => d.holding > 0 || d.waiting > 0 || d.queue?.length > 0 || d.recipe === "barrier",
  waiting: (d) => d.waiting > 0,
  look: (d) => d.trouble,
};

const matches = (name, d) => (filters[name] ? filters[name](d) : kind(d) === name);

function show(row) {
  const terms = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const hidden = !matches(filter, row.data) || !terms.every((t) => row.words.includes(t));
  if (row.element.hidden !== hidden) row.element.hidden = hidden;
}

function refilter() {
  for (const row of order) show(row);
  if (current?.element.hidden) select(order.find((r) => !r.element.hidden) ?? null);
  chips();
}

const chipButtons = new Map();

function chips() {
  const counts = new Map([...Object.keys(filters), ...recipes.keys()].map((name) => [name, 0]));
  for (const { data } of order) {
    for (const name of Object.keys(filters)) if (filters[name](data)) counts.set(name, counts.get(name) + 1);
    counts.set(kind(data), (counts.get(kind(data)) ?? 0) + 1);
  }

  for (const [name, n] of counts) {
    let chip = chipButtons.get(name);
    if (!chip) {
      chip = el("button", { type: "button", "data-filter": name, on: { click: () => { filter = name; refilter(); } } },
        span("", name === "look" ? "needs a look" : recipes.get(name) ?? name), span("n", ""));
      chipButtons.set(name, chip);
      $("filters").append(chip);
    }
    say(chip.lastElementChild, number(n));
  }
  for (const [name, chip] of chipButtons) {
    const gone = !counts.get(name) && name !== "all" && name !== filter;
    if (chip.hidden !== gone) chip.hidden = gone;
    const pressed = String(name === filter);
    if (chip.getAttribute("aria-pressed") !== pressed) chip.setAttribute("aria-pressed", pressed);
  }

  const visible = order.some((r) => !r.element.hidden);
  $("none").hidden = visible || !ready;
  say($("none"), order.length ? "Nothing here matches." : "There is no path of a recipe here.");
}

// ---- status

function state() {
  const gone = silent > 0;
  const known = ready ? "live" : "reading";
  const state = gone ? "gone" : !status.live || status.error ? "stale" : known;
  if (document.body.dataset.state !== state) document.body.dataset.state = state;
  say($("status").lastElementChild, { gone: "no connection", stale: "stale", live: "live", reading: "reading" }[state]);

  let text = "";
  if (full) text = full;
  else if (gone) text = `zkr itself does not answer since ${clock(silent)} (${age(silent)}). What is shown is what was known then.`;
  else if (!status.live) text = `No ZooKeeper server answers since ${clock(status.since)} (${age(status.since)}). What is shown is what was known then.`;
  else if (status.error) text = `This cannot be read: ${status.error}`;
  if ($("banner").hidden !== (text === "")) $("banner").hidden = text === "";
  say($("banner"), text);
}

let requests = null;
function beat(pulse) {
  setClock(pulse.now);
  if (requests) {
    const rate = (pulse.requests - requests.requests) / ((pulse.now - requests.now) / 1000);
    say($("footer"), `${count(order.length, "path")} · this page costs the servers ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} requests a second, for all browsers together`);
  }
  requests = pulse;
}

setInterval(() => {
  const quiet = 15_000; // three beats
  if (stream && Date.now() - heard > quiet) {
    silent ||= now() - (Date.now() - heard);
    if (Date.now() - tried > quiet) { // nothing tells a browser of a connection that has died while it slept
      tried = Date.now();
      connect();
    }
  }
  for (const element of near) tick(element);
  expire();
  state();
}, 1000);

// ---- break and revoke

const texts = {
  break: "It is lost to its holder at once, which may still be about to act. What it writes has to be guarded by its token.",
  revoke: "Its holder is asked to give it back, and holds it until it does. That replaces the data of its node.",
};

function ask(verb, row, c) {
  const dialog = $("confirm");
  say($("confirm-title"), verb === "break" ? "Break it?" : "Ask for it back?");
  say($("confirm-text"), texts[verb]);
  say($("confirm-yes"), verb);
  const fact = (name, value) => (value ? el("div", {}, el("dt", {}, name), el("dd", {}, value)) : "");
  $("confirm-who").replaceChildren(...[
    fact("servers", site.servers), fact("path", row.path), fact("who", who(c)), fact("state", c.state), fact("node", c.node), fact("session", c.session),
  ].filter(Boolean));
  $("confirm-error").hidden = true;
  $("confirm-reason").value = "";
  dialog.returnValue = "no";
  dialog.onsubmit = async (event) => {
    if (event.submitter?.value !== "yes") return;
    event.preventDefault();
    const failed = await deed(verb, row, c);
    if (!failed) dialog.close("yes");
    say($("confirm-error"), failed);
    $("confirm-error").hidden = !failed;
  };
  dialog.showModal();
}

async function deed(verb, row, c) {
  try {
    const answer = await fetch("deed", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Zkr-Key": site.key },
      body: JSON.stringify({ verb, row: row.id, contender: c.id, reason: $("confirm-reason").value }),
    });
    return answer.ok ? "" : `Not done: ${(await answer.text()).trim()}`;
  } catch {
    return "zkr does not answer: it may or may not be done.";
  }
}

// ---- keys

const shown = () => order.filter((r) => !r.element.hidden);

function move(to) {
  const all = shown();
  if (!all.length) return;
  const row = all[Math.min(Math.max(to(all.indexOf(current), all.length), 0), all.length - 1)];
  row.button.focus();
  row.element.scrollIntoView({ block: "nearest" });
}

const keys = {
  ArrowDown: () => move((i) => (document.activeElement === current?.button ? i + 1 : i)),
  ArrowUp: () => move((i) => i - 1),
  Home: () => move(() => 0),
  End: () => move((_, n) => n - 1),
  "/": () => $("search").focus(),
  "?": () => $("help").showModal(),
  d: () => window.toggleTheme(),
};
keys.j = keys.ArrowDown;
keys.k = keys.ArrowUp;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target === $("search");
  if (event.key === "Escape") {
    if (typing) {
      $("search").value = "";
      refilter();
      move((i) => i);
    } else if (current && !current.panel.hidden) {
      toggle(current, false);
      current.button.focus();
    }
    return;
  }
  if (typing && event.key !== "ArrowDown") return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act(event);
});

$("search").addEventListener("input", refilter);
$("order").addEventListener("change", resort);
window.addEventListener("hashchange", follow);
$("theme").addEventListener("click", () => window.toggleTheme());
$("keys").addEventListener("click", () => $("help").showModal());

// ---- the stream

let stream;
let hiding;
let full = ""; // why zkr has no room for another tab
const hear = () => { heard = Date.now(); silent = 0; full = ""; };

function connect() {
  stream?.close();
  const mine = stream = new EventSource("events"); // connects again by itself, if it learns of its end
  mine.addEventListener("change", (event) => { hear(); apply(JSON.parse(event.data)); });
  mine.addEventListener("beat", (event) => { hear(); beat(JSON.parse(event.data)); state(); });
  mine.addEventListener("error", () => {
    if (!silent) silent = now();
    state();
    if (mine.readyState === EventSource.CLOSED) refused();
  });
}

// refused finds out why there is no stream, and tries again.
async function refused() {
  let text = "";
  const stop = new AbortController();
  try {
    const answer = await fetch("events", { signal: stop.signal });
    if (answer.status === 503) text = (await answer.text()).trim();
    stop.abort();
  } catch {
    // It does not answer.
  }
  full = text;
  state();
  setTimeout(() => (full ? connect() : location.reload()), 5000);
}

// A browser has few connections for one site, and each tab would take one for good. So a tab that
// nobody sees has none.
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => { stream?.close(); stream = null; }, 2000);
  else if (!stream) connect();
});

connect();
