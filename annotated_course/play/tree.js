// Chapter 08: the tree of a beam search over a table of next words, step by step.

start("tree", play => {
  const { table, limit } = play.data, wide = play.panels.clientWidth >= 600, width = wide ? 640 : 340, row = 38;
  const penalty = length => ((5 + length) / 6) ** alpha.value, three = number => fixed(number, 3);
  let steps = [], shown = limit;

  /** Search as `annotated.decoding.search` does (§6.1), and give what each step found. */
  function search() {
    let unfinished = [{ word: "<bos>", text: "", total: 0, length: 0, kept: true }], best = null, hope = 0;
    const found = [];
    for (let length = 1; length <= limit && unfinished.length && !(best?.score >= hope); length++) {
      const candidates = unfinished.flatMap(parent => Object.entries(table[parent.word]).map(([word, p]) => {
        const total = parent.total + Math.log(p);
        return { word, text: `${parent.text} ${word}`.trim(), total, length, parent, score: total / penalty(length) };
      })).sort((one, other) => other.total - one.total);
      const ended = candidates.slice(0, beam.value).filter(node => node.word === "<eos>");
      unfinished = candidates.filter(node => node.word !== "<eos>").slice(0, beam.value);
      for (const node of [...ended, ...unfinished]) node.kept = true;
      for (const node of ended) if (!best || node.score > best.score) best = node;
      hope = unfinished.length ? unfinished[0].total / penalty(limit) : -Infinity;
      found.push({ candidates, ended, unfinished, best, hope });
    }
    return found;
  }

  /** Give each node of the whole search its place, so that nothing moves while the tree grows; and give its height. */
  function arrange(nodes) {
    let leaves = 0;
    (function place(node) {
      const children = nodes.filter(one => one.parent === node);
      children.forEach(place);
      node.y = children.length ? (children[0].y + children.at(-1).y) / 2 : 44 + row * leaves++;
      node.x = (node.length + 0.5) * width / (steps.length + 1);
    })(nodes[0]);
    return 40 + row * leaves;
  }

  /** Draw a node, and the branch that leads to it. */
  function box({ x, y, parent, word, kept, total, score }, best) {
    const w = Math.min(width / (steps.length + 1) - (wide ? 16 : 7), 104), left = x - w / 2;
    const finished = kept && word === "<eos>", scored = finished && alpha.value > 0;
    const thin = { fill: "none", stroke: kept ? "rgb(var(--blue))" : "var(--quiet)" };
    const look = { ...thin, "stroke-width": best ? 3 : 1, "stroke-dasharray": kept ? "none" : "4 3" };
    const at = { x, class: `middle small ${kept ? "" : "quiet"}` }, fill = kept ? "rgba(var(--blue), 0.12)" : "none";
    draw("rect", panel, { ...look, fill, x: left, y: y - 16, width: w, height: 32, rx: 3 });
    if (finished) draw("rect", panel, { ...thin, x: left + 3, y: y - 13, width: w - 6, height: 26 });
    draw("text", panel, { ...at, y: parent ? y - 1 : y + 4, text: parent ? word : "(start)" });
    if (!parent) return;
    const [from, middle, to, above, here] = [parent.x + w / 2, (parent.x + x) / 2, left, parent.y, y].map(Math.round);
    draw("path", panel, { ...look, d: `M${from} ${above}C${middle} ${above} ${middle} ${here} ${to} ${here}` });
    const text = (wide || !scored ? three(total) : "") + (scored ? ` → ${three(score)}` : "");
    draw("text", panel, { ...at, y: y + 10, style: "font-size: 10px", text });
  }

  /** Say what a step did, and at the end why the search stops and what wins. */
  function told({ candidates, ended, unfinished, best, hope }, i) {
    const over = i === steps.length - 1, sentence = node => `“${node.text.replace(" <eos>", "")}” ${three(node.total)}`;
    const list = (name, nodes, write) => nodes.length ? ` ${name}: ${nodes.map(write).join(", ")}.` : "";
    return `Step ${i}: ${candidates.length} candidates.` + list("Kept", unfinished, sentence) +
      list("Finished", ended, node => `${sentence(node)} / ${three(penalty(node.length))} = ${three(node.score)}`) +
      (best && unfinished.length ? ` The best unfinished one's hope is ${three(hope)}, ` +
        `${over ? "no better" : "better"} than ${three(best.score)}: ${over ? "stop" : "go on"}.` : "") +
      (!over ? "" : best ? ` The winner is “${best.text.replace(" <eos>", "")}”: no finished one has a better score.`
        : " No sentence has ended in time.");
  }

  function show(step) {
    steps = search();
    shown = Math.min(Math.max(step, 0), steps.length);
    const nodes = [steps[0].candidates[0].parent, ...steps.flatMap(one => one.candidates)], height = arrange(nodes);
    const over = shown === steps.length, way = [];
    for (let node = over && steps.at(-1).best; node; node = node.parent) way.push(node);
    set(panel, { viewBox: `0 0 ${width} ${height + 48}`, height: height + 48 }).replaceChildren();
    steps.forEach((_, i) => draw("text", panel,
      { class: "middle small quiet", x: (i + 1.5) * width / (steps.length + 1), y: 14, text: `step ${i}` }));
    nodes.filter(node => node.length <= shown).forEach(node => box(node, way.includes(node)));
    ["log P, and → the score · filled: kept · dashed: dropped", "double frame: finished · thick: the winner"].forEach(
      (text, i) => draw("text", panel, { class: "small quiet", y: height + 22 + 18 * i, text }));
    [back.disabled, forward.disabled] = [shown === 0, over];
    play.say(shown ? told(steps[shown - 1], shown - 1) : "Nothing is written yet. Which words will step 0 keep?");
  }

  const back = play.button("◀ back", () => show(shown - 1)), forward = play.button("step ▶", () => show(shown + 1));
  const beam = play.slider("beam K", { min: 1, max: 5, value: play.data.beam }, () => show(limit));
  const alpha = play.slider("α", { min: 0, max: 2, step: 0.1, value: play.data.alpha }, () => show(limit));
  const panel = set(play.panel(width, row, "the tree; arrow keys go back and forward"), { tabindex: 0 });
  onArrows(panel, right => show(shown + right));
  show(limit);
});
