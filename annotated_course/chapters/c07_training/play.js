// Chapter 07: Adam with one parameter, in a valley that is narrower than the highest rate, with a warm-up or without.

start("ball", play => {
  const { peak, hold, updates, start, width } = play.data, [floor, high] = [182, 140];  // pixels
  const path = points => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
  const loss = w => 1 - Math.exp(-((w / width) ** 2) / 2), slope = w => w / width ** 2 * (1 - loss(w));
  const rate = step => peak * Math.min(1, step / warmup.value || 1, Math.sqrt(hold / step));
  const spot = w => [Math.min(Math.max(105 + 32 * w / width, 0), 308), floor - high * loss(w)];
  const at = (step, far) => [316 * step / updates, floor - high * far / peak];
  const [valley, chart] = [["none", "a ball in a valley", "↑ loss", "the parameter →"], ["var(--c1)", "rates and moves",
    "grey: the rate · orange: how far the ball moves", `${updates} updates →`]].map(([fill, label, ...notes]) => {
    const panel = play.panel(316, 216, label);
    const ground = draw("path", panel, { fill: "var(--line)", "fill-opacity": 0.6 });
    notes.forEach((text, i) => draw("text", panel, { class: "small quiet", x: 4, y: 12 + 196 * i, text }));
    return { panel, ground, trail: draw("path", panel, { stroke: "var(--c1)", fill }) };
  });
  set(valley.ground, { d: `${path([...Array(309).keys()].map(x => spot((x - 105) / 32 * width)))}H316V216H0Z` });
  const ball = draw("circle", valley.panel, { r: 8, fill: "var(--c1)" });
  const away = draw("text", valley.panel, { class: "end bold", x: 312, y: 66, text: "thrown out" });
  const show = share => {
    const run = [start];
    for (let step = 1, m = 0, v = 0; step <= updates; step++) {  // as the Adam of `annotated.training.make_optimizer`
      const w = run[step - 1], g = slope(w);
      [m, v] = [0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g];
      run.push(w - rate(step) * m / (1 - 0.9 ** step) / (Math.sqrt(v / (1 - 0.98 ** step)) + 1e-9));
    }
    const far = run.findIndex(w => Math.abs(w) > 6.4 * width), until = far > 0 ? far : updates;
    const time = Math.min(updates * share ** 3, until), i = Math.floor(time), so = run.slice(0, i + 1);  // first slowly
    const jumps = so.flatMap((w, n) => [...Array(17).keys()].map(part => part / 16).map(part => {
      const [from, to] = [w, run[n + 1] ?? w].map(spot), on = Math.min(part, time - n);
      return from.map((one, k) => one + on * (to[k] - one) - k * 1.2 * Math.abs(to[0] - from[0]) * on * (1 - on));
    }));
    const [x, y] = jumps.at(-1);
    set(ball, { cx: x, cy: y - 8 });
    set(valley.trail, { d: path(jumps) });
    set(chart.trail, { d: path([...so.map((w, n) => at(n, n && Math.abs(w - run[n - 1]))), at(i, 0)]) });
    set(chart.ground, { d: path([...run.map((_, step) => at(step, step && rate(step))), at(updates, 0)]) });
    const out = i === far, [first, place, cost] = [run[1] - start, run[i], loss(run[i])].map(one => fixed(one, 5));
    const end = out ? ": thrown out, and no slope leads back." : i < updates ? "." : ": it stays.";
    set(away, { visibility: out ? "visible" : "hidden" });
    play.say(`First move: ${first}. After ${i} of ${updates} updates the ball is at ${place}, its loss ${cost}${end}`);
    return out;
  };
  const warmup = play.slider("warm-up", { min: 0, max: 10, value: 0, onchange: () => replay() }, () => show(1));
  const replay = play.moves(show, 6000);
});
