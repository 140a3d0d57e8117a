// How the search ranks what it finds. Sphinx finds the pages that hold all words of a query. In front of these come the
// headings, and the other wordings of a question, that share the most with it, rare words counting most. Among pages,
// anyone who types three words or more has a question, and is led to the page that answers questions first. One word or
// two are a subject: there, half a question must not be in front.
"use strict";

const QUESTIONS = "notebooks/questions";
const SHOWN = 5; // headings in front of the pages
const LIKE = 0.27; // 1: the same words; 0: none in common

var Scorer = {
  score: (result) => {
    const [page, , , description, score, , kind] = result;
    if (kind === "object" && description.includes("attribute")) return 0; // a field of a class explains nothing
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

// The pages that hold a word, by their numbers in the index.
const pagesWith = (word) => {
  const { terms, titleterms } = Search._index;
  return new Set([terms, titleterms].flatMap((all) => (Object.hasOwn(all, word) ? all[word] : [])));
};

const weightOf = (words) => {
  const pages = Search._index.docnames.length;
  return [...words].reduce((sum, word) => sum + Math.log(1 + pages / (1 + pagesWith(word).size)), 0);
};

// Headings and other wordings like a query, the best last, as Sphinx writes results.
const headingsLike = (words) => {
  const { alltitles, indexentries, docnames, filenames, titles } = Search._index;
  const stemmer = new Stemmer();
  const asked = weightOf(words);
  const best = new Map();
  const compare = (text, places, kind) => {
    const own = splitQuery(text.toLowerCase()).filter((word) => !stopwords.has(word) && !/^\d+$/.test(word));
    const stems = new Set(own.map((word) => stemmer.stemWord(word)));
    const shared = weightOf([...words].filter((word) => stems.has(word)));
    const likeness = shared && shared ** 2 / (asked * weightOf(stems));
    if (likeness < LIKE) return;
    for (const [page, id, isMain] of places) {
      const isName = kind === "index" && !isMain; // of the module
      if (isName || /\/solutions\/|^CONTRIBUTING$/.test(docnames[page])) continue;
      const title = titles[page] === text ? text : `${titles[page]} > ${text}`;
      const result = [docnames[page], title, id ? `#${id}` : "", null, likeness, filenames[page], kind];
      const place = `${page} ${id}`;
      if (!best.has(place) || best.get(place)[4] < likeness) best.set(place, result);
    }
  };
  for (const [text, places] of Object.entries(alltitles)) compare(text, places, "title");
  for (const [text, places] of Object.entries(indexentries)) compare(text, places, "index");
  // Of two that are as like, the title of a page comes before a heading in it, and an earlier page before a later one.
  const order = (one, other) => one[4] - other[4] || !one[2] - !other[2] || (one[0] < other[0] ? 1 : -1);
  return [...best.values()].sort(order).slice(-SHOWN);
};

// Where no page holds all the words: those that hold the rarest of them.
const pagesLike = (words) => {
  const { docnames, filenames, titles } = Search._index;
  const weights = new Map();
  for (const word of words) {
    for (const page of pagesWith(word)) weights.set(page, (weights.get(page) ?? 0) + weightOf([word]));
  }
  return [...weights]
    .sort(([, one], [, other]) => one - other)
    .map(([page, weight]) => [docnames[page], titles[page], "", null, weight, filenames[page], "text"]);
};

const findPages = Search._performSearch;
Search._performSearch = (query, words, ...others) => {
  const first = headingsLike(words);
  const found = findPages(query, words, ...others);
  const places = new Set(first.map(([page, , anchor]) => page + anchor));
  const pages = found.length ? found : pagesLike(words);
  return [...pages.filter(([page, , anchor]) => !places.has(page + anchor)), ...first];
};
