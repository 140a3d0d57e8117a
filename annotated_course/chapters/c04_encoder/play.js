// Chapter 04: ten words travel through a stack of six layers, with or without the sum and the norm.

start("layers", play => {
  const { stacks, width } = play.data, stops = stacks[0].points.length, side = 310;
  const PARTS = ["attention", "LayerNorm", "feed-forward", "LayerNorm"], switches = { add: true, normalise: true };
  const name = at => at ? `layer ${Math.floor((at - 1) / 4)}, ${PARTS[(at - 1) % 4]}` : "the start";
  const stop = play.slider("after", { min: 0, max: stops - 1, value: 0, show: name }, () => travel());
  play.toggle("residual", true, on => { switches.add = on; travel(); });
  play.toggle("LayerNorm", true, on => { switches.normalise = on; travel(); });

  const plane = play.panel(side, side, "the ten words, as points in a plane");
  draw("path", plane, { class: "line", d: `M0 0H${side}V${side}H0ZM0 ${side / 2}H${side}M${side / 2} 0V${side}` });
  const ring = draw("circle", plane, { class: "line", cx: side / 2, cy: side / 2, "stroke-dasharray": "4 3" });
  const radius = draw("text", plane, { class: "small quiet", y: side / 2 - 4, text: "1" });
  draw("text", plane, { class: "small quiet end", x: side - 4, y: side - 6, text: `first of ${width} numbers →` });
  draw("text", plane, { class: "small quiet", x: 4, y: 14, text: `↑ second of ${width} numbers` });
  const words = stacks[0].points[0].map((_, i) => {
    const word = draw("g", plane);
    draw("circle", word, { r: 9, fill: "var(--paper)", stroke: `var(--c${i % 5})`, "stroke-width": 2 });
    draw("text", word, { class: "middle small", y: 4, text: i });
    return word;
  });

  const charts = play.panel(side, side, "the difference between the words, and the size of their numbers");
  function chart(title, top, most) {
    const label = draw("text", charts, { y: top }), step = side / stops, [floor, unit] = [top + 125, 113 / most];
    const bars = stacks[0].points.map((_, i) => draw("rect", charts, { x: step * i + 1, width: step - 2 }));
    draw("path", charts, { class: "line", d: `M0 ${floor}H${side}` });
    return (values, at) => {
      set(label, { text: `${title}: ${fixed(values[at])}` });
      values.forEach((value, i) => set(bars[i], { y: floor - unit * value, height: unit * value, stroke: "var(--quiet)",
        fill: i > at ? "none" : "rgb(var(--blue))", visibility: i > farthest ? "hidden" : "visible" }));
    };
  }
  const showDifference = chart("difference between the words", 14, 1);
  const showSize = chart("size of their numbers", 178, Math.max(...stacks.flatMap(stack => stack.size)));

  let shown = null, farthest = 0;  // the last stop that was reached: what comes after it is still to be guessed
  /** Put the words at these points, in a frame that reaches so far to each side. */
  function place(points, reach) {
    shown = { points, reach };
    const unit = side / 2 / reach, at = number => (side / 2 + unit * number).toFixed(1);
    set(ring, { r: unit });
    set(radius, { x: side / 2 + unit + 3 });
    points.forEach(([x, y], i) => set(words[i], { transform: `translate(${at(x)} ${at(-y)})` }));
  }

  function travel(milliseconds) {
    const { add, normalise } = switches, at = stop.value, from = shown;
    const { points, difference, size } = stacks.find(stack => stack.add === add && stack.normalise === normalise);
    const to = points[at], largest = Math.max(...to.flat().map(Math.abs));
    const reach = 2.5 * 2 ** Math.max(0, Math.ceil(Math.log2(largest / 2.4)));
    farthest = Math.max(farthest, at);
    if (!from) place(to, reach);
    else glide(share => {
      const between = (start, end) => start + share * (end - start);
      place(to.map((point, i) => point.map((end, j) => between(from.points[i][j], end))), between(from.reach, reach));
    }, milliseconds);
    showDifference(difference, at);
    showSize(size, at);
    const how = at % 2 ? (add ? ", added" : ", replacing what was there") : at && !normalise ? ", switched off" : "";
    play.say(`After ${name(at)}${how}: the difference between the words is ${fixed(difference[at])}, and the size of ` +
      `their numbers (the standard deviation) ${fixed(size[at])}. The dashed ring marks 1.`);
  }
  play.moves(share => {
    const before = stop.value;
    stop.value = share * (stops - 1);
    if (!shown || stop.value !== before) travel(share < 1 ? 250 : 0);
  }, 6000);
});
