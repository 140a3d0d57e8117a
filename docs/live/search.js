// Parts of the page that write: the beam as a tree, and training and writing side by side.
"use strict";

// --- The beam --------------------------------------------------------------------------------------------------------

const LINE = 30, GAP = 18, HIGH = 24; // pixels of the tree
const nextSearch = newest();

whenSeen("search", searchBeam);

/** Search with the beam and α that are set, then draw what was found. */
async function searchBeam() {
  const isWanted = nextSearch(), run = shown.greedy ?? shown, steps = [];
  const beam = Number(find("beam").value), alpha = Number(find("alpha").value);
  find("verdict").textContent = "Searching …";
  const keep = ({ nodes }) => steps.push(nodes.slice(0, 2 * beam));
  const best = await inSlices(beamSearch(model, run.source, beam, alpha), keep, isWanted);
  if (!isWanted()) return;
  // The winner is one of the finished, or, if none has ended, the likeliest beginning.
  const ends = steps.flat().filter(node => node.fate === "finished").sort((one, other) => other.score - one.score);
  const path = new Set();
  for (let node = ends[0] ?? steps.at(-1).find(one => one.fate === "kept"); node; node = node.parent) path.add(node);
  drawTree(steps, path);
  tellVerdict(run, best, beam, alpha);
  const row = ({ parent, logProb, length, score }) =>
    [tokenizer.decode(parent.ids), number(logProb), String(length), number(score)];
  find("finished").replaceChildren(
    make("caption", { textContent: ends.length ? "Finished translations, best first" : "None has finished." }),
    make("thead", {}, tableRow("th", ["translation", "log P", "length", "score"])),
    make("tbody", {}, ...ends.slice(0, 5).map(node => tableRow("td", row(node)))));
}

const tableRow = (name, cells) => make("tr", {}, ...cells.map(textContent => make(name, { textContent })));

function tellVerdict(run, best, beam, alpha) {
  const greedy = tokenizer.decode(run.ids), found = tokenizer.decode(best.ids);
  const ratio = Math.exp(best.logProb - run.logProb);
  const greedyScore = run.logProb / lengthPenalty(run.steps.length, alpha);
  const compared = ratio >= 1 ? `${number(ratio, 1)} times as probable.`
    : `less probable by a factor of ${number(1 / ratio, 1)}` + (best.score > greedyScore
      ? ", but the length penalty favours it." : ": the beam had dropped greedy's beginning on its way.");
  find("verdict").textContent = greedy === found
    ? `Greedy search and a beam of ${beam} agree: “${found}” (log P ${number(best.logProb)}).`
    : `They disagree. Greedy wrote “${greedy}” (log P ${number(run.logProb)}). A beam of ${beam} found “${found}” ` +
      `(log P ${number(best.logProb)}), which is ${compared}`;
}

/** Draw each step's continuations in a column, the likeliest on top, and a line to each from what it continues. */
function drawTree(steps, path) {
  const places = new Map(steps.flatMap((nodes, x) => nodes.map((node, y) => [node, { x: x + 1, y }])));
  const rows = Math.max(...steps.map(nodes => nodes.length));
  const fitting = Math.floor((document.documentElement.clientWidth - 64) / (steps.length + 1)); // into the window
  const column = fitting < 70 ? 80 : Math.min(fitting, 88);
  const width = column * (steps.length + 1), height = LINE * rows;
  const lines = makeSvg("svg", { width, height, "aria-hidden": "true" });
  const at = node => places.get(node) ?? { x: 0, y: 0 }; // the start has no place
  const drawn = new Map();
  const light = node => { // and the path back to the start
    const lit = new Set();
    for (let one = node; one; one = one.parent) lit.add(one);
    for (const [one, parts] of drawn) for (const part of parts) part.classList.toggle("off", node && !lit.has(one));
  };
  const buttons = [...places].map(([node, { x, y }]) => {
    const from = at(node.parent), isWinner = path.has(node);
    const left = column * (from.x + 1) - GAP, right = column * x;
    const above = LINE * from.y + HIGH / 2, level = LINE * y + HIGH / 2;
    const line = makeSvg("path", {
      d: `M ${left} ${above} C ${left + 16} ${above} ${right - 16} ${level} ${right} ${level}`,
      class: `${node.fate} ${isWinner ? "wins" : ""}`,
    }, lines);
    const word = labels([node.token])[0], fate = node.fate + (isWinner ? ", on the winner's path" : "");
    const button = make("button", {
      type: "button", className: `node ${node.fate} ${isWinner ? "wins" : ""}`, textContent: word, title: word,
      style: `left: ${column * x}px; top: ${LINE * y}px`, ariaLabel: `${word}, ${fate}, log P ${number(node.logProb)}`,
    });
    drawn.set(node, [button, line]);
    const tell = () => {
      light(node);
      const text = tokenizer.decode([...node.parent.ids, node.token]);
      find("tree-said").textContent = `“${text}”: ${fate}. log P ${number(node.logProb)}` +
        (node.score === undefined ? "." : `, score ${number(node.score)} (log P divided by the length penalty).`);
    };
    for (const event of ["mouseenter", "focus"]) button.addEventListener(event, tell);
    for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => light(null));
    return button;
  });
  const tree = find("tree");
  fill(tree, buttons);
  walkTree(tree, [...places.keys()], places);
  tree.prepend(lines, make("span", { className: "node root", textContent: "⟨start⟩" }));
  tree.style = `width: ${width}px; height: ${height}px; --node: ${column - GAP}px`;
  find("wide").hidden = width <= tree.parentElement.clientWidth;
  find("tree-said").textContent =
    "Pick a word, or walk through the tree with the arrow keys: ← to what it continues, → onward.";
}

