// What has happened in the last hour, the latest first.
import { clock, el, now, number, say, span } from "./text.js";

const hour = 3_600_000;
const most = 300; // that are shown

const list = document.getElementById("timeline");
const quiet = document.getElementById("quiet");
const total = document.getElementById("happened");
let times = []; // of all that is known, the latest first

export function forget() {
  times = [];
  list.replaceChildren();
  expire();
}

// add shows events, which come in order. go is called for the path of one.
export function add(events, go) {
  for (const e of events) {
    times.unshift(e.at);
    list.prepend(item(e, go));
  }
  while (list.childElementCount > most) list.lastElementChild.remove();
  expire();
}

// expire drops what is older than an hour.
export function expire() {
  while (times.length && times.at(-1) < now() - hour) times.pop();
  while (list.childElementCount > times.length) list.lastElementChild.remove();
  if (quiet.hidden !== times.length > 0) quiet.hidden = times.length > 0;
  say(total, times.length > most ? `${number(times.length)}, the latest ${most} shown` : times.length ? number(times.length) : "");
}

function item(e, go) {
  const lost = e.end === "lost";
  const kind = ["unreachable", "break", "revoke"].includes(e.kind) || lost ? "bad" : e.kind === "handed over" ? "over" : e.kind === "reachable" ? "good" : "";
  const from = e.from ? el("span", { class: lost ? "gone lost" : "gone" }, e.from) : "";
  const unseen = e.end === "unseen" ? " (there was no connection then: how is unknown)" : "";
  const text = {
    "acquired": () => [span("to", e.to), " has it"],
    "handed over": () => [from, span("arrow", " → "), span("to", e.to), unseen],
    "ended": () => [from, lost ? " lost it" : e.end === "released" ? " released it" : " no longer has it",
      unseen, e.wait ? `, and ${number(e.wait)} wait` : ", and it is free"],
    "break": () => [from, " was broken by this page", e.reason ? `: ${e.reason}` : ""],
    "revoke": () => [from, " was asked back by this page", e.reason ? `: ${e.reason}` : ""],
    "joined": () => [span("to", e.to), " joined"],
    "left": () => [from, lost ? " was lost" : " left"],
    "began": () => ["a round began"],
    "over": () => ["the round is over"],
    "unreachable": () => ["no server answers"],
    "reachable": () => ["a server answers again"],
  }[e.kind]?.() ?? [e.kind];
  return el("li", { class: kind, "data-kind": e.kind },
    el("span", { class: "at" }, clock(e.at)),
    el("div", {},
      e.path ? el("button", { type: "button", class: "mono link", title: e.path, on: { click: () => go(e.row) } }, e.path) : "",
      el("p", {}, ...text, lost && e.kind === "handed over" ? span("why", "lost") : "")));
}
