// Chapter 06: paint a mask; each input is nudged in turn, and what moves is what reads it.

start("mask", play => {
  const { words, padded, vectors, nudged } = play.data;
  const size = words.length, all = [...words.keys()], side = play.panels.clientWidth < 500 ? 40 : 44, left = 62;
  const upTo = ahead => (query, key) => key <= query + ahead && !padded[key];
  const top = 44, masks = {
    "everything": () => true,
    "causal": (query, key) => key <= query,
    "padding": (_, key) => !padded[key],
    "both": upTo(0),
    "off by one": upTo(1),
  };
  let mask = all.map(() => []), layers = 1, brush, tapping = true, current = [0, 0];

  // A query that may look at nothing gets zeros, as in annotated.attention.
  const attend = x => x.map((query, i) => {
    const seen = all.filter(j => mask[i][j]);
    const scores = seen.map(j => query.reduce((sum, number, n) => sum + number * x[j][n], 0) / Math.sqrt(query.length));
    const weights = softmax(scores);
    return query.map((_, n) => seen.reduce((sum, j, k) => sum + weights[k] * x[j][n], 0));
  });
  const run = x => (layers === 1 ? attend(x) : attend(attend(x)));

  const grid = title => {
    const panel = play.panel(left + size * side + 2, top + size * side + 2, title);
    draw("text", panel, { class: "bold", y: 12, text: title });
    words.forEach((word, i) => {
      draw("text", panel, { class: "end small", x: left - 6, y: top + side * (i + 0.5) + 4, text: word });
      draw("text", panel, { class: "middle small", x: left + side * (i + 0.5), y: top - 6, text: word });
    });
    return all.map(i => all.map(j => {
      const cell = draw("g", panel, { transform: `translate(${left + side * j} ${top + side * i})` });
      const square = draw("rect", cell, { x: 1, y: 1, width: side - 2, height: side - 2, rx: 4, class: "cell" });
      return { cell, square, number: draw("text", cell, { class: "middle", x: side / 2, y: side / 2 + 5 }) };
    }));
  };
  const squares = grid("mask: row may look at column");
  const moves = grid("output of row reads input of column");

  const show = (pace = 0) => {  // a falling mask falls from row to row
    const before = run(vectors), wrong = [];
    const afters = all.map(j => run(vectors.map((vector, n) => (n === j ? nudged[n] : vector))));
    for (const i of all) {
      const leaked = [];
      for (const j of all) {
        const { cell, square, number } = squares[i][j], moving = moves[i][j];
        set(cell, { "aria-checked": mask[i][j], tabindex: current[0] === i && current[1] === j ? 0 : -1 });
        const style = pace ? `--wait: ${pace * i}s` : "";
        set(square, { class: mask[i][j] ? "cell on" : "cell", style });
        set(number, { text: mask[i][j] ? "1" : "0", class: mask[i][j] ? "middle bold" : "middle quiet" });
        const moved = Math.hypot(...before[i].map((value, n) => afters[j][i][n] - value));
        const reads = moved > 1e-6, leaks = reads && !padded[i] && (j > i || padded[j]);
        if (leaks) leaked.push(padded[j] ? "padding" : `“${words[j]}”`);
        set(moving.square, { class: leaks ? "cell leak" : reads ? "cell on" : "cell", style });
        const text = (reads ? fixed(moved) : "0") + (leaks ? "!" : "");
        set(moving.number, { text, class: leaks ? "middle bold" : "middle faint" });
      }
      if (leaked.length) wrong.push(`“${words[i]}” reads ${leaked.join(", ")}`);
    }
    for (const button of buttons) button.ariaPressed = shows(masks[button.textContent]);
    ahead.value = all.find(open => shows(upTo(open))) ?? ahead.value;
    play.say(wrong.length ? `A leak (!): ${wrong.join("; ")}.` : "No leak: no word reads its future or padding.");
  };
  const shows = rule => all.every(i => all.every(j => mask[i][j] === rule(i, j)));
  const use = (rule, pace) => { mask = all.map(i => all.map(j => rule(i, j))); show(pace); };
  const paint = (i, j, value) => { mask[i][j] = value; current = [i, j]; show(); };
  const panel = squares[0][0].cell.ownerSVGElement;
  const within = number => Math.min(Math.max(Math.floor(number), 0), size - 1);
  panel.addEventListener("pointermove", event => {
    const { x, y } = placeIn(panel, event);
    if (panel.hasPointerCapture(event.pointerId)) paint(within((y - top) / side), within((x - left) / side), brush);
  });
  all.forEach(i => all.forEach(j => {
    const { cell } = squares[i][j];
    set(cell, { class: "play-handle", role: "checkbox", "aria-label": `${words[i]} may look at ${words[j]}` });
    cell.addEventListener("pointerdown", event => {
      tapping = event.pointerType !== "mouse";
      if (tapping) return;  // a finger may be about to scroll: it paints by tapping
      panel.setPointerCapture(event.pointerId);
      paint(i, j, brush = !mask[i][j]);
    });
    cell.addEventListener("click", () => tapping && paint(i, j, !mask[i][j]));
    onArrows(cell, (right, up) => {
      const [row, column] = current = [within(i - up), within(j + right)];
      show();
      squares[row][column].cell.focus();
    });
    cell.addEventListener("keydown", event => {
      if (event.key !== " ") return;
      event.preventDefault();  // the page does not scroll
      paint(i, j, !mask[i][j]);
    });
  }));
  const farthest = padded.indexOf(true) - 1;
  const range = { min: 0, max: farthest, value: 1, show: open => shows(upTo(open)) ? open : "–" };
  const ahead = play.slider("words ahead", range, open => use(upTo(open), 0.1));
  play.more("Other masks, and a second layer");
  const buttons = Object.keys(masks).map(name => play.button(name, () => use(masks[name])));
  play.choice(["one layer", "two layers"], more => { layers = 1 + more; show(); });
  play.moves(share => use(upTo(Math.max(farthest - Math.floor(share * farthest), 1)), 0.1), 3000);  // one word too high
});
