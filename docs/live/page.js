// The page "Watch a Transformer translate": the sentence, and its translation word by word.
// What all parts use is in parts.js; builder.js makes sentences; map.js, look.js (pieces, where it looks, break it) and
// search.js (the beam, side by side) show what `translate` here has found. ask.js has a model of its own.
"use strict";

const PACE = 250; // milliseconds a word, so that one can watch
const LONGEST_TEXT = 600; // characters; longer ones are refused
const LONGEST_SOURCE = 60; // tokens; what follows is cut off
const CAPTIONS = [ // German, and what it means
  ["Zwei Hunde spielen im Schnee mit einem Ball.", "Two dogs are playing with a ball in the snow."],
  ["Ein Mann mit Hut spielt auf der Straße Gitarre.", "A man with a hat is playing the guitar in the street."],
  ["Ein Mädchen in einem gelben Kleid tanzt im Regen.", "A girl in a yellow dress is dancing in the rain."],
  ["Eine Frau liest ihrem Sohn ein Buch vor.", "A woman is reading a book to her son."],
  ["Drei Kinder bauen am Strand eine Sandburg.", "Three children are building a sandcastle on the beach."],
  ["Ein Radfahrer fährt bei Sonnenuntergang über eine Brücke.", "A cyclist is riding across a bridge at sunset."],
  ["Zwei Männer tragen ein Sofa die Treppe hinauf.", "Two men are carrying a sofa up the stairs."],
  ["Ein Mann in einem Anzug telefoniert, während er auf den Bus wartet.",
    "A man in a suit is on the phone while he waits for the bus."],
  ["Ein Mann schläft auf einer Bank im Park.", "A man is sleeping on a bench in the park."],
  ["Die Bergsteigerin ruht sich auf einem Felsen aus.", "The mountaineer, a woman, is resting on a rock."],
  ["Eine Katze sitzt auf dem Fensterbrett und schaut hinaus.", "A cat is sitting on the windowsill, looking out."],
];
const MEANINGS = new Map([...CAPTIONS,
  ["Der Bundestag hat gestern über die Rentenreform abgestimmt.", "Parliament voted on the pension reform yesterday."],
  ["Wann fährt der nächste Zug nach Berlin?", "When does the next train to Berlin leave?"],
  ["Kein Mann trägt einen Hut.", "No man is wearing a hat."],
]);

const tokenizer = new Tokenizer(RECORDED);
let model; // as soon as the weights have come
let shown = null; // the translation that the page is about: see `translate`
let staged = null; // the translation that is written at the top: the same, or before there's a model, the recorded one

// --- Translating -----------------------------------------------------------------------------------------------------

/**
 * Translate greedily, after what it has to begin with, and keep all there is to see.
 *
 * @returns { text, source, ids, steps, looks, told, logProb, seconds }: a step is { token, logProbs }; the last is
 *   <eos>, unless the translation was cut off; `insist` adds `chosen`, a step, and `greedy`, what would stand without it
 */
async function translate(text, source, isWanted, begun = []) {
  const started = performance.now(), steps = [], looks = {}, told = {};
  await inSlices(greedyDecode(model, source, UNCHANGED, begun), step => steps.push(step), isWanted);
  if (!isWanted()) return null;
  const seconds = (performance.now() - started) / 1000;
  const written = steps.map(step => step.token), ids = written.filter(id => id !== EOS);
  await inSlices(reread(source, written, looks, told), () => {}, isWanted);
  if (!isWanted()) return null;
  const logProb = steps.reduce((sum, step) => sum + step.logProbs[step.token], 0);
  return { text, source, ids, steps, looks, told, logProb, seconds };
}

/** Give what was recorded of the first sentence as `translate` would: so the page moves while the weights come. */
function recorded() {
  const { text, source, steps, look } = RECORDED;
  return {
    text, source, looks: { [lastCross()]: [look] }, ids: steps.map(step => step.token).filter(id => id !== EOS),
    steps: steps.map(({ token, best }) => {
      const logProbs = new Float32Array(tokenizer.tokens.length).fill(-Infinity);
      for (const [id, part] of best) logProbs[id] = Math.log(part);
      return { token, logProbs };
    }),
  };
}

/** Read source and translation again, and record where each head looks, and all that each block tells. */
function* reread(source, written, looks, told) {
  const watch = (name, one) => {
    (told[name] ??= []).push(one);
    if (one.looks) record(looks, name, one.looks);
  };
  const cache = model.newCache(model.encode(source, UNCHANGED, watch));
  yield;
  for (const id of [BOS, ...written.slice(0, -1)]) yield model.decode([id], cache, UNCHANGED, watch);
}

