// What all parts of the page use: elements, keys, work in slices, and the names of tokens.
"use strict";

const SLICE = 12; // milliseconds of work, then the browser may draw and listen
const parts = []; // of the page, which are brought up to date when they are seen

/** Do something with what the browser has kept of an earlier visit; give null where it keeps nothing. */
function stored(action) {
  try {
    return action(localStorage);
  } catch {
    return null; // refused, as some browsers do for a file
  }
}

const find = id => document.getElementById(id);
const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Make an element; what a user has typed is text, never HTML. */
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** Make an element of a drawing. */
function makeSvg(name, attributes, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

/** Let Tab enter a group of buttons, new ones or its own, once, and arrow keys walk through; `columns` if in rows. */
function fill(group, buttons, columns = 1) {
  buttons.forEach((button, i) => { button.tabIndex = i ? -1 : 0; });
  if (!group.contains(buttons[0])) group.replaceChildren(...buttons);
  group.onkeydown = event => {
    const all = [...group.querySelectorAll("button")], place = all.indexOf(document.activeElement);
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -all.length, End: all.length,
    };
    if (!(event.key in steps) || place < 0) return;
    event.preventDefault();
    focusOn(all, all[Math.min(Math.max(place + steps[event.key], 0), all.length - 1)]);
  };
}

/** Focus one of a group's buttons, which Tab will come back to. */
function focusOn(all, button) {
  for (const one of all) one.tabIndex = one === button ? 0 : -1;
  button.focus();
}

/** Scroll until an element can be seen, and no further. */
const bringToSight = element => element.scrollIntoView({ block: "nearest", behavior: isCalm() ? "auto" : "smooth" });

/** Let time pass, in which the browser draws and listens. */
const wait = milliseconds => new Promise(resolve => { setTimeout(resolve, milliseconds); });

/** Run a generator in slices; give what it returns, or stop with undefined as soon as nobody wants it any more. */
async function inSlices(generator, take, isWanted) {
  for (let until = performance.now() + SLICE; ;) {
    const { value, done } = generator.next();
    if (done) return value;
    take(value);
    if (performance.now() < until) continue;
    await wait(0);
    if (!isWanted()) return undefined;
    until = performance.now() + SLICE;
  }
}

/** Make a function that tells of each run whether it is still the newest. */
function newest() {
  let count = 0;
  return () => {
    const mine = ++count;
    return () => mine === count;
  };
}

/** Refresh a part of the page after each translation, but not before it is seen. */
function whenSeen(id, refresh) {
  const part = { id, stale: false, seen: false, refresh };
  parts.push(part);
  new IntersectionObserver(entries => {
    part.seen = entries.at(-1).isIntersecting;
    bringUpToDate(part);
  }, { rootMargin: "300px" }).observe(find(id));
}

/** Bring up to date what is seen, and the rest as soon as it is. */
function refresh() {
  for (const part of parts) part.stale = true;
  parts.forEach(bringUpToDate);
}

function bringUpToDate(part) {
  if (!part.stale || !part.seen) return;
  part.stale = false;
  part.refresh();
}

addEventListener("beforeprint", () => {
  for (const part of parts) bringUpToDate(Object.assign(part, { seen: true }));
});

/** Name each token; where several make up one character, "🙂 1/4", "🙂 2/4" …. */
function labels(ids) {
  const named = [];
  for (let start = 0, end = 1; end <= ids.length; end++) {
    const text = tokenizer.decode(ids.slice(start, end));
    if (text.includes("\ufffd") && end < ids.length && end - start < 4) continue; // an unfinished character
    const whole = ids[start] === BOS ? "⟨start⟩" : ids[start] === EOS ? "⟨end⟩" : text || "␣";
    const parts = end - start;
    for (let part = 1; part <= parts; part++) named.push(parts > 1 ? `${whole} ${part}/${parts}` : whole);
    start = end;
  }
  return named;
}

/** Tell whether a token goes on with the word before it. */
const continues = id => id >= SPECIALS.length && !tokenizer.tokens[id].startsWith("Ġ");

const percent = part => part < 0.001 ? "< 0.1 %" : `${(100 * part).toFixed(part < 0.0995 ? 1 : 0)} %`;
const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
