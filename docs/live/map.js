// The map: encoder and decoder, as in the paper's Figure 1. Its blocks light up as a word passes, and tell what they do.
"use strict";

const blocks = [...document.querySelectorAll("#machine button")]; // in the order in which they compute
let block; // which is told of
let passed = { run: null, step: 0 }; // the word that has passed last
let pace = 20; // milliseconds from block to block

/** Let the word of a step pass; before the first, the encoder reads. */
function passWord(step) {
  const { steps, text } = staged, isOther = passed.run !== staged || passed.step !== step;
  passed = { run: staged, step };
  find("map-source").textContent = text;
  const written = tokenizer.decode(steps.slice(0, step).map(one => one.token));
  find("map-written").textContent = `⟨start⟩ ${written}`.split(" ").slice(-3).join(" ");
  find("map-next").replaceChildren(...[...find("candidates").children].slice(0, 3).map(one => one.cloneNode(true)));
  tellPassing();
  if (isCalm() || !isOther) return;
  blocks.filter(({ value }) => !step || value.startsWith("decoder")).forEach((one, i) => one.animate(
    [{ backgroundColor: "rgba(var(--rgb), 0.5)", offset: 0 }], { duration: 12 * pace, delay: i * pace }));
}

/** Tell what a block is for. */
function chooseBlock(chosen) {
  const [stack, layer, kind] = chosen.value.split(".");
  block = chosen;
  for (const one of blocks) one.ariaPressed = one === block;
  for (const about of document.querySelectorAll("[data-about]")) {
    about.hidden = !about.dataset.about.split(" ").includes(`${stack}.${kind ?? layer}`);
  }
  find("block").textContent =
    `${stack === "encoder" ? "Encoder" : "Decoder"}${kind ? `, layer ${layer}` : ""}: ${block.textContent}`;
  tellPassing();
}

/** Tell what the block does with the word that has just passed. */
function tellPassing() {
  const [stack, , kind] = block.value.split("."), { run, step } = passed;
  const heads = run?.looks[block.value], row = stack === "decoder" ? step : undefined;
  fill(find("block-heads"), (run === shown && heads || []).map((_, head) =>
    headButton(`${block.value}.${head}`, `head ${head}`, pictureOf(`${block.value}.${head}`, row))));
  find("passing").textContent = "";
  if (!heads || stack === "encoder") return;
  const tokens = run.steps.map(one => one.token), most = heads.map(head => Math.max(...head[step]));
  const head = most.indexOf(Math.max(...most)), place = heads[head][step].indexOf(most[head]);
  const looked = labels(kind === "cross" ? run.source : [BOS, ...tokens])[place];
  find("passing").textContent = `To write “${labels(tokens)[step]}”, ${heads.length > 1 ? `head ${head}` : "it"} looks ` +
    `most at “${looked}”: ${percent(most[head])}.`;
}

for (const one of blocks) one.onclick = () => {
  chooseBlock(one);
  bringToSight(find("passing").parentElement);
  if (/\d\.(self|cross)$/.test(one.value)) lookAt(`${one.value}.0`);
};

find("next-word").onclick = () => {
  pace = 120;
  if (staged) tellCandidates((passed.step + 1) % staged.steps.length);
  pace = 20;
};
whenSeen("map", () => { // which may have shown the recording, and now has the model's own
  if (passed.run?.text === shown.text) passed.run = shown;
  tellPassing();
});
fill(find("machine"), blocks, -1); // the first stands at the bottom
chooseBlock(blocks.find(one => one.value === "decoder.2.cross"));
