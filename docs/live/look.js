// Parts of the page that look into the model: where it looks, the pieces it reads, and what it does when it is broken.
"use strict";

const ROW = 30; // pixels of a word
const FAINTEST = 0.02; // of a weight that is drawn

/**
 * Two lists of words and a line for each weight; pointing at a word, on either side, shows its weights as numbers.
 * A click, a tap or the keyboard pins the word: it stays until another click on it, or Escape.
 */
class Look {
  /**
   * @param parent an empty element
   * @param lookedTitle, lookersTitle what stands above the words on the left, which are looked at, and on the right
   */
  constructor(parent, lookedTitle, lookersTitle) {
    const list = title => make("div", { className: "words", role: "group", ariaLabel: `${title}: words` });
    this.titles = [lookedTitle, lookersTitle].map(textContent => make("span", { textContent }));
    this.lists = { looked: list(lookedTitle), lookers: list(lookersTitle) };
    this.words = { looked: [], lookers: [] };
    this.pinned = null; // { side, place } of a word
    document.addEventListener("keydown", event => event.key === "Escape" && this.pin(null));
    this.lines = makeSvg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
    parent.replaceChildren(make("div", { className: "titles" }, ...this.titles),
      make("div", { className: "map" }, this.lists.looked, this.lines, this.lists.lookers));
  }

  /**
   * Show other words or weights; a word that is still in its place stays pinned.
   *
   * @param lookers, looked words
   * @param weight (looker, looked) => from 0 to 1
   * @param onPoint told of each word pointed at: (side, place, its strongest partner's place, that weight)
   */
  show({ lookers, looked, weight, onPoint = () => {} }) {
    const words = { lookers, looked }, isOther = side => words[side].join("\n") !== this.words[side].join("\n");
    if (this.pinned && isOther(this.pinned.side)) this.pinned = null;
    for (const side of ["looked", "lookers"].filter(isOther)) {
      fill(this.lists[side], words[side].map((word, i) => this.listen(side, i,
        make("button", { type: "button", title: word }, make("span", { textContent: word }), make("i")))));
    }
    Object.assign(this, { words, weight, onPoint, count: lookers.length });
    const height = ROW * Math.max(lookers.length, looked.length);
    this.lines.setAttribute("viewBox", `0 0 100 ${height}`);
    this.lines.style.height = `calc(var(--row) * ${height / ROW})`; // smaller on a phone
    this.release();
  }

  /** Let a button, here or elsewhere on the page, stand for a word. */
  listen(side, place, button) {
    const isPinned = () => this.pinned?.side === side && this.pinned.place === place;
    let wasPinned = false; // before the press that is about to focus it
    button.addEventListener("mouseenter", () => this.point(side, place));
    button.addEventListener("mouseleave", () => this.release());
    button.addEventListener("focus", () => this.pin({ side, place }));
    button.addEventListener("pointerdown", () => { wasPinned = isPinned(); });
    button.addEventListener("click", event => this.pin(event.detail && wasPinned ? null : { side, place }));
    return button;
  }

  /** Keep a word lit, or with null none. */
  pin(word) {
    this.pinned = word;
    this.release();
  }

  /** Show the pinned word again, or all lines. */
  release() {
    this.point(this.pinned?.side ?? null, this.pinned?.place);
  }

  /** Show only the first lookers, and what the last of these looks at. */
  reveal(count) {
    this.count = count;
    this.pinned = null;
    [...this.lists.lookers.children].forEach((button, i) => button.classList.toggle("unwritten", i >= count));
    this.point(count ? "lookers" : null, count - 1);
  }

