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
  const away = draw("text", valley.panel, { class: "end", x: 316, y: 18 });
  const show = share => {
    const run = [start], time = updates * share ** 3, i = Math.floor(time);  // slowly at first
    for (let step = 1, m = 0, v = 0; step <= updates; step++) {  // as the Adam of `annotated.training.make_optimizer`
      const w = run[step - 1], g = slope(w);
      [m, v] = [0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g];
      run.push(w - rate(step) * m / (1 - 0.9 ** step) / (Math.sqrt(v / (1 - 0.98 ** step)) + 1e-9));
    }
    const so = run.slice(0, i + 1), [from, to] = [run[i], run[i + 1] ?? run[i]].map(spot);
    const [x, y] = from.map((one, k) => one + (time - i) * (to[k] - one));
    set(ball, { cx: x, cy: y - 8 });
    set(valley.trail, { d: path([...so.map(spot), [x, y]]) });
    set(chart.trail, { d: path([...so.map((w, n) => at(n, n && Math.abs(w - run[n - 1]))), at(i, 0)]) });
    set(chart.ground, { d: path([...run.map((_, step) => at(step, step && rate(step))), at(updates, 0)]) });
    set(away, { text: Math.abs(run[i]) > 7 * width ? "thrown out" : "" });
    const [first, place, cost] = [[run[1] - start, 4], [run[i], 4], [loss(run[i])]].map(one => fixed(...one));
    play.say(`First move: ${first}. After ${i} of ${updates} updates the ball is at ${place}, with a loss of ${cost}.`);
  };
  const warmup = play.slider("warm-up", { min: 0, max: hold, value: 0 }, () => show(1));
  play.moves(show, 6000);
});
