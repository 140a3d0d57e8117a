// Chapter 01: drag a query; the matches, the weights and the output follow.

start("query", play => {
  const { words, keys, values, axes: [across, upwards], beta } = play.data;
  const query = [...play.data.query];
  const name = i => words[i].split(" ")[0];
  const colour = i => `var(--c${i})`;
  const point = vector => `(${vector.map(number => fixed(number)).join(", ")})`;

  const plane = play.panel(280, 280, "the query and the keys, as arrows in a plane");
  const side = 280, unit = 86, origin = side / 2;  // pixels
  const placed = vector => [origin + unit * vector[across], origin - unit * vector[upwards]];
  draw("path", plane, { class: "line", d: `M0 ${origin}H${side}M${origin} 0V${side}` });
  draw("text", plane, { class: "small quiet end", x: side, y: origin - 8, text: `number ${across} →` });
  draw("text", plane, { class: "small quiet", x: origin + 6, y: 12, text: `↑ number ${upwards}` });
  keys.forEach((key, i) => {
    const [x, y] = placed(key);
    const upright = x === origin && y === origin;  // it shares no number with the plane
    draw("path", plane, { d: `M${origin} ${origin}L${x} ${y}`, stroke: colour(i), "stroke-width": 4 });
    draw("circle", plane, { cx: x, cy: y, r: 6, fill: colour(i) });
    const [class_, right, below] = upright ? ["end", -8, 20] : x > origin ? ["middle", 0, 24] : ["end", -12, 5];
    draw("text", plane, { class: class_, x: x + right, y: y + below, text: `key of ${name(i)}` });
    if (upright) draw("text", plane, { class: "small quiet end", x: x - 8, y: y + 37, text: "(out of the page)" });
  });
  const shaft = draw("path", plane, { stroke: "var(--ink)", "stroke-width": 3 });
  const handle = draw("g", plane);
  draw("circle", handle, { class: "halo", r: 17 });
  draw("circle", handle, { r: 8, fill: "var(--ink)" });
  draw("text", handle, { class: "middle", y: -22, text: "query" });

  const result = play.panel(340, 280, "the weights, and the output between the values");
  const bars = words.map((word, i) => {
    const y = 30 + 24 * i;
    draw("text", result, { y, text: word });
    const match = draw("text", result, { class: "end", x: 150, y });
    const bar = draw("rect", result, { x: 164, y: y - 12, height: 15, rx: 2, fill: colour(i) });
    return { match, bar, share: draw("text", result, { y }) };
  });
  draw("text", result, { class: "small quiet end", x: 150, y: 10, text: "match" });
  draw("text", result, { class: "small quiet", x: 164, y: 10, text: "weight" });
  const spot = ([x, y]) => [40 + 32 * x, 256 - 29 * y];
  draw("text", result, { class: "small quiet", x: 20, y: 250, text: "dashed: the output’s" });
  draw("text", result, { class: "small quiet", x: 20, y: 266, text: "walk, for β from 0 to 20" });
  const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const line = points => "M" + points.map(point => at(spot(point))).join("L");
  draw("path", result, { class: "line", d: line([...values, values[0]]) });
  const dashed = { stroke: "var(--quiet)", "stroke-width": 1.5, "stroke-dasharray": "4 3" };
  const trail = draw("path", result, { fill: "none", ...dashed });
  const pulls = values.map((_, i) => draw("path", result, { stroke: colour(i), "stroke-linecap": "round" }));
  values.forEach((value, i) => {
    const [x, y] = spot(value);
    draw("circle", result, { cx: x, cy: y, r: 6, fill: colour(i) });
    const below = value[1] ? -12 : 22;
    draw("text", result, { class: "middle", x, y: y + below, text: `${name(i)} (${value.join(", ")})` });
  });
  const look = { fill: "var(--ink)", stroke: "var(--paper)", "stroke-width": 2 };
  const output = draw("path", result, { d: "M0 -9L9 0L0 9L-9 0Z", ...look });
  const named = draw("text", result, { class: "end", text: "output" });

  const matches = () => keys.map(key => key.reduce((sum, number, i) => sum + number * query[i], 0));
  const weightsAt = scale => softmax(matches().map(match => scale * match));
  const mean = weights => [0, 1].map(i => values.reduce((sum, value, j) => sum + weights[j] * value[i], 0));
  const show = () => {
    const weights = weightsAt(strictness.value), [x, y] = placed(query), found = mean(weights);
    set(shaft, { d: `M${origin} ${origin}L${at([x, y])}` });
    set(handle, { transform: `translate(${at([x, y])})` });
    set(handle, { "aria-valuenow": query[across], "aria-valuetext": point(query) });
    matches().forEach((match, i) => {
      set(bars[i].match, { text: fixed(match) });
      set(bars[i].bar, { width: 120 * weights[i] });
      set(bars[i].share, { x: 170 + 120 * weights[i], text: fixed(weights[i]) });
      set(pulls[i], { d: line([values[i], found]), "stroke-width": 10 * weights[i] });
    });
    set(trail, { d: line([...Array(81).keys()].map(step => mean(weightsAt(step / 4)))) });
    set(output, { transform: `translate(${at(spot(found))})` });
    set(named, { x: spot(found)[0] - 14, y: spot(found)[1] + 16 });
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
  show();
});