  /** Show one word's weights, or with null all lines. */
  point(side, place) {
    const { lookers, looked } = this.words;
    const isPointed = (q, k) => side && place === (side === "lookers" ? q : k);
    this.lines.replaceChildren();
    for (let q = 0; q < this.count; q++) {
      for (let k = 0; k < looked.length; k++) {
        const weight = this.weight(q, k), from = ROW * (k + 0.5), to = ROW * (q + 0.5);
        if (weight < FAINTEST) continue;
        makeSvg("path", {
          d: `M 0 ${from} C 45 ${from} 55 ${to} 100 ${to}`, "vector-effect": "non-scaling-stroke",
          "stroke-width": 1 + 4 * weight,
          "stroke-opacity": isPointed(q, k) ? 0.25 + 0.75 * weight : (side ? 0.12 : 0.6) * weight,
        }, this.lines);
      }
    }
    const partner = side === "lookers" ? "looked" : "lookers";
    for (const one of ["looked", "lookers"]) {
      [...this.lists[one].children].forEach((button, i) => {
        const weight = one !== partner || !side || (partner === "lookers" && i >= this.count) ? null
          : side === "lookers" ? this.weight(place, i) : this.weight(i, place);
        button.style.setProperty("--weight", weight ?? 0);
        button.lastChild.textContent = weight === null || weight < 0.005 ? "" : `${Math.round(100 * weight)} %`;
        button.classList.toggle("pointed", one === side && i === place);
        button.ariaPressed = this.pinned?.side === one && this.pinned.place === i;
      });
    }
    if (!side) return this.onPoint(null);
    const weights = side === "lookers" ? looked.map((_, k) => this.weight(place, k))
      : lookers.map((_, q) => this.weight(q, place));
    const best = weights.indexOf(Math.max(...weights));
    return this.onPoint(side, place, best, weights[best]);
  }
}

// --- The pieces ------------------------------------------------------------------------------------------------------

whenSeen("pieces", () => {
  const { text, source } = shown, named = labels(source);
  find("read").replaceChildren(...source.map((id, i) => make(
    "li", { className: `${continues(id) && i ? "joined" : ""} ${id === EOS ? "special" : ""}` },
    make("span", { textContent: named[i], lang: "de" }), make("small", { textContent: id }))));
  const words = text.trim().split(/\s+/u).length, pieces = source.length - 1;
  find("read-count").textContent = `${words} ${words === 1 ? "word" : "words"} with punctuation, ${pieces} ` +
    `${pieces === 1 ? "piece" : "pieces"}, and ⟨end⟩, which every sentence gets.`;
});

// --- Where it looks --------------------------------------------------------------------------------------------------

const KINDS = [ // of heads
  ["encoder", "self", "German at German"],
  ["decoder", "self", "English at English"],
  ["decoder", "cross", "English at German"],
];
const nextDrawing = newest();
let looks; // the picture
let view = "decoder.2.cross.0"; // the head that it shows, or "mean" of its layer's

whenSeen("where", () => {
  looks ??= new Look(find("looks"), "is looked at", "looks");
  if (!find("thumbnails").children.length) {
    gridsOfHeads("thumbnails", "heads to look at", ["mean"], headButton);
  }
  inSlices(drawThumbnails(), () => {}, nextDrawing());
  showLooks();
});

/** Fill a place with a grid for each kind: a row for each layer, with a button for each head, and for `more`. */
function gridsOfHeads(place, what, more, button) {
  const { heads, layers } = model.config, columns = [...Array(heads).keys(), ...more];
  find(place).replaceChildren(...KINDS.map(([stack, kind, title]) => {
    const rows = [...Array(layers).keys()].map(layer => columns.map(head =>
      button(`${stack}.${layer}.${kind}.${head}`, `${title}, layer ${layer}, ${headName(head)}`)));
    const [corner, ...names] = ["", ...columns, ...rows.keys()].map(one =>
      make("small", { textContent: one === "mean" ? "avg" : one, ariaHidden: true }));
    const grid = make("div", { className: "toggles", role: "group", "aria-label": `${title}: ${what}`,
      style: `grid-template-columns: repeat(${1 + columns.length}, auto)` },
    corner, ...names.splice(0, columns.length), ...rows.flatMap((row, layer) => [names[layer], ...row]));
    fill(grid, rows.flat(), columns.length);
    return make("div", {}, make("p", { textContent: title }), grid);
  }));
}