/** Read what was typed: { source, note }, or only a note where there is nothing to translate. */
function read(text) {
  if (text.length > LONGEST_TEXT) {
    return { note: `That's ${text.length.toLocaleString("en")} characters. This model has read captions of a dozen ` +
      `words: please give it a sentence of up to ${LONGEST_TEXT} characters.` };
  }
  const ids = tokenizer.encode(text);
  if (!ids.length) return { note: "There's nothing to translate yet: type a German sentence, or choose a caption." };
  const source = [...ids.slice(0, LONGEST_SOURCE), EOS], language = languageOf(respelled(text));
  if (ids.length > LONGEST_SOURCE) {
    const end = tokenizer.decode(source.slice(-8));
    const cut = `Only the first ${LONGEST_SOURCE} pieces are translated, up to “… ${end}”.`;
    return { source, note: `${language || "That's long."} ${cut}` };
  }
  const spelled = !language && labels(source).find(label => / 1\/\d$/.test(label));
  if (spelled) {
    const unknown = `“${spelled.slice(0, -4)}” isn't among the 6,000 pieces that it knows`;
    return { source, note: `${unknown}: it sees only raw bytes, and guesses.` };
  }
  return { source, note: language };
}

const nextSentence = newest(), nextShow = newest();
let wasTyped = false; // whether the sentence in the address came by a pause in typing
let skip = () => {};

/** Translate what stands in the field, and write it word by word; `isTyped` if whoever types has only paused. */
async function go(isTyped = false) {
  const text = find("sentence").value.replace(/\p{Surrogate}/gu, "\ufffd"); // half a character has no address
  const isWanted = nextSentence(), goesOn = Boolean(model && !shown && staged?.text === text);
  clearTimeout(pausing);
  fitSentence();
  const { source, note } = read(text);
  const still = shown && !source ? ` The sections below are still about “${brief(shown.text)}”` : "";
  const isEarly = source && !model && text !== RECORDED.text;
  find("note").textContent = note + still + (isEarly ? " This will be translated as soon as the model is here: " : "");
  if (source) remember(`#s=${encodeURIComponent(text)}`, isTyped);
  if (!goesOn) { // the recorded one is just being written
    nextShow(); // stops the one before from being written
    find("meaning").textContent = "";
    find("stage").className = `stage ${source ? "waiting" : "empty"}`;
    find("time").textContent = source && model ? "Translating …" : "";
    if (!source) return;
    find("skip").textContent = "Skip";
  }
  const run = model ? await translate(text, source, isWanted) : text === RECORDED.text ? recorded() : null;
  if (!run) return;
  const isOther = !goesOn || run.ids.join() !== staged.ids.join();
  staged = run;
  if (model) {
    shown = run;
    performance.mark("live");
    refresh();
    advise(run, isWanted);
  }
  if (isOther) await show();
  else if (find("skip").textContent === "Play again") tellTime();
}

/** Write another word at a step, and go on greedily from there; the address stays the sentence's. */
async function insist(step, id) {
  const isWanted = nextSentence(), { text, source, steps, greedy = shown } = shown;
  const begun = [...steps.slice(0, step).map(one => one.token), id];
  const run = await translate(text, source, isWanted, begun);
  if (!run) return;
  if (run.ids.join() !== greedy.ids.join()) Object.assign(run, { greedy, chosen: step });
  staged = shown = run;
  refresh();
  bringToSight(find("english"));
  show(step);
}

/** Keep a sentence in the address, each that was chosen as a step for the browser's Back. */
function remember(address, isTyped) {
  if (location.hash === address) return;
  const isStep = location.hash && !(isTyped && wasTyped);
  history[isStep ? "pushState" : "replaceState"](null, "", location.href.split("#")[0] + address);
  wasTyped = isTyped;
}

/** Shorten what is only to be recognised. */
const brief = text => text.length > 60 ? `${text.slice(0, 60)}…` : text;

