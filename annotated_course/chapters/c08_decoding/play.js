// Chapter 08: the tree of a beam search over a table of next words: each step's candidates, then which of them stay.

start("tree", play => {
  const { table, limit } = play.data, { panels } = play, three = number => fixed(number, 3);
  const number = logProb => three(alpha.value ? logProb : Math.exp(logProb));
  const write = (text, x, y, look, on = panel) => draw("text", on, { text, x, y, class: `small ${look}` });
  const text = node => node.parent ? `${text(node.parent)} ${node.token}`.trim() : "";
  let steps = [], shown = 0, width = 640;  // a step has two places: its candidates, and which of them stay

  const next = ({ token }) => Object.entries(table[token]).map(([token, p]) => ({ token, logProb: Math.log(p) }));
  const searched = () => [...search(next, { start: "<bos>", end: "<eos>", limit }, beam.value, alpha.value)];

  /** Give each node of the whole search its place, so that nothing moves while the tree grows; and give its height. */
  function arrange(nodes) {
    let bottom = 27;
    (function place(node) {
      const children = nodes.filter(one => one.parent === node);
      children.forEach(place);
      node.height = node.fate === "finished" && alpha.value ? 45 : 32;
      node.y = children.length ? (children[0].y + children.at(-1).y) / 2 : bottom + node.height / 2;
      node.x = (node.length + 0.5) * width / (steps.length + 1);
      if (!children.length) bottom += node.height + 3;
    })(nodes[0]);
    return bottom;
  }

  /** Draw a node, and the branch that leads to it; before it is decided, all look alike, and slide in. */
  function box(node, decided, best) {
    const { x, y, parent, token, logProb, score, fate } = node;
    const dropped = decided && fate === "dropped", kept = decided && !dropped, ended = decided && fate === "finished";
    const w = Math.min(width / (steps.length + 1) - (width < 600 ? 7 : 16), 104), left = x - w / 2;
    const high = ended ? node.height : 32;
    const thin = { fill: "none", stroke: kept ? "rgb(var(--blue))" : "var(--quiet)" };
    const look = { ...thin, "stroke-width": best ? 3 : 1, "stroke-dasharray": dropped ? "4 3" : "none" };
    const fill = kept ? `rgba(var(--blue), ${best ? 0.4 : 0.16})` : "none";
    const lines = parent ? [token, number(logProb)] : ["(start)"];
    if (ended && alpha.value) lines.push(three(score));
    const group = draw("g", panel, { class: decided ? "" : "new" });
    draw("rect", group, { ...look, fill, x: left, y: y - high / 2, width: w, height: high, rx: 3 });
    if (ended) draw("rect", group, { ...thin, x: left + 2, y: y - high / 2 + 2, width: w - 4, height: high - 4 });
    const first = y + 4 - 6.5 * (lines.length - 1), tone = dropped ? "middle quiet" : "middle";
    lines.forEach((text, i) => write(text, x, first + 13 * i, tone, group));
    if (!parent) return;
    const [from, middle, to, above, here] = [parent.x + w / 2, (parent.x + x) / 2, left, parent.y, y].map(Math.round);
    draw("path", group, { ...look, d: `M${from} ${above}C${middle} ${above} ${middle} ${here} ${to} ${here}` });
  }

  /** Say what a step did, and at the end why the search stops and what wins. */
  function told({ nodes, best, hope }, i) {
    const [unfinished, ended] = ["kept", "finished"].map(fate => nodes.filter(node => node.fate === fate));
    const over = i === steps.length - 1, quoted = node => `“${text(node).replace(" <eos>", "")}”`;
    const logP = node => `${quoted(node)} ${number(node.logProb)}`;
    const list = (name, nodes, write) => nodes.length ? ` ${name}: ${nodes.map(write).join(", ")}.` : "";
    const penalty = node => three(lengthPenalty(node.length, alpha.value));
    const divided = node => alpha.value ? ` / ${penalty(node)} = ${three(node.score)}` : "";
    return `Step ${i}.` + list("Kept", unfinished, logP) + list("Finished", ended, node => logP(node) + divided(node)) +
      (best && unfinished.length ? ` ${quoted(unfinished[0])} can hope for ${number(hope)} at best, ` +
        `${quoted(best)} has ${number(best.score)}: ${over ? "stop" : "go on"}.` : "") +
      (over ? ` ${quoted(best)} wins.` : "");
  }

  function show(place) {
    width = Math.min(Math.max(panels.clientWidth, 340), 640);
    steps = searched();
    [step.max, step.value] = [2 * steps.length, shown = Math.min(place, 2 * steps.length)];
    const nodes = [steps[0].nodes[0].parent, ...steps.flatMap(step => step.nodes)], height = arrange(nodes);
    const over = shown === 2 * steps.length, way = [], i = Math.ceil(shown / 2) - 1;
    for (let node = over && steps.at(-1).best; node; node = node.parent) way.push(node);
    set(panel, { viewBox: `0 0 ${width} ${height + 62}`, width, height: height + 62 }).replaceChildren();
    steps.forEach((_, j) => write(`step ${j}`, (j + 1.5) * width / (steps.length + 1), 14, "middle quiet"));
    for (const node of nodes) if (node.length <= i + 1) box(node, node.length <= shown / 2, way.includes(node));
    [alpha.value ? "log P, and below it the score of what is finished" : "number: the probability of all up to here",
      "outlined: undecided · filled: kept · dashed: dropped", "double frame: finished · thick: the winner"]
      .forEach((key, j) => write(key, 0, height + 20 + 18 * j, "quiet"));
    play.said.style.minHeight = width < 600 ? "8.4em" : "4.2em";
    play.say(shown % 2 ? `Step ${i}. Candidates: ${steps[i].nodes.length}. With K = ${beam.value}, which will stay?`
      : told(steps[i], i));
  }

  const stop = place => `${Math.ceil(place / 2) - 1}, ${place % 2 ? "all" : "kept"}`;
  const again = () => show(shown < 2 * steps.length ? shown : Infinity);
  const step = play.slider("step", { min: 1, max: 8, value: 1, show: stop }, show);
  const panel = play.panel(width, 400, "the tree of the search");
  play.more("The beam K, and the length penalty’s α (for section 4)");
  const beam = play.slider("beam K", { min: 1, max: 5, value: play.data.beam }, again);
  const alpha = play.slider("α", { min: 0, max: 2, step: 0.1, value: play.data.alpha }, again);
  addEventListener("resize", () => show(shown));
  play.moves(share => {
    const place = 1 + Math.floor(2 * share * searched().length);
    if (place !== shown) show(place);
  }, 6000);
});
