// Chapter 03: two positions on the paper's clock; the hands turn, and the dot product hangs on the distance alone.

start("clock", play => {
  const { rates, names, position, distance, reach, last } = play.data;
  const radius = 58, centre = 66;
  const tip = (angle, length) => [centre + length * Math.sin(angle), centre - length * Math.cos(angle)];
  const path = points => "M" + points.map(point => point.map(one => one.toFixed(1)).join(" ")).join("L");

  const dials = rates.map((rate, i) => {
    const panel = play.panel(132, 172, `the hand of rate ${names[i]}`);
    draw("circle", panel, { class: "line", cx: centre, cy: centre, r: radius });
    draw("path", panel, { class: "line", d: path([tip(0, radius), tip(0, radius - 7)]) });
    const before = draw("path", panel, { stroke: "var(--quiet)", "stroke-width": 2, "stroke-dasharray": "5 3" });
    const after = draw("path", panel, { stroke: `var(--c${i})`, "stroke-width": 4, "stroke-linecap": "round" });
    const turn = draw("path", panel, { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 });
    const head = draw("path", panel, { d: "M0 0L-6 3V-3Z", fill: "var(--ink)" });
    draw("text", panel, { class: "middle", x: centre, y: 146, text: `rate ${names[i]}` });
    return { before, after, turn, head, words: draw("text", panel, { class: "middle", x: centre, y: 166 }) };
  });

  const from = play.slider("position", { min: reach, max: last, value: position }, () => show());
  const fold = play.more("The distance, and the dot product (for section 5)", () => show());
  const span = { min: -reach, max: reach, value: distance, show: k => fixed(k, 0) };
  const far = play.slider("distance", span, () => show());
  const chart = play.panel(320, 150, "the dot product of two positions, by their distance");
  const spot = (k, product) => [20 + 280 * (k + reach) / (2 * reach), 112 - 20 * product];
  const dot = (one, other) =>
    rates.map(rate => Math.sin(one * rate) * Math.sin(other * rate) + Math.cos(one * rate) * Math.cos(other * rate));
  const sum = parts => parts.reduce((total, part) => total + part);
  draw("path", chart, { class: "line", d: path([spot(-reach, 0), spot(reach, 0)]) });
  draw("path", chart, { class: "line", d: path([spot(0, 0), spot(0, rates.length)]) });
  const curve = [...Array(8 * reach + 1).keys()].map(step => step / 4 - reach).map(k => spot(k, sum(dot(0, k))));
  draw("path", chart, { fill: "none", stroke: "var(--quiet)", "stroke-width": 1.5, d: path(curve) });
  const note = (side, x, y, text) => draw("text", chart, { class: `small quiet ${side}`, x, y, text });
  for (const k of [-reach, 0, reach]) note("middle", spot(k, 0)[0], 130, fixed(k, 0));
  for (const height of [0, rates.length]) note("end", 14, spot(0, height)[1] + 4, height);
  note("middle", 160, 146, "distance");
  const mark = draw("circle", chart, { r: 6, fill: "var(--ink)" });
  const product = draw("text", chart, { class: "middle small", x: 160, y: 14 });

  const show = (here = from.value) => {
    const there = here + far.value, parts = dot(here, there), total = sum(parts);
    dials.forEach(({ before, after, turn, head, words }, i) => {
      const [start, end] = [here * rates[i], there * rates[i]];
      const winding = share => start + share * (end - start);  // each full turn further out, so that none hides another
      const wound = share => tip(winding(share), 32 + 0.7 * share * Math.abs(end - start));
      set(before, { d: path([tip(0, 0), tip(start, radius - 4)]) });
      set(after, { d: path([tip(0, 0), tip(end, radius - 4)]) });
      set(turn, { d: path([...Array(121).keys()].map(step => wound(step / 120))) });
      const [x, y] = wound(1), degrees = end * 180 / Math.PI + (end < start ? 180 : 0);
      set(head, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${degrees.toFixed(1)})` });
      set(head, { visibility: Math.abs(end - start) > 0.25 ? "visible" : "hidden" });  // else there is no room for it
      set(words, { text: `turned by ${fixed(end - start, rates[i] < 0.01 ? 3 : 2)} rad` });
    });
    const [x, y] = spot(far.value, total);
    set(mark, { cx: x, cy: y });
    const cosines = parts.map(part => fixed(part)).join(" + ").replace(/\+ −/g, "− ");
    set(product, { text: `dot product ${cosines} = ${fixed(total)}` });
    play.say(`From position ${from.value} (dashed) to position ${from.value + far.value}.` +
      (fold.open ? ` The dot product of their encodings is ${fixed(total)}, the sum of the turns’ cosines.` : ""));
  };
  play.moves(share => show(from.value = reach + share * (position - reach)), 8000);
});
