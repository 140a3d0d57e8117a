// Of what the model is unsure, by the rule of annotated_workbench/translation.py, and what its reader may have meant.
"use strict";

const GUESS = 0.3; // a word that is less probable is a guess
const EVEN = 0.5; // below this geometric mean of its words' probabilities, a translation isn't to be trusted
const WRONG = ["Kein Mann trägt einen Hut.", "Wann fährt der nächste Zug nach Berlin?"]; // to it, without a guess
const NEGATION = /\b(kein\w*|nicht|nie|niemand|ohne)\b/i; // captions have few
const LITTLE_WORDS = /^(avec|che|con|dans|een|el|en|est|et|gli|het|il|la|las|le|les|los|op|per|por|un|una|une|van)$/i;
const bits = atob(RECORDED.foreign);
const isForeign = id => bits.charCodeAt(id >> 3) >> (id & 7) & 1; // German captions have it fewer than five times

/** List the words written: { places, logProb }, its steps and the sum of their log P, both without signs. */
function wordsWritten(steps) {
  const words = [];
  steps.forEach(({ token, logProbs }, place) => {
    if (!words.length || !continues(token)) words.push({ places: [], logProb: 0 });
    if (token === EOS || !/[\p{L}\p{N}]/u.test(tokenizer.decode([token]))) return;
    words.at(-1).places.push(place);
    words.at(-1).logProb += logProbs[token];
  });
  return words.filter(word => word.places.length);
}

const sureness = words => words.length ? words.reduce((sum, word) => sum + word.logProb, 0) / words.length : -Infinity;

/** Underline the guesses among the words that are written; say how many there are, and whether to trust the whole. */
function tellDoubt(words, buttons) {
  const isGuess = word => word.logProb < Math.log(GUESS) && !word.places.includes(staged.chosen);
  const guesses = words.filter(isGuess), all = words.length, count = guesses.length;
  for (const { places, logProb } of guesses) for (const place of places) {
    buttons[place].classList.add("guess");
    buttons[place].title = `a guess: ${percent(Math.exp(logProb))}`;
  }
  const some = all === 1 ? "Its only word" : count === all ? `All ${all} words` : `${count} of ${all} words`;
  const said = count ? `${some} ${count === 1 ? "is a guess" : "are guesses"}, less than 30 % sure.` +
    (count < all ? " The others can be wrong, too." : "") : "No word is certain.";
  const isUnsure = sureness(words) < Math.log(EVEN), isWrong = !staged.greedy && WRONG.includes(staged.text);
  find("doubt").classList.toggle("unsure", isUnsure || isWrong);
  find("doubt").textContent = isUnsure ? `Don't trust it. ${said} This model has read photo captions, and nothing else.`
    : isWrong ? "No word is a guess, and still it's wrong: to be sure isn't to be right."
    : (count ? said : "") + (NEGATION.test(staged.text) ? " It can lose a kein, nicht or ohne." : "");
}

/** Ask whether a text is in another language, by its letters, its pieces and its little words. */
function languageOf(text) {
  const words = text.match(/\p{L}+/gu) ?? [], pieces = words.map(word => tokenizer.encode(word));
  const foreign = pieces.filter(ids => ids.some(isForeign)), whole = foreign.filter(ids => ids.length === 1);
  const isMuch = foreign.length >= Math.max(1, words.length / (whole.length > 1 ? 5 : 4));
  const isOther = /[^\P{L}\p{Script=Latin}]/u.test(text) || words.filter(word => LITTLE_WORDS.test(word)).length > 1;
  if (isMuch && !isOther && whole.length) return "Is that English? This model reads German.";
  return isMuch || isOther ? "Is that German? This model reads nothing else." : "";
}

/** Spell a text as captions are, a word in the fewest pieces: with ä for ae, ß for ss, capitals for nouns alone. */
function respelled(text) {
  const isShouted = !/\p{Ll}/u.test(text), isFlat = isShouted || !/\p{L}.*\p{Lu}/su.test(text);
  const raise = word => word.replace(/^\p{Ll}|[.!?]\s+\p{Ll}/gu, start => start.toUpperCase());
  const cost = word => {
    const ids = tokenizer.encode(word);
    return ids.length + (ids.some(isForeign) ? 0.5 : 0);
  };
  const spelled = text.replace(/\p{L}+/gu, word => {
    const plain = isShouted ? word.toLowerCase() : word;
    const dotted = plain.replace(/[aou]e/gi, two => `${two[0]}\u0308`).normalize("NFC");
    const forms = [plain, dotted, plain.replace("ss", "ß"), dotted.replace("ss", "ß")];
    return [...forms, ...isFlat ? forms.map(raise) : []].reduce((best, form) => cost(form) < cost(best) ? form : best);
  });
  return spelled === text ? text : raise(spelled) + (/\p{L}$/u.test(spelled) ? "." : "");
}

/** Offer several sentences one by one, or else what the writer may have meant, if the model is surer of it. */
async function advise({ text, steps }, isWanted) {
  const sentences = text.trim().replace(/(\p{Ll}{2}[.!?]["“”»]?)\s+(?=\p{Lu})/gu, "$1\n").split("\n");
  const areSeveral = sentences.length > 1 && sentences.every(one => /\p{L}\s+\p{L}/u.test(one));
  const meant = respelled(text.trim()), isOther = meant !== text.trim() && !languageOf(meant);
  let intro = areSeveral ? " It has only read one sentence at a time. One by one:" : " Did you mean:";
  for (const german of areSeveral ? sentences : isOther ? [meant] : []) {
    const found = [], { source } = read(german.slice(0, LONGEST_TEXT));
    await inSlices(greedyDecode(model, source), step => found.push(step), isWanted);
    if (!isWanted() || (!areSeveral && sureness(wordsWritten(found)) <= sureness(wordsWritten(steps)))) return;
    const english = areSeveral ? ` ${tokenizer.decode(found.map(step => step.token))}` : "";
    const button = make("button", { type: "button", className: "try", lang: "de", textContent: german });
    button.onclick = () => choose(german);
    find("note").append(intro,
      make("span", { className: "offer" }, button, make("span", { lang: "en", textContent: english })));
    intro = "";
  }
}