/** Write the translation that was found, word by word, from the one that was chosen on. */
async function show(chosen = null) {
  const isWanted = nextShow(), run = staged, labelled = labels(run.steps.map(step => step.token));
  const pace = Math.min(PACE, 5000 / labelled.length); // all of it in five seconds
  let isSkipped = isCalm();
  find("stage").className = "stage";
  find("english").textContent = `English: ${run.greedy ? "your choice, then " : ""}the likeliest word each time`;
  find("back").hidden = !run.greedy;
  find("time").textContent = "";
  find("skip").textContent = "Skip";
  skip = () => { isSkipped = true; };
  alignment.show({
    lookers: labelled, looked: labels(run.source), weight: (q, k) => mean(run.looks[lastCross()], q, k),
    onPoint: (side, i) => { if (side === "lookers") tellCandidates(i); },
  });
  const buttons = labelled.map((label, i) => {
    const button = make("button", { type: "button", textContent: label });
    button.classList.toggle("special", run.steps[i].token === EOS);
    return alignment.listen("lookers", i, button);
  });
  tellDoubt(wordsWritten(run.steps), buttons);
  fill(find("translation"), buttons);
  for (const [i, button] of buttons.entries()) { // a word's pieces stay together
    if (i && continues(run.steps[i].token)) find("translation").lastChild.append(button);
    else find("translation").append(make("span", {}, button));
  }
  const reveal = count => {
    buttons.forEach((button, i) => button.classList.toggle("unwritten", i >= count));
    alignment.reveal(count);
    tellCandidates(Math.max(0, count - 1));
  };
  find("doubt").classList.add("unwritten"); // so that nothing moves when it comes
  reveal(chosen ?? 0);
  for (let count = chosen ?? 0, started = performance.now() - count * pace; count < buttons.length;) {
    for (const until = started + count * pace; performance.now() < until && !isSkipped;) { // the first comes at once
      await wait(25);
      if (!isWanted()) return;
    }
    count = isSkipped ? buttons.length : count + 1;
    reveal(count);
    performance.mark("word"); // for those who measure
  }
  alignment.point(null);
  const logProbs = run.steps.map(step => step.logProbs[step.token]);
  const leastSure = logProbs.indexOf(Math.min(...logProbs)); // there's most to see
  tellCandidates(chosen ?? leastSure, chosen === null ? "Least sure here: " : "Your choice: ");
  const isLost = chosen !== null && document.activeElement === document.body; // the focus, with the button that had it
  if (isLost) find("candidates").querySelector(".taken button")?.focus({ preventScroll: true });
  skip = show;
  find("skip").textContent = "Play again";
  tellTime();
  const meaning = MEANINGS.get(run.text); // of what a visitor has typed, only the visitor knows it
  find("meaning").textContent = meaning ? `The German means: ${meaning}` : "";
  find("doubt").classList.remove("unwritten");
  find("spoken").textContent = `Translation: ${tokenizer.decode(run.ids) || "nothing"}`;
}

/** Say how long it took to compute what was written. */
function tellTime() {
  find("time").textContent = staged !== shown ? "A recording, until the model is here: "
    : `${shown.seconds.toFixed(2)} s to compute` + (isCalm() ? "." : ", slowed down so you can follow.") +
      (shown.steps.at(-1).token === EOS ? "" : " It found no end, and was cut off.");
}

const lastCross = () => `decoder.${RECORDED.config.layers - 1}.cross`;
const weightOf = (head, q, k) => head[q][k] ?? 0; // what had not been written yet, nobody looked at
const mean = (heads, q, k) => heads.reduce((sum, head) => sum + weightOf(head, q, k), 0) / heads.length;

/** Show the five likeliest tokens at a step, and what all others have together; `why` this step. */
function tellCandidates(step, why = "") {
  const { logProbs, token } = staged.steps[step];
  [...find("translation").querySelectorAll("button")].forEach((one, i) => one.classList.toggle("asked", i === step));
  const before = tokenizer.decode(staged.steps.slice(0, step).map(one => one.token));
  const end = before.length > 60 ? `… ${before.slice(-60).replace(/^\S*\s/, "")}` : before;
  const could = before ? `After “${end}” it could go on with` : "It could begin with";
  find("could").textContent = why + (why ? could[0].toLowerCase() + could.slice(1) : could);
  const best = largest(logProbs, 5), row = (label, part, isTaken, isOther) => make(
    "li", { className: [isTaken ? "taken" : "", isOther ? "others" : ""].join(" ").trim() },
    make("span", { className: "word", textContent: label }),
    make("span", { className: "bar" }, make("i", { style: `width: ${(100 * part).toFixed(2)}%` })),
    make("span", { className: "percent", textContent: percent(part) }));
  const rows = best.map(id => row(labels([id])[0], Math.exp(logProbs[id]), id === token, false));
  const rest = 1 - best.reduce((sum, id) => sum + Math.exp(logProbs[id]), 0);
  find("candidates").replaceChildren(...rows, row("all others", Math.max(0, rest), false, true));
  passWord(step);
  fill(find("candidates"), best.map((id, i) => {
    const ariaLabel = `write ${labels([id])[0]} here`, onclick = () => shown && id !== token && insist(step, id);
    rows[i].append(make("button", { type: "button", ariaLabel, onclick, ariaPressed: id === token }));
    return rows[i].lastChild;
  }));
}

// --- The sentence ----------------------------------------------------------------------------------------------------

let pausing; // set while someone types
let alignment; // the picture beside the translation

/** Make the field as high as its sentence. */
function fitSentence() {
  find("sentence").style.height = "auto";
  find("sentence").style.height = `${find("sentence").scrollHeight + 2}px`;
}

/** Put a sentence into the field, translate it, and bring to sight where its result will stand. */
function choose(sentence, place = find("form")) {
  find("sentence").value = sentence;
  go();
  if (place) bringToSight(place);
}

