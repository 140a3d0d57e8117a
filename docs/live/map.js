// The map: encoder and decoder, as in the paper's Figure 1. As a word passes, its blocks light up and show its numbers.
"use strict";

const blocks = [...document.querySelectorAll("#machine button")]; // in the order in which they compute
const BLOCK = 500; // milliseconds from block to block, when a word passes slowly
const HEADS = { before: "goes in", rows: "+ its heads", after: "add & norm" };
const STRIPES = { // the names of what a block tells
  self: HEADS, cross: HEADS, output: { after: "the last layer's" },
  embed: { before: "embedding", rows: "+ position: waves", after: "= what goes in" },
  feed: { before: "goes in", hidden: "512 within, max(0, …)", rows: "+ feed-forward", after: "add & norm" },
};
const nextPass = newest();
let block; // which is told of
let head; // of it, which was picked
let passed = { run: null, step: 0 }; // the word that has passed last

/** Let the word of a step pass. */
function passWord(step) {
  const { steps, text } = staged;
  passed = { run: staged, step };
  for (const one of document.querySelectorAll(".german")) one.textContent = text;
  const written = tokenizer.decode(steps.slice(0, step).map(one => one.token));
  find("map-written").textContent = `⟨start⟩ ${written}`.replace(/^(\S+ ){2,}(?=\S+ \S+$)/, "… ");
  find("map-next").replaceChildren(...[...find("candidates").children].slice(0, 3).map(one => one.cloneNode(true)));
  arrive();
  tellPassing();
}

/** Let the next word pass block by block, the first through the encoder, too; or stop the one that does. */
async function passSlowly() {
  if (find("machine").className || !staged) return arrive();
  tellCandidates((passed.step + 1) % staged.steps.length);
  if (isCalm()) return undefined;
  const isWanted = nextPass();
  find("next-word").textContent = "Stop";
  bringToSight(find("machine"));
  for (const one of blocks.filter(({ value }) => !passed.step || value.startsWith("decoder"))) {
    chooseBlock(one);
    find("machine").className = one.value.endsWith("cross") ? "passing crossing" : "passing";
    await wait(BLOCK);
    if (!isWanted()) return undefined;
  }
  return arrive();
}

/** End a slow passage: the word has arrived. */
function arrive() {
  nextPass();
  find("machine").className = "";
  find("next-word").textContent =
    staged && !staged.steps[passed.step + 1] ? "All is written: begin again" : "Let the next word pass, slowly";
}

/** Tell what a block is for. */
function chooseBlock(chosen) {
  const [stack, layer, kind] = chosen.value.split(".");
  block = chosen;
  head = undefined;
  for (const one of blocks) one.ariaPressed = one === block;
  for (const about of document.querySelectorAll("[data-about]")) {
    about.hidden = !about.dataset.about.split(" ").includes(`${stack}.${kind ?? layer}`);
  }
  find("block").textContent =
    `${stack === "encoder" ? "Encoder" : "Decoder"}${kind ? `, layer ${layer}` : ""}: ${block.textContent}`;
  tellPassing();
}

