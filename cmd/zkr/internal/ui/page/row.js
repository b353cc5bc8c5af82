// What a path looks like: a head, which is a button, and all the rest once it is opened.
import { count, el, number, since, span } from "./text.js";

// recipes are all that there are, in the order of their filters, and what they are called.
export const recipes = new Map(Object.entries({
  lock: "lock", rwlock: "rw lock", election: "election", semaphore: "semaphore", once: "once", queue: "queue", group: "group",
  doublebarrier: "double barrier", barrier: "barrier", leaf: "leaf", empty: "not in use", hidden: "hidden", missing: "missing",
  directory: "directory",
}));

// kind is the recipe of a row. Elections have the names of locks, and some can be told from them.
export const kind = (row) => (row.use === "election" ? row.use : row.recipe);

const verbs = { holds: "holds", waits: "waits", inside: "inside", member: "member" };

// who is what a contender is called.
export const who = (c) => c.name;

const holding = (row) => (row.contenders ?? []).filter((c) => c.state !== "waits");

// words are all that a search looks at.
export function words(row) {
  const all = [row.path, row.recipe, row.use ?? "", ...(row.notes ?? []), ...(row.unknown ?? [])];
  for (const c of row.contenders ?? []) {
    all.push(c.node, c.mode ?? "", c.library, c.session ?? "", c.token ?? "", who(c), c.program ?? "", c.data ?? "", c.orphan ?? "");
  }
  return all.join("\n").toLowerCase();
}

function person(c) {
  const parts = [span("who", who(c))];
  if (c.mode) parts.unshift(span("mode", c.mode));
  if (c.host && c.program) parts.push(span("program", c.program));
  if (c.label) parts.push(span("dim", `(${c.label})`));
  if (c.asked) parts.push(span("dim", "asked back"));
  return span("person", ...parts);
}

// people are the first of several contenders.
function people(all, total) {
  const shown = all.slice(0, 4).map(person);
  if (total > shown.length) shown.push(span("dim", `and ${number(total - shown.length)} more`));
  return shown;
}

// pips are one mark for each of a small number of places.
function pips(full, half, all) {
  if (!all || all > 16) return "";
  const marks = [];
  for (let i = 0; i < Math.max(all, full + half); i++) {
    marks.push(el("i", { class: i < full ? "full" : i < full + half ? "half" : "" }));
  }
  return el("span", { class: "pips", "aria-hidden": "true" }, ...marks);
}

const rate = (n) => (n >= 10 ? number(n) : n.toFixed(1));

function summary(row) {
  const held = holding(row);
  switch (row.recipe) {
    case "queue": {
      const q = row.queue;
      const parts = [span("big", number(q.length)), span("dim", q.length === 1 ? "element" : "elements")];
      if (q.in || q.out) parts.push(span("rates", span("in", `↓ ${rate(q.in)}/s`), span("out", `↑ ${rate(q.out)}/s`)));
      if (q.oldest && q.length) parts.push(span("dim", "oldest ", since(q.oldest)));
      if (q.reserved) parts.push(span("dim", `${number(q.reserved)} reserved`));
      return parts;
    }
    case "group":
      return [span("big", number(row.holding)), span("dim", row.holding === 1 ? "member" : "members"), ...people(held, row.holding)];
    case "semaphore":
      return [pips(row.holding, 0, row.permits), span("big", `${row.holding} of ${row.permits || "?"}`), ...people(held, row.holding)];
    case "doublebarrier": {
      const parts = [pips(row.holding, row.waiting, row.permits)];
      if (row.holding) parts.push(span("big", `${row.holding} of ${row.permits}`), span("dim", "inside"));
      else parts.push(span("big", `${row.waiting} of ${row.permits}`), span("dim", "have come"));
      if (row.missing) {
        const list = row.missing.names ?? [];
        parts.push(span("missing", `${row.missing.count} missing${list.length ? ": " + list.slice(0, 6).join(", ") : ""}`));
      }
      return parts;
    }
    case "once":
      return [...people(held, row.holding), span("dim", `${count(row.done ?? 0, "key")} done`)];
    case "barrier": return [span("big", "set")];
    case "leaf": return [span("dim", "a barrier that is set, or nothing")];
    case "empty": return [span("dim", "not in use")];
    case "missing": return [span("dim", "there is no such node")];
    case "hidden": return [span("dim", "an ACL forbids to list it")];
    case "directory": return [span("dim", "nothing of a recipe")];
  }
  return held.length ? people(held, row.holding) : [span("dim", row.waiting ? "being handed over" : "free")];
}

