// A sentence put together from three rows, for those who know no German.
"use strict";

const CHOICES = { // the model gets all 64 right
  who: { "Ein Mann": "a man", "Eine Frau": "a woman", "Ein Elefant": "an elephant", "Ein kleiner Hund": "a small dog" },
  "does what": { "isst ein Eis": "eats an ice cream", "spielt Gitarre": "plays the guitar",
    "fährt Fahrrad": "rides a bicycle", "liest ein Buch": "reads a book" },
  where: { "im Park": "in the park", "am Strand": "on the beach", "auf dem Sofa": "on the sofa",
    "im Schnee": "in the snow" },
};
const [actors, actions, locations] = Object.values(CHOICES).map(Object.entries);
for (const [who, one] of actors) for (const [what, does] of actions) for (const [where, place] of locations) {
  MEANINGS.set(`${who} ${what} ${where}.`, `${one[0].toUpperCase()}${one.slice(1)} ${does} ${place}.`);
}

find("builder").append(...Object.entries(CHOICES).map(([title, choices]) => make("fieldset", {},
  make("legend", { className: "unseen", textContent: title }),
  ...Object.entries(choices).map(([value, english]) => make("label", {},
    make("input", { type: "radio", name: title, value }), make("span", { lang: "de", textContent: value }),
    make("small", { textContent: english }))))));

const built = () => `${[...find("builder").querySelectorAll(":checked")].map(chip => chip.value).join(" ")}.`;

find("builder").onchange = () => {
  const rows = [...find("builder").querySelectorAll("fieldset")];
  for (const row of rows) if (!row.querySelector(":checked")) row.querySelector("input").checked = true;
  choose(built());
};

whenSeen("builder", () => { // another sentence isn't its own
  if (shown.text !== built()) for (const chip of find("builder").querySelectorAll(":checked")) chip.checked = false;
});
