// What the pictures to play with share. Each output of a notebook holds a copy, in a function of its own.
/** Make an HTML element with these properties, last in its parent. */
function make(name, parent, properties = {}) {
  return parent.appendChild(Object.assign(document.createElement(name), properties));
}

/** Set an SVG element's attributes, numbers to two decimals; `text` is what it says. */
function set(element, { text, ...attributes }) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === "number" ? +value.toFixed(2) : value);
  }
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Draw an SVG element with these attributes, last in its parent. */
function draw(name, parent, attributes = {}) {
  return parent.appendChild(set(document.createElementNS("http://www.w3.org/2000/svg", name), attributes));
}

/** Write a number with so many decimals, a proper minus, and no negative zero. */
function fixed(number, digits = 2) {
  return number.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
}

/** Give softmax's weights for a list of scores. */
function softmax(scores) {
  const powers = scores.map(score => Math.exp(score - Math.max(...scores)));
  return powers.map(power => power / powers.reduce((sum, one) => sum + one));
}

/** One picture on a page: its data, its controls, its panels, and the line that says what happens. */
class Play {
  constructor(box) {
    [this.box, this.data] = [box, JSON.parse(box.dataset.data)];
    this.controls = make("div", box, { className: "play-controls" });
    this.panels = make("div", box, { className: "play-panels" });
    this.said = make("p", box, { className: "play-said", ariaLive: "polite" });
    box.querySelector(".play-still").replaceWith(this.controls, this.panels, this.said);
    // In JupyterLab d d would delete the cell: no key gets out but those that save, run it, or are the browser's.
    const passes = event => event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === "Enter");
    box.addEventListener("keydown", event => passes(event) || event.stopPropagation());
    box.tabIndex = -1;  // a click anywhere in it takes the keys there
  }

  /** Say what is to be seen now; a screen reader reads it out. */
  say(words) { this.said.textContent = words; }

  /** Add a slider that shows its value as `show` writes it; `changed` gets each new one, `onchange` the last. */
  slider(label, { min, max, step = 1, value, show = String, onchange = null }, changed) {
    const field = make("label", this.controls, { textContent: label });
    const input = make("input", field, { type: "range", ariaLabel: label, min, max, step, value, onchange });
    const output = make("output", field);
    const update = () => { input.ariaValueText = output.textContent = show(+input.value); };
    input.addEventListener("input", () => { update(); changed(+input.value); });
    update();
    return { get value() { return +input.value; }, set value(number) { input.value = number; update(); },
      set max(number) { input.max = number; } };
  }

  /** Add a button; `clicked` is called at each click. */
  button(words, clicked) {
    return make("button", this.controls, { type: "button", textContent: words, onclick: clicked });
  }

  /** Add buttons of which one, at first the first, is pressed; `changed` gets its place. */
  choice(names, changed) {
    const buttons = names.map((name, i) => this.button(name, () => { press(i); changed(i); }));
    const press = i => buttons.forEach((button, j) => { button.ariaPressed = i === j; });
    press(0);
  }

  /** Fold away, below the rest, the controls and panels that are added from here on. */
  more(words, ontoggle) {
    const fold = make("details", this.box, { className: "play-more", ontoggle });
    this.box.querySelector("details").before(fold);
    make("summary", fold, { textContent: words });
    [this.controls, this.panels] = ["controls", "panels"].map(part => make("div", fold, { className: `play-${part}` }));
    return fold;
  }

  /** Let it move by itself, once, when it comes into view: `apply` gets the share of the way, from 0 to 1, and gives
   * true where it ends early. Any touch or key holds it, and a button goes on. A reader who wants no motion, a still and a
   * printed page see the end. What is returned starts it anew. */
  moves(apply, milliseconds) {
    const { box } = this, button = this.button("", () => frame ? hold() : go());
    box.querySelector(".play-controls").prepend(Object.assign(button, { className: "play-moves" }));
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let share = +still, frame = 0, last = 0, moving = false;
    const tell = () => [button.textContent, this.said.ariaLive] =
      frame ? ["pause", "off"] : [share === 1 ? "▶ again" : "▶ play", "polite"];
    const place = at => { share = apply(at) ? 1 : at; };
    const step = now => {
      const next = Math.min(share + Math.min(Math.max(now - last, 0), 100) / milliseconds, 1);  // none is left out
      place(next);
      [last, frame] = [now, share < 1 ? requestAnimationFrame(step) : 0];
      tell();
    };
    const hold = () => { cancelAnimationFrame(frame); frame = 0; inView.disconnect(); tell(); };
    const go = () => {
      hold();
      [share, last, frame] = [share % 1, performance.now(), requestAnimationFrame(step)];
      tell();
    };
    const inView = new IntersectionObserver(([seen]) => seen.intersectionRatio > 0.4 && go(), { threshold: 0.5 });
    const touched = ({ target }) => { if (target !== button) { moving = frame > 0; hold(); } };
    for (const kind of ["pointerdown", "keydown", "input"]) box.addEventListener(kind, touched, true);
    box.addEventListener("pointercancel", () => moving && go());  // the finger only scrolled
    const finish = () => { place(1); hold(); };
    addEventListener("beforeprint", () => share && !frame || finish());
    if (!share) inView.observe(box.querySelector(".play-panels"));
    place(share);
    tell();
    return () => { finish(); if (!still) go(); };
  }

  /** Add a drawing of this size in pixels; `label` is its name for those who cannot see it. */
  panel(width, height, label) {
    const size = { viewBox: `0 0 ${width} ${height}`, width, height };
    return draw("svg", this.panels, { ...size, role: "group", "aria-label": label });
  }

  /** Let a handle be dragged: `moved(x, y)` gets the place in its panel, `stepped(right, up)` an arrow key's ±1. */
  drag(handle, panel, label, moved, stepped) {
    const move = event => moved(placeIn(panel, event).x, placeIn(panel, event).y);
    set(handle, { class: "play-handle", tabindex: 0, role: "slider", "aria-label": label, "aria-valuenow": 0 });
    handle.addEventListener("touchstart", event => event.preventDefault());  // a finger drags it and scrolls elsewhere
    handle.addEventListener("pointerdown", event => handle.setPointerCapture(event.pointerId));
    handle.addEventListener("pointermove", event => handle.hasPointerCapture(event.pointerId) && move(event));
    panel.addEventListener("click", move);
    onArrows(handle, stepped);
  }
}

