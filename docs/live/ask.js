// The last section: a small assistant, loaded when somebody wants it, is asked about a story.
"use strict";

const LONGEST_STORY = 200, LONGEST_ANSWER = 16; // words and signs, the story's with its question
const takePart = unpacker(ASSISTANT, Llama);
const assistant = ASSISTANT.texts.map((text, part) => takePart(part, text)).at(-1); // the last part gives the model
const numberOf = new Map(ASSISTANT.words.map((word, id) => [word, id]));
const nextAnswer = newest();

/** Cut a text into words and signs, as `annotated_course.stories.encode` does; capitals don't count. */
const wordsOf = text =>
  text.toLowerCase().replaceAll("’", "'").match(/<[\p{L}\p{N}_]+>|[\p{L}\p{N}_']+|[^\p{L}\p{N}_'\s]/gu) ?? [];

/** Put a sign at a text's end, where it was forgotten. */
const ended = (text, sign) => /[\p{L}\p{N}]\s*$/u.test(text) ? text + sign : text;

/** Ask what stands in the fields, and show the answer word by word. */
async function ask() {
  const isWanted = nextAnswer(), steps = [], [story, question] = ["story", "question"].map(id => find(id).value);
  const words = wordsOf(`<user> ${ended(story, ".")} ${ended(question, "?")} <assistant>`);
  const unknown = [...new Set(words)].filter(word => !numberOf.has(word)), named = unknown.slice(0, 5).join("”, “");
  find("answer").replaceChildren();
  find("answered").textContent = "";
  find("unreadable").textContent = !question.trim() ? "There's no question yet: type one, or take one from below."
    : words.length - 2 > LONGEST_STORY // without the template's two
      ? `That's ${words.length - 2} words and signs. It can't follow so much: please give it ${LONGEST_STORY} at most.`
    : unknown.length ? `It doesn't know “${named}”${unknown[5] ? ` and ${unknown.length - 5} more` : ""}. ` +
      "All the words of its world stand below." : "";
  if (find("unreadable").textContent) {
    find("world").open ||= unknown.length > 0;
    return;
  }
  const prompt = words.map(word => numberOf.get(word));
  await inSlices(answer(assistant, prompt, LONGEST_ANSWER), step => step && steps.push(step), isWanted);
  if (!isWanted()) return;
  const written = steps.map(({ token }, i) => token === EOS ? "⟨end⟩"
    : ASSISTANT.words[token].replace(/^./, first => i ? first : first.toUpperCase()));
  for (const [i, { token, part }] of steps.entries()) {
    const word = make("span", { textContent: written[i], className: token === EOS ? "special" : "" });
    const style = `--weight: ${part}`, small = make("small", { textContent: percent(part) });
    find("answer").append(make("li", { style }, word, small));
    if (!isCalm()) await wait(PACE);
    if (!isWanted()) return;
  }
  if (steps.at(-1).token !== EOS) find("answer").append(make("li", { textContent: "… cut off" }));
  find("answered").textContent = `Answer: ${written.filter(word => word !== "⟨end⟩").join(" ").replaceAll(" .", ".")}`;
}

find("load").parentElement.hidden = true;
find("ask").append(find("ask").querySelector("template").content);
[...find("world").querySelectorAll("dd")].forEach((place, i, { length }) => {
  place.textContent = ASSISTANT.kinds[i].join(", ").replaceAll("/", i === length - 1 ? " the " : ", ");
});
find("ask").querySelector("form").onsubmit = event => {
  event.preventDefault();
  ask();
};
for (const button of find("ask").querySelectorAll(".try")) button.onclick = () => { // they are about its first story
  find("story").value = find("story").defaultValue;
  find("question").value = button.textContent;
  ask();
  bringToSight(find("answer"));
};
find("ask").querySelector(".main").focus({ preventScroll: true }); // whoever has pressed the button, it's gone
ask();
