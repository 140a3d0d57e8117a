// Chapter 04: ten words travel through a stack of six layers, which replace, add, or add and normalise.

start("layers", play => {
  const { stacks, width } = play.data, ways = Object.keys(stacks), stops = stacks[ways[0]].points.length, side = 310;
  let way = ways[0], shown = { points: stacks[way].points[0], reach: 2.5 };
  play.choice(ways, i => { way = ways[i]; replay(); });

  const plane = play.panel(side, side, "the ten words, as points in a plane");
  draw("path", plane, { class: "line", d: `M0 0H${side}V${side}H0ZM0 ${side / 2}H${side}M${side / 2} 0V${side}` });
  const ring = draw("circle", plane, { class: "line", cx: side / 2, cy: side / 2, "stroke-dasharray": "4 3" });
  draw("text", plane, { class: "small quiet end", x: side - 4, y: side - 6, text: `first of ${width} numbers →` });
  draw("text", plane, { class: "small quiet", x: 4, y: 14, text: `↑ second of ${width} numbers` });
  draw("text", plane, { class: "small quiet end", x: side - 4, y: 14, text: "dashed: radius 1" });
  const words = stacks[way].points[0].map((_, i) => {
    const word = draw("g", plane);
    draw("circle", word, { r: 9, fill: "var(--paper)", stroke: `var(--c${i % 5})`, "stroke-width": 2 });
    draw("text", word, { class: "middle small", y: 4, text: i });
    return word;
  });

  const chart = play.panel(side, 220, "the difference between the words, a bar for each stop"), step = side / stops;
  const title = draw("text", chart, { class: "bold", y: 14 }), look = { width: step - 2, fill: "rgb(var(--blue))" };
  const bars = stacks[way].difference.map((_, i) => draw("rect", chart, { ...look, x: step * i + 1 }));
  draw("path", chart, { class: "line", d: `M0 216H${side}` });

  /** Let the words glide to a stop, in a frame that reaches as far as they do. */
  function travel(at, milliseconds) {
    const { points, difference, size } = stacks[way], from = shown;
    const reach = 2.5 * 2 ** Math.max(0, ...points[at].flat().map(one => Math.ceil(Math.log2(Math.abs(one) / 2.4))));
    glide(share => {
      const between = (start, end) => start + share * (end - start), unit = side / 2 / between(from.reach, reach);
      const now = points[at].map((point, i) => point.map((end, j) => between(from.points[i][j], end)));
      const placed = number => (side / 2 + unit * number).toFixed(1);
      shown = { points: now, reach: side / 2 / unit };
      set(ring, { r: unit });
      now.forEach(([x, y], i) => set(words[i], { transform: `translate(${placed(x)} ${placed(-y)})` }));
    }, milliseconds);
    set(title, { text: `difference between the words: ${fixed(difference[at])}` });
    bars.forEach((bar, i) => set(bar, { y: 216 - 190 * difference[i], height: i > at ? 0 : 190 * difference[i] }));
    const stage = at ? `After layer ${Math.floor((at - 1) / 2)}, ${at % 2 ? "attention" : "feed-forward"}` : "At first";
    play.say(`${stage} (${way}): the difference between the words is ${fixed(difference[at])}, and the size of their ` +
      `numbers (the standard deviation) ${fixed(size[at])}.${difference[at] < 0.005 ? " Ten words, one point." : ""}`);
  }
  play.more("One stop at a time");
  const stop = play.slider("stop", { min: 0, max: stops - 1, value: 0 }, at => travel(at, 250));
  const replay = play.moves(share => {
    const before = stop.value;
    stop.value = share * (stops - 1);
    if (!share || share === 1 || stop.value !== before) travel(stop.value, share < 1 ? 250 : 0);
  }, 5000);
});