/** Give the place of a pointer's event, x and y, in a panel's own pixels. */
function placeIn(panel, event) {
  return new DOMPoint(event.clientX, event.clientY).matrixTransform(panel.getScreenCTM().inverse());
}

/** Call `stepped(right, up)` with −1, 0 or 1 for each arrow key. */
function onArrows(element, stepped) {
  const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  element.addEventListener("keydown", event => {
    if (!(event.key in steps)) return;
    event.preventDefault();  // the page does not scroll
    stepped(...steps[event.key]);
  });
}

/** Call `apply` with numbers from 0 to 1 for so many milliseconds; with 1 at once, where a reader wants no motion. */
function glide(apply, milliseconds = 600) {
  const mine = glide.newest = {}, begun = performance.now();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) milliseconds = 0;
  (function step(now) {
    if (mine !== glide.newest) return;
    const share = milliseconds ? Math.min(Math.max(now - begun, 0) / milliseconds, 1) : 1;
    apply(share * share * (3 - 2 * share));
    if (share < 1) requestAnimationFrame(step);
  })(begun);
}

/** Start a picture in each box of its name that has not begun. */
function start(name, picture) {
  for (const box of document.querySelectorAll(`.play[data-name="${name}"]:not([data-ready])`)) {
    box.dataset.ready = "true";
    picture(new Play(box));
  }
}
