// How the search ranks what it finds: as Sphinx does, but whoever types three words or more has a question,
// and is led to the page that answers questions first.
"use strict";

const QUESTIONS = "notebooks/questions";

var Scorer = {
  score: (result) => {
    const [page, , , , score] = result;
    const words = new URLSearchParams(window.location.search).get("q").trim().split(/\s+/);
    return page === QUESTIONS && words.length > 2 ? score + Scorer.title : score;
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
