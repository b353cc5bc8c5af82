// Elements and words. Text reaches the page through textContent alone.

// el makes an element. Properties are attributes, but for "on", which are listeners.
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== ""));
  return element;
}

export const span = (kind, ...children) => el("span", { class: kind }, ...children);

// say sets a text, and touches the page only if it is another one.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const number = (n) => n.toLocaleString("en").replaceAll(",", "\u2009");

export const count = (n, thing) => `${number(n)} ${thing}${n === 1 ? "" : "s"}`;

// The clock of zkr, which times events.
let offset = 0;
export const setClock = (now) => { offset = now - Date.now(); };
export const now = () => Date.now() + offset;

export const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

// age says how long ago something was, in two words at most.
export function age(at) {
  const s = Math.max(0, Math.round((now() - at) / 1000));
  if (s < 60) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 24) return m % 60 ? `${h}h ${m % 60}m` : `${h}h`;
  const d = Math.floor(h / 24);
  return h % 24 ? `${d}d ${h % 24}h` : `${d}d`;
}

// since makes an element that says how long ago something was, and goes on saying it: see tick.
export function since(at) {
  return el("time", { "data-at": at, datetime: new Date(at).toISOString(), title: new Date(at).toLocaleString("en-GB") }, age(at));
}

export function tick(within) {
  for (const time of within.querySelectorAll("time[data-at]")) say(time, age(Number(time.dataset.at)));
}
