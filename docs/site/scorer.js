// How the search ranks what it finds: as Sphinx does, but anyone who types three words or more has a question, and is led
// to the page that answers questions first. One word or two are a subject: there, half a question must not be in front.
"use strict";

const QUESTIONS = "notebooks/questions";

var Scorer = {
  score: (result) => {
    const [page, , , , score, , kind] = result;
    const words = new URLSearchParams(window.location.search).get("q").trim().split(/\s+/);
    if (words.length > 2) return page === QUESTIONS ? score + Scorer.title : score;
    return kind === "index" && score < 100 ? Scorer.term : score; // 100: the whole entry was typed
  },

  // Sphinx's own numbers, which a file like this one has to repeat.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