/** Show the numbers of the block for the word that has just passed; in the encoder, for the piece it looks at most. */
function tellPassing() {
  const [stack, layer, kind = layer] = block.value.split("."), { run, step } = passed, isEncoder = stack === "encoder";
  for (const id of ["passing", "block-heads", "cell", "stripes"]) find(id).replaceChildren();
  if (!run || run !== shown) return; // a recording has no numbers
  const source = labels(run.source), tokens = run.steps.map(one => one.token), word = labels(tokens)[step];
  const piece = largest(source.map((_, k) => mean(run.looks[lastCross()], step, k)), 1)[0];
  const [place, row] = isEncoder ? [0, piece] : [step, 0]; // the encoder has told of all pieces at once
  const told = run.told[kind === "output" ? "decoder.2.feed" : block.value][place];
  const aim = isEncoder ? `To read “${source[piece]}”, at which “${word}” looks most`
    : `After “${labels([BOS, ...tokens])[step]}”, to write “${word}”`;
  find("passing").textContent = `${aim}: 256 numbers, blue above 0, amber below.`;
  const strong = 0.7 * largestSize(["before", "rows", "after"].map(part => told[part][row]));
  find("stripes").replaceChildren(...Object.entries(STRIPES[kind]).flatMap(([part, textContent]) => [
    make("span", { textContent }), stripe(told[part][row], strong),
    make("small", { textContent: part === "hidden" ? `${told.hidden[row].filter(one => one > 0).length} above 0`
      : `${[...told[part][row].slice(0, 4)].map(one => number(one)).join("  ")} …` })]));
  if (kind === "output") {
    const { logProbs } = run.steps[step], logits = model.logits(told.after[row]);
    const { columns, values } = model.embedding, embedded = id => values.slice(id * columns, (id + 1) * columns);
    tellCell(["piece", "dot product", "softmax", "embedding"], largest(logProbs, 5).map(id => [
      labels([id])[0], number(logits[id]), softly(Math.exp(logProbs[id])), stripe(embedded(id), 0.15)]));
  }
  if (!told.looks) return;
  const tops = told.looks.map(one => Math.max(...one[row])), strongest = tops.indexOf(Math.max(...tops));
  const looked = isEncoder || kind === "cross" ? source : labels([BOS, ...tokens]), chosen = head ?? strongest;
  const weights = told.looks[chosen][row], most = looked[weights.indexOf(tops[chosen])];
  find("passing").textContent = `${aim}, head ${chosen} looks most at “${most}”: ${percent(tops[chosen])}.`;
  fill(find("block-heads"), told.looks.map((_, i) => {
    const name = `${block.value}.${i}`, picture = pictureOf(name, isEncoder ? piece : step);
    return Object.assign(headButton(name, `head ${i}`, picture), { ariaPressed: i === chosen, onclick: openHead });
  }), 2);
  const width = told.after[row].length / told.looks.length, from = chosen * width;
  const values = weights.map((_, k) => told.values[k].slice(from, from + width)), size = 0.7 * largestSize(values);
  const mix = values[0].map((_, i) => values.reduce((sum, value, k) => sum + weights[k] * value[i], 0));
  const places = largest(weights, 10).sort((one, other) => one - other);
  tellCell([places.length < weights.length ? "ten of them" : "looks at", `q · k / √${width}`, "softmax", "value"], [
    ...places.map(k => [looked[k], number(told.scores[chosen][row][k]), softly(weights[k]), stripe(values[k], size)]),
    ["mixed", "", "", stripe(mix, size)]]);
}

const largestSize = rows => Math.max(...rows.flatMap(row => [...row].map(Math.abs)));
const softly = part => make("span", { textContent: percent(part), style: `--weight: ${part}` });

/** Fill the table with one cell's sums. */
function tellCell(titles, rows) {
  find("cell").replaceChildren(make("thead", {}, tableRow("th", titles)), make("tbody", {}, ...rows.map(cells =>
    make("tr", {}, ...cells.map(cell => make("td", {}, cell))))));
}

/** Paint numbers side by side, each the stronger the larger it is beside `most`. */
function stripe(numbers, most) {
  const pixels = Uint32Array.from(numbers, one =>
    (one < 0 ? 0x1f83de : 0xe49250) | Math.round(255 * Math.min(1, Math.abs(one) / most)) << 24);
  const [low, high] = [Math.min, Math.max].map(end => number(end(...numbers)));
  const ariaLabel = `${numbers.length} numbers from ${low} to ${high}`;
  return Object.assign(paint(pixels, pixels.length), { role: "img", ariaLabel });
}

/** Open another head of the block. */
function openHead({ currentTarget }) {
  head = [...find("block-heads").children].indexOf(currentTarget);
  tellPassing();
  lookAt(currentTarget.value);
  find("block-heads").children[head].focus();
}

for (const one of blocks) one.onclick = () => {
  arrive();
  chooseBlock(one);
  bringToSight(find("passing").parentElement);
  const opened = find("block-heads").querySelector("[aria-pressed=true]");
  if (opened) lookAt(opened.value);
};

find("next-word").onclick = passSlowly;
whenSeen("map", () => { // which may have shown the recording, and now has the model's own
  if (passed.run?.ids.join() === shown.ids.join()) passed.run = shown;
  tellPassing();
});
fill(find("machine"), blocks, -1); // the first stands at the bottom
chooseBlock(blocks.find(one => one.value === "decoder.2.cross"));