const headName = head => head === "mean" ? "its heads averaged" : `head ${head}`;

/** Give a head's weights, or its layer's on average, as (query, key) => weight. */
function weigh(name) {
  const [stack, layer, kind, head] = name.split("."), heads = shown.looks[`${stack}.${layer}.${kind}`];
  return (q, k) => head === "mean" ? mean(heads, q, k) : weightOf(heads[head], q, k);
}

/** Make a small picture of a head: a row for each word that looks, or with `row` one above all, a column for each seen. */
function pictureOf(name, row) {
  const weight = weigh(name), [stack, , kind] = name.split("."), { source, steps } = shown;
  const width = (kind === "cross" || stack === "encoder" ? source : steps).length;
  const height = (stack === "encoder" ? source : steps).length, pixels = new Uint32Array(width * height);
  for (let q = 0; q < height; q++) {
    const strength = q === (row ?? q) ? 255 : 110;
    for (let k = 0; k < width; k++) pixels[q * width + k] = 0xe49250 | Math.round(strength * weight(q, k)) << 24;
  }
  return paint(pixels, width);
}

/** Paint pixels, each 0xAABBGGRR. */
function paint(pixels, width) {
  const canvas = make("canvas", { width, height: pixels.length / width });
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width), 0, 0);
  return canvas;
}

function* drawThumbnails() {
  for (const button of find("thumbnails").querySelectorAll("button")) {
    button.replaceChildren(pictureOf(button.value));
    yield;
  }
}

/** Show another head. */
function lookAt(name) {
  view = name;
  if (looks) showLooks();
}

function showLooks() {
  const [stack, layer, kind, head] = view.split(".");
  const source = labels(shown.source), written = labels(shown.steps.map(step => step.token));
  const seen = ["⟨start⟩", ...written.slice(0, -1)];
  const lookers = stack === "encoder" ? source : seen.map((word, i) => `${word} → ${written[i]}`);
  const looked = kind === "cross" || stack === "encoder" ? source : seen;
  const where = `layer ${layer}, ${headName(head)}`, one = Math.min(1, seen.length - 1);
  find("view").textContent = `${KINDS.find(one => one[0] === stack && one[1] === kind)[2]}, ${where}`;
  for (const one of find("thumbnails").querySelectorAll("button")) one.ariaPressed = one.value === view;
  looks.show({
    lookers, looked, weight: weigh(view),
    onPoint: (side, place, best, weight) => {
      const strength = `${Math.round(100 * weight)} % (${where}).`;
      find("looks-said").textContent =
        side === "lookers" ? `“${lookers[place]}” looks most at “${looked[best]}”: ${strength}`
        : side === "looked" ? `“${looked[place]}” is looked at most by “${lookers[best]}”: ${strength}`
        : "Pick a word, on either side, to keep it lit." + (stack === "encoder" ? ""
          : ` “${lookers[one]}” has read “${seen[one]}” and is about to write “${written[one]}”.`);
    },
  });
}

/** Show the head that a button names, where one sees it. */
const pickHead = ({ currentTarget }) => { lookAt(currentTarget.value); bringToSight(find("looks")); };

const headButton = (value, ariaLabel, ...pictures) =>
  make("button", { type: "button", ariaLabel, title: ariaLabel, value, onclick: pickHead }, ...pictures);

for (const button of document.querySelectorAll("#where > .buttons button")) button.onclick = pickHead;

// --- Break it --------------------------------------------------------------------------------------------------------

const broken = { hidden: new Set(), positions: true, causal: true, heads: new Set() };
const nextBreak = newest();
let wish = null; // a sentence, and the place of a word in it that a button asks to hide

for (const button of document.querySelectorAll("[data-hide]")) {
  button.addEventListener("click", () => { wish = button.dataset; });
}