/** Let left and right lead along the branches, up and down within a step. */
function walkTree(tree, nodes, places) {
  tree.onkeydown = event => {
    const buttons = [...tree.querySelectorAll("button")], node = nodes[buttons.indexOf(document.activeElement)];
    if (!node || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const { x, y } = places.get(node), step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = event.key === "ArrowLeft" ? node.parent
      : event.key === "ArrowRight" ? nodes.find(one => one.parent === node)
      : nodes.find(one => places.get(one).x === x && places.get(one).y === y + step);
    if (places.has(next)) focusOn(buttons, buttons[nodes.indexOf(next)]);
  };
}

for (const id of ["beam", "alpha"]) {
  find(id).oninput = () => {
    find(`${id}-value`).textContent = id === "alpha" ? Number(find(id).value).toFixed(1) : find(id).value;
    if (shown) searchBeam();
  };
}

// --- Training and writing --------------------------------------------------------------------------------------------

const SAME = 1e-5; // two log-probabilities that differ by less are equal: sums in another order differ in the last bits
const nextSides = newest();

whenSeen("sides", () => {
  nextSides(); // what is running belongs to another sentence
  find("sides").style.minHeight = `${find("sides").offsetHeight}px`; // so that what stands below stays where it is
  for (const id of ["training", "writing"]) find(id).replaceChildren();
  find("sides-said").textContent = "Press “Run both”.";
});

/** Compute log P of each next token twice: all positions at once, and one by one with a cache. */
async function runSides() {
  if (!shown) return;
  const isWanted = nextSides(), { source, steps } = shown, targets = steps.map(step => step.token);
  const inputs = [BOS, ...targets.slice(0, -1)], n = inputs.length, isMasked = !find("unmasked").checked;
  const named = [inputs, targets].map(labels), memory = model.encode(source), training = [];
  const states = model.decode(inputs, model.newCache(memory), { ...UNCHANGED, causal: isMasked });
  find("sides-said").textContent = "Writing …";
  const side = (id, className, squares) => {
    const rows = inputs.map((_, i) => make("tr", { className },
      make("td", { className: "squares", ariaHidden: true }, ...squares(i).map(kind => make("i", { className: kind }))),
      ...named.map(words => make("td", { textContent: words[i] })), make("td", { className: "log" })));
    const head = make("thead", {}, tableRow("th", ["may look at", "reads", "next", "log P of it"]));
    find(id).replaceChildren(head, make("tbody", {}, ...rows));
    return rows;
  };
  const left = side("training", "", i => inputs.map((_, k) => k <= i ? "seen" : isMasked ? "masked" : "seen leak"));
  const right = side("writing", "unwritten", i => inputs.slice(0, i + 1).map((_, k) => k < i ? "cached" : "seen"));
  for (const [i, state] of states.entries()) {
    training.push(model.logProbs(state)[targets[i]]);
    left[i].lastChild.textContent = number(training[i], 4);
    await wait(0);
    if (!isWanted()) return;
  }
  const cache = model.newCache(memory);
  let equal = 0;
  for (let i = 0; i < n; i++) {
    if (!isCalm()) await wait(PACE);
    if (!isWanted()) return;
    const logProb = model.logProbs(model.decode([inputs[i]], cache)[0])[targets[i]];
    const isSame = Math.abs(logProb - training[i]) < SAME, sign = { textContent: isSame ? " =" : " ≠" };
    equal += isSame;
    right[i].lastChild.textContent = number(logProb, 4);
    left[i].className = isSame ? "same" : "other"; // what was written is right
    right[i].className = isSame ? "same" : "";
    for (const row of [left[i], right[i]]) row.lastChild.append(make("b", sign));
  }
  find("sides-said").textContent = equal === n
    ? `All ${n} numbers are equal. Training took one pass, writing took ${n} steps: its cache holds ${n} positions.`
    : `${n - equal} of ${n} numbers differ. Without the mask, each position sees the very word that it should predict. ` +
      "But this model was never trained to see later words: to it, they are noise.";
}

find("run-sides").onclick = runSides;
find("unmasked").onchange = () => find("training").children.length && runSides();
