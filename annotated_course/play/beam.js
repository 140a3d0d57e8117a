// Beam search (§6.1), as `annotated.decoding.search` does it. Chapter 08's tree and the live page search with it; the
// live page has a copy of this file, which `python -m tools.live` writes.

/** The divisor of log P, so that longer translations may compete: ((5 + |Y|) / 6)^α (Wu et al., 2016). */
function lengthPenalty(length, alpha) {
  return ((5 + length) / 6) ** alpha;
}

/**
 * Keep the `beam` most probable beginnings at each step, from `start` on.
 *
 * A beginning whose `end` is among the `beam` best continuations is finished; the search goes on with the best
 * unfinished ones, until none of them could still win.
 *
 * @param continuations gives the next tokens of a node, [{ token, logProb }, …], each with its own log P
 * @yields for each step { nodes, best, hope }: all continuations, the likeliest first, { parent, token, length, logProb,
 *   fate }; `fate` is "kept", "finished" (then with a `score`) or "dropped"; the best one that is finished; and the
 *   score that the unfinished can hope for at best
 * @returns the best node
 */
function* search(continuations, { start, end, limit }, beam, alpha) {
  let live = [{ parent: null, token: start, length: 0, logProb: 0, fate: "kept" }], best = null, hope = 0;
  for (let length = 1; length <= limit && live.length && !(best?.score >= hope); length++) {
    const nodes = live.flatMap(parent => continuations(parent).map(({ token, logProb }) => (
      { parent, token, length, logProb: parent.logProb + logProb, fate: "dropped" })));
    nodes.sort((one, other) => other.logProb - one.logProb);
    for (const node of nodes.slice(0, beam).filter(node => node.token === end)) {
      node.fate = "finished";
      node.score = node.logProb / lengthPenalty(length, alpha);
      if (!best || node.score > best.score) best = node;
    }
    live = nodes.filter(node => node.token !== end).slice(0, beam);
    for (const node of live) node.fate = "kept";
    hope = live.length ? live[0].logProb / lengthPenalty(limit, alpha) : -Infinity;
    yield { nodes, best, hope };
  }
  return best ?? Object.assign(live[0], { score: hope });  // if none ended in time
}