function pathOf(path) {
  const cut = path.lastIndexOf("/") + 1;
  return span("path mono", span("dim", path.slice(0, cut)), el("b", {}, path.slice(cut) || (cut > 1 ? "" : "/")));
}

// stuck is how long something has been held while others wait, or the oldest wait: 0 if nobody waits.
export function stuck(row, now) {
  if (!row.waiting) return 0;
  return Math.max(0, ...(row.contenders ?? []).map((c) => now - (c.state === "holds" && c.held ? c.held : c.since)));
}

// head fills the button of a row.
export function head(row) {
  const first = holding(row)[0];
  const line = ["lock", "rwlock", "election", "once"].includes(row.recipe) && first;
  const aged = line ? first.held || first.since : ["barrier", "leaf"].includes(row.recipe) ? row.since : 0;
  const what = line ? (first.held ? "held since" : "its holder is in line since; since when it holds is unknown") : "since";
  return [
    span("name", pathOf(row.path), span("recipe", row.use ?? recipes.get(row.recipe) ?? row.recipe)),
    span("state", ...summary(row)),
    span("tail",
      row.trouble ? el("span", { class: "trouble", title: "There is something to look at" }, "look") : "",
      row.waiting && row.recipe !== "doublebarrier" ? span("waiting", `${number(row.waiting)} ${row.waiting === 1 ? "waits" : "wait"}`) : "",
      row.unread ? el("span", { class: "trouble", title: "There are too many nodes: this one was not read lately" }, "unknown") : "",
      aged ? el("span", { class: "age", title: what }, line && !first.held ? "in line " : "", since(aged)) : ""),
  ];
}

// body is what an opened row shows below its head. act is called for a button, if there are to be
// any.
export function body(row, act) {
  const contenders = (row.contenders ?? []).map((c) => line(row, c, act));
  if (row.more) contenders.push(el("li", { class: "dim" }, `and ${number(row.more)} more`));
  return [
    ...(row.notes ?? []).map((note) => el("p", { class: "note" }, note)),
    contenders.length ? el("ol", { class: "contenders" }, ...contenders) : "",
    row.unknown ? el("p", { class: "note" }, "Not of this recipe: ", span("mono", row.unknown.join("  "))) : "",
    el("p", { class: "dim foot" }, "path created ", row.since ? since(row.since) : "", row.since ? " ago" : "",
      row.queue ? `, ${number(row.queue.looked)} of ${number(row.queue.length)} elements looked at` : ""),
  ].filter(Boolean);
}

function line(row, c, act) {
  const fact = (name, value, kind = "") => (value ? el("div", {}, el("dt", {}, name), el("dd", { class: kind }, value)) : "");
  const buttons = [];
  if (act) {
    if (kind(row) === "lock" && c.state === "holds") {
      buttons.push(el("button", { type: "button", on: { click: () => act("revoke", row, c) } }, "revoke…"));
    }
    buttons.push(el("button", { type: "button", class: "danger", on: { click: () => act("break", row, c) } }, "break…"));
  }
  return el("li", { class: c.state, "data-contender": c.id },
    el("div", { class: "title" }, span("tag", verbs[c.state] ?? c.state), person(c),
      c.state === "holds" ? span("dim", "held ", c.held ? since(c.held) : "since unknown") : "",
      span("dim", c.state === "member" ? "joined " : "in line ", since(c.since)), ...buttons),
    c.orphan ? el("p", { class: "note" }, `orphan: ${c.orphan}`) : "",
    el("dl", {},
      fact("node", c.node, "mono"), fact("session", c.session, "mono"), fact("token", c.token, "mono"),
      fact("library", c.library === "zkrecipes" ? "" : c.library), fact("data", c.data, "mono")));
}
