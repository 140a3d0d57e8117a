// Chapter 01: drag a query; the matches, the weights and the output follow.

start("query", play => {
  const { words, keys, values, axes: [across, upwards], beta } = play.data;
  const query = [...play.data.query], numbers = [...words.keys()];
  const name = i => words[i].split(" ")[0], colour = i => `var(--c${i})`;
  const point = vector => `(${vector.map(number => fixed(number)).join(", ")})`;
  const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const path = places => "M" + places.map(at).join("L");

  const side = 280, unit = 86, origin = side / 2;  // pixels
  const plane = play.panel(side, side, "the query and the keys, as arrows in a plane");
  const placed = vector => [origin + unit * vector[across], origin - unit * vector[upwards]];
  draw("path", plane, { class: "line", d: `M0 ${origin}H${side}M${origin} 0V${side}` });
  draw("text", plane, { class: "small quiet end", x: side, y: origin - 8, text: `number ${across} →` });
  draw("text", plane, { class: "small quiet", x: origin + 6, y: 12, text: `↑ number ${upwards}` });
  keys.forEach((key, i) => {
    const [x, y] = placed(key), upright = x === origin && y === origin;  // it shares no number with the plane
    draw("path", plane, { d: path([[origin, origin], [x, y]]), stroke: colour(i), "stroke-width": 4 });
    draw("circle", plane, { cx: x, cy: y, r: 6, fill: colour(i) });
    const [side, right, below] = upright ? ["end", -8, -25] : x > origin ? ["middle", 0, 24] : ["end", -12, 5];
    draw("text", plane, { class: side, x: x + right, y: y + below, text: `key of ${name(i)}` });
    if (upright) draw("text", plane, { class: "small quiet end", x: x - 8, y: y - 8, text: "(out of the page)" });
  });
  const shaft = draw("path", plane, { stroke: "var(--ink)", "stroke-width": 3 });
  const handle = draw("g", plane);
  draw("circle", handle, { class: "halo", r: 17 });
  draw("circle", handle, { r: 8, fill: "var(--ink)" });
  const label = draw("text", handle, { class: "middle", text: "query" });

  const result = play.panel(340, side, "the weights, and the output between the values");
  draw("text", result, { class: "small quiet end", x: 150, y: 10, text: "match" });
  draw("text", result, { class: "small quiet", x: 164, y: 10, text: "weight" });
  const rows = words.map((word, i) => {
    const y = 30 + 24 * i;
    draw("text", result, { y, text: word });
    const bar = draw("rect", result, { x: 164, y: y - 12, height: 15, rx: 2, fill: colour(i) });
    return { match: draw("text", result, { class: "end", x: 150, y }), bar, share: draw("text", result, { y }) };
  });
  draw("text", result, { class: "small quiet", x: 20, y: 250, text: "dashed: the output’s" });
  draw("text", result, { class: "small quiet", x: 20, y: 266, text: "walk, for β from 0 to 20" });
  const spot = ([x, y]) => [40 + 32 * x, 256 - 29 * y];
  draw("path", result, { class: "line", d: path([...values, values[0]].map(spot)) });
  const walk = draw("path", result, { fill: "none", stroke: "var(--quiet)", "stroke-dasharray": "4 3" });
  const pulls = numbers.map(i => draw("path", result, { stroke: colour(i), "stroke-linecap": "round" }));
  values.map(spot).forEach(([x, y], i) => {
    draw("circle", result, { cx: x, cy: y, r: 6, fill: colour(i) });
    const below = values[i][1] ? -12 : 22;
    draw("text", result, { class: "middle", x, y: y + below, text: `${name(i)} (${values[i].join(", ")})` });
  });
  const output = draw("g", result);
  draw("path", output, { d: "M0 -9L9 0L0 9L-9 0Z", fill: "var(--ink)", stroke: "var(--paper)", "stroke-width": 2 });
  draw("text", output, { class: "end", x: -14, y: 16, text: "output" });

  const dot = (one, other) => one.reduce((sum, number, i) => sum + number * other[i], 0);
  const weightsAt = strictness => softmax(keys.map(key => strictness * dot(key, query)));
  const mean = weights => [0, 1].map(n => dot(weights, values.map(value => value[n])));
  const show = () => {
    const weights = weightsAt(strictness.value), found = mean(weights), tip = placed(query);
    set(shaft, { d: path([[origin, origin], tip]) });
    const inward = query[across] < 0 ? 26 : -26, beyond = query[upwards] < 0 ? 36 : -26;  // where no key's name stands
    const atEdge = Math.abs(query[upwards]) > 1.1;
    set(label, atEdge ? { class: inward < 0 ? "end" : "", x: inward, y: 5 } : { class: "middle", x: 0, y: beyond });
    set(handle, { transform: `translate(${at(tip)})`, "aria-valuenow": query[across], "aria-valuetext": point(query) });
    rows.forEach(({ match, bar, share }, i) => {
      set(match, { text: fixed(dot(keys[i], query)) });
      set(bar, { width: 120 * weights[i] });
      set(share, { x: 170 + 120 * weights[i], text: fixed(weights[i]) });
      set(pulls[i], { d: path([values[i], found].map(spot)), "stroke-width": 10 * weights[i] });
    });
    set(walk, { d: path([...Array(81).keys()].map(step => spot(mean(weightsAt(step / 4))))) });
    set(output, { transform: `translate(${at(spot(found))})` });
    const shares = weights.map((weight, i) => `${fixed(weight)} to ${name(i)}`).join(", ");
    play.say(`The query ${point(query)} with β = ${strictness.value} gives ${shares}. The output is ${point(found)}.`);
  };
  const ask = (x, y) => {
    [query[across], query[upwards]] = [x, y].map(number => Math.min(Math.max(Math.round(20 * number) / 20, -1.5), 1.5));
    show();
  };
  play.drag(handle, plane, "query", (x, y) => ask((x - origin) / unit, (origin - y) / unit),
    (right, up) => ask(query[across] + right / 10, query[upwards] + up / 10));
  const strictness = play.slider("β", { min: 0, max: 20, step: 0.5, value: beta }, show);
  play.moves(share => {  // down to the plain mean, and back to where a dragged query shows
    strictness.value = share < 0.8 ? 20 * (1 - share / 0.8) ** 2 : beta * (share - 0.8) / 0.2;
    show();
  }, 6000);
});