/** Give the sentence in the address, if there is one. */
function addressed() {
  if (!location.hash.startsWith("#s=")) return null;
  try {
    return decodeURIComponent(location.hash.slice(3));
  } catch {
    return null; // half a character, say
  }
}

/** Link what stands in the course, where its pages are beside this one. */
function linkCourse() {
  const { course } = document.documentElement.dataset;
  if (!course) return;
  for (const place of document.querySelectorAll("[data-page]")) {
    place.replaceChildren(make("a", { href: `${course}/${place.dataset.page}.html`, textContent: place.textContent }));
  }
}

function start() {
  linkCourse();
  const { dataset } = document.documentElement;
  dataset.theme = stored(storage => storage.getItem("live-theme")) ?? "system";
  alignment = new Look(find("alignment"), "German", "English");
  find("sentence").value = addressed() ?? RECORDED.text;
  find("captions").replaceChildren(...CAPTIONS.slice(1).map(([german, english]) => make("li", {},
    make("button", { type: "button", onclick: () => choose(german) },
      make("span", { lang: "de", textContent: german }), make("small", { textContent: english })))));
  const unfold = isWanted => {
    if (find("captions").contains(document.activeElement)) find("more").focus({ preventScroll: true });
    find("captions").hidden = !isWanted;
    find("more").setAttribute("aria-expanded", isWanted);
  };
  find("more").onclick = () => unfold(find("captions").hidden);
  addEventListener("click", event => event.target.closest("#more") || unfold(false)); // on a caption, or elsewhere
  addEventListener("keydown", event => event.key === "Escape" && unfold(false));
  find("surprise").onclick = () => {
    const others = CAPTIONS.map(([german]) => german).filter(german => german !== find("sentence").value);
    choose(others[Math.floor(Math.random() * others.length)]);
  };
  find("form").onsubmit = event => {
    event.preventDefault();
    if (matchMedia("(pointer: coarse)").matches) find("sentence").blur(); // the keyboard would hide what comes
    choose(find("sentence").value);
  };
  find("sentence").onkeydown = event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    find("form").requestSubmit();
  };
  find("sentence").oninput = () => {
    fitSentence();
    clearTimeout(pausing);
    pausing = setTimeout(go, 1000, true);
  };
  for (const button of document.querySelectorAll(".try")) {
    const place = button.closest("section").querySelector("[data-result]");
    button.onclick = () => choose(button.dataset.sentence, place);
  }
  find("skip").onclick = () => skip();
  find("load").onclick = () => loadAssistant(["llama.js", "weights-assistant.js", "ask.js"]);
  find("back").onclick = () => { find("skip").focus(); go(); };
  find("theme").onclick = () => { // from light to dark, or back, as a later visit will find it
    dataset.theme = getComputedStyle(document.documentElement).colorScheme === "dark" ? "light" : "dark";
    stored(storage => storage.setItem("live-theme", dataset.theme));
  };
  addEventListener("hashchange", () => {
    const sentence = addressed();
    if (sentence !== null && sentence !== find("sentence").value) choose(sentence, null);
  });
  addEventListener("resize", fitSentence);
  go();
  requestAnimationFrame(() => setTimeout(loadWeights)); // after the page has been drawn
}

/** Load the weights part by part, as scripts, which a page in a folder may do; then translate. */
function loadWeights() {
  const { parts, megabytes } = RECORDED, take = unpacker(RECORDED);
  const tell = text => document.documentElement.style.setProperty("--loaded", JSON.stringify(text));
  let asked = 0, come = 0;
  const load = () => {
    const part = asked++;
    if (part < parts) document.head.append(make("script", { src: `weights-${part}.js`, onerror, onload: () => {
      model = take(part, WEIGHTS[part]);
      tell(`${Math.round(100 * ++come / parts)} % of ${megabytes} MB`);
      load();
      if (!model) return;
      document.documentElement.dataset.ready = "true";
      document.dispatchEvent(new Event("model"));
      go();
    } }));
  };
  const onerror = () => {
    tell("it isn't there");
    find("note").textContent = "There's no model: the files weights-0.js and so on aren't all beside this page.";
  };
  load();
  load(); // the second one hides the first one's way to the server and back
}

/** Load what the last section needs, script by script; if one isn't there, the next click tries again. */
function loadAssistant([src, ...others]) {
  const tell = (text, disabled) => {
    find("loading").textContent = text;
    find("load").disabled = disabled;
  };
  tell("Loading …", true);
  const onload = () => others.length ? loadAssistant(others) : tell("", true);
  const onerror = () => {
    tell(`There's no assistant: ${src} isn't beside this page.`, false);
    find("load").onclick = () => loadAssistant([src, ...others]);
  };
  document.head.append(make("script", { src, onload, onerror }));
}