whenSeen("break", () => {
  broken.hidden = new Set(wish?.sentence === shown.text ? [Number(wish.hide)] : []);
  wish = null;
  const words = labels(shown.source);
  fill(find("hide"), shown.source.slice(0, -1).map((id, i) =>
    toggle(words[i], broken.hidden, i, { className: continues(id) && i ? "joined" : "" })));
  if (!find("heads").children.length) {
    gridsOfHeads("heads", "heads to switch off", [], (name, label) =>
      toggle(name.at(-1), broken.heads, name, { ariaLabel: `switch off ${label}` }));
  }
  breakIt();
});

/** Name what is changed now, "" if nothing. */
function tellChanges({ hidden, positions, causal, heads }) {
  const words = labels(shown.source), count = heads.size;
  return [
    hidden.size ? `${words.filter((_, i) => hidden.has(i)).map(word => `“${word}”`).join(", ")} hidden` : "",
    positions ? "" : "positions off", causal ? "" : "causal mask off",
    count ? `${count} ${count === 1 ? "head" : "heads"} off` : "",
  ].filter(Boolean).join("; ");
}

/** Make a button that puts something into a set, pressed, and takes it out again. */
function toggle(textContent, set, item, properties) {
  return make("button", {
    type: "button", textContent, ariaPressed: set.has(item), ...properties,
    onclick: event => {
      if (!set.delete(item)) set.add(item);
      event.target.ariaPressed = set.has(item);
      breakIt();
      bringToSight(find("after").closest(".pair"));
    },
  });
}

/** Translate with the changes, and mark what became different. */
async function breakIt() {
  const isWanted = nextBreak(), { source, ids } = shown.greedy ?? shown, steps = [];
  broken.positions = find("positions").checked;
  broken.causal = find("causal").checked;
  const changes = { ...broken, hidden: new Set(broken.hidden), heads: new Set(broken.heads) };
  const changed = tellChanges(changes);
  find("still").textContent = changed && `Changed: ${changed}.`;
  find("changed").textContent = "Translating …";
  await inSlices(greedyDecode(model, source, changes), step => steps.push(step.token), isWanted);
  if (!isWanted()) return;
  const [old, now] = [ids, steps].map(one => tokenizer.decode(one).split(/\s+/u).filter(Boolean));
  const kept = commonWords(old, now);
  const marked = (words, places, name) =>
    words.flatMap((word, i) => [places.has(i) ? word : make(name, { textContent: word }), " "]);
  find("before").replaceChildren(...marked(old, kept.old, "del"));
  find("after").replaceChildren(...(now.length ? marked(now, kept.now, "ins") : ["(nothing: it stops at once)"]));
  const gone = old.length - kept.old.size, fresh = now.length - kept.now.size;
  const are = count => count === 1 ? "is" : "are";
  find("changed").textContent = !changed ? "Nothing is broken yet."
    : old.join(" ") === now.join(" ") ? "Not a word changed: here, the model can do without it."
    : `${gone} of ${old.length} words ${are(gone)} gone (struck out), ${fresh} ${are(fresh)} new (underlined).` +
      (steps.at(-1) === EOS ? "" : " It found no end, and was cut off.");
}

/** Find the longest sequence of words that both texts have, as places in each. */
function commonWords(old, now) {
  const longest = Array.from({ length: old.length + 1 }, () => new Array(now.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      longest[i][j] = old[i] === now[j] ? 1 + longest[i + 1][j + 1] : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const places = { old: new Set(), now: new Set() };
  for (let i = 0, j = 0; i < old.length && j < now.length;) {
    if (old[i] === now[j]) {
      places.old.add(i++);
      places.now.add(j++);
    } else if (longest[i + 1][j] >= longest[i][j + 1]) i++;
    else j++;
  }
  return places;
}

for (const id of ["positions", "causal"]) find(id).onchange = () => shown && breakIt();

find("mend").onclick = () => {
  broken.hidden.clear();
  broken.heads.clear();
  for (const id of ["positions", "causal"]) find(id).checked = true;
  for (const button of document.querySelectorAll("#break [aria-pressed]")) button.ariaPressed = false;
  if (shown) breakIt();
};
