// Chapter 08: the tree of a beam search over a table of next words: each step's candidates, then which of them stay.

start("tree", play => {
  const { table, limit } = play.data, three = number => fixed(number, 3);
  const penalty = length => lengthPenalty(length, alpha.value);
  const write = (text, x, y, look) => draw("text", panel, { text, x, y, class: `small ${look}` });
  const text = node => node.parent ? `${text(node.parent)} ${node.token}`.trim() : "";
  let steps = [], shown = 0, width;  // a step is shown by two presses

  /** Search the table of next words, and give what each step found. */
  function searched() {
    const following = ({ token }) => Object.entries(table[token]).map(([token, p]) => ({ token, logProb: Math.log(p) }));
    return [...search(following, { start: "<bos>", end: "<eos>", limit }, beam.value, alpha.value)];
  }

  /** Give each node of the whole search its place, so that nothing moves while the tree grows; and give its height. */
  function arrange(nodes) {
    let bottom = 27;
    (function place(node) {
      const children = nodes.filter(one => one.parent === node);
      children.forEach(place);
      node.height = node.fate === "finished" && alpha.value ? 47 : 34;
      node.y = children.length ? (children[0].y + children.at(-1).y) / 2 : bottom + node.height / 2;
      node.x = (node.length + 0.5) * width / (steps.length + 1);
      if (!children.length) bottom += node.height + 5;
    })(nodes[0]);
    return bottom;
  }

  /** Draw a node, and the branch that leads to it; before it is decided, all look alike. */
  function box(node, decided, best) {
    const { x, y, parent, token, logProb, score, fate } = node;
    const dropped = decided && fate === "dropped", kept = decided && !dropped, ended = decided && fate === "finished";
    const w = Math.min(width / (steps.length + 1) - (width < 600 ? 7 : 16), 104), left = x - w / 2;
    const high = ended ? node.height : 34;
    const thin = { fill: "none", stroke: kept ? "rgb(var(--blue))" : "var(--quiet)" };
    const look = { ...thin, "stroke-width": best ? 3 : 1, "stroke-dasharray": dropped ? "4 3" : "none" };
    const fill = kept ? "rgba(var(--blue), 0.16)" : "none", lines = parent ? [token, three(logProb)] : ["(start)"];
    if (ended && alpha.value) lines.push(three(score));
    draw("rect", panel, { ...look, fill, x: left, y: y - high / 2, width: w, height: high, rx: 3 });
    if (ended) draw("rect", panel, { ...thin, x: left + 3, y: y - high / 2 + 3, width: w - 6, height: high - 6 });
    const first = y + 4 - 6.5 * (lines.length - 1), tone = dropped ? "middle quiet" : "middle";
    lines.forEach((text, i) => write(text, x, first + 13 * i, tone));
    if (!parent) return;
    const [from, middle, to, above, here] = [parent.x + w / 2, (parent.x + x) / 2, left, parent.y, y].map(Math.round);
    draw("path", panel, { ...look, d: `M${from} ${above}C${middle} ${above} ${middle} ${here} ${to} ${here}` });
  }

  /** Say what a step did, and at the end why the search stops and what wins. */
  function told({ nodes, best, hope }, i) {
    const [unfinished, ended] = ["kept", "finished"].map(fate => nodes.filter(node => node.fate === fate));
    const over = i === steps.length - 1, quoted = node => `“${text(node).replace(" <eos>", "")}”`;
    const logP = node => `${quoted(node)} ${three(node.logProb)}`;
    const list = (name, nodes, write) => nodes.length ? ` ${name}: ${nodes.map(write).join(", ")}.` : "";
    const divided = node => ` / ${three(penalty(node.length))} = ${three(node.score)}`;
    return `Step ${i}.` + list("Kept", unfinished, logP) + list("Finished", ended, node => logP(node) + divided(node)) +
      (best && unfinished.length ? ` ${quoted(unfinished[0])} can hope for ${three(hope)} at best, ` +
        `${quoted(best)} has ${three(best.score)}: ${over ? "stop" : "go on"}.` : "") +
      (over ? ` ${quoted(best)} wins.` : "");
  }

  function show(place) {
    width = Math.min(Math.max(play.panels.clientWidth, 340), 640);
    steps = searched();
    shown = Math.min(Math.max(place, 0), 2 * steps.length);
    const nodes = [steps[0].nodes[0].parent, ...steps.flatMap(step => step.nodes)], height = arrange(nodes);
    const over = shown === 2 * steps.length, way = [], i = Math.ceil(shown / 2) - 1;
    for (let node = over && steps.at(-1).best; node; node = node.parent) way.push(node);
    set(panel, { viewBox: `0 0 ${width} ${height + 62}`, width, height: height + 62 }).replaceChildren();
    steps.forEach((_, j) => write(`step ${j}`, (j + 1.5) * width / (steps.length + 1), 14, "middle quiet"));
    for (const node of nodes) if (node.length <= i + 1) box(node, node.length <= shown / 2, way.includes(node));
    ["log P, and below it the score of what is finished", "outlined: undecided · filled: kept · dashed: dropped",
      "double frame: finished · thick: the winner"].forEach((key, j) => write(key, 0, height + 20 + 18 * j, "quiet"));
    [back.ariaDisabled, forward.ariaDisabled] = [!shown, over];
    play.said.style.minHeight = width < 600 ? "9.8em" : "5.6em";
    play.say(!shown ? "Nothing is written yet. Press next: first come the candidates, then which of them stay."
      : shown % 2 ? `Step ${i}. Candidates: ${steps[i].nodes.length}. With K = ${beam.value}, which will stay?`
        : told(steps[i], i));
  }

  play.button("start", () => show(0));
  const back = play.button("◀ back", () => show(shown - 1)), forward = play.button("next ▶", () => show(shown + 1));
  play.button("end", () => show(Infinity)).dataset.still = "";  // so looks the still picture
  const again = () => show(shown < 2 * steps.length ? shown : Infinity);
  const beam = play.slider("beam K", { min: 1, max: 5, value: play.data.beam }, again);
  const alpha = play.slider("α", { min: 0, max: 2, step: 0.1, value: play.data.alpha }, again);
  const panel = set(play.panel(640, 400, "the tree; arrow keys go back and forward"), { tabindex: 0 });
  panel.addEventListener("keydown", event => {
    const presses = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!presses) return;  // up and down move the page
    event.preventDefault();
    show(shown + presses);
  });
  addEventListener("resize", () => show(shown));
  play.panels.before(play.said);  // beside the buttons: a phone shows both
  show(0);
});
