// Chapter 22: two heads' attention and the loss, while an induction head is born.

start("birth", play => {
  const { letters, period, between, loss, scores, maps } = play.data, places = letters.length, cell = 12;
  const side = cell * (places + 1), blue = "rgb(var(--blue))", last = maps.length - 1, axis = { class: "small quiet" };
  const wanted = [(i, j) => j === i - 1, (i, j) => j && i >= period && (i - j + 1) % period === 0];
  const heads = ["layer 0: one place back", "layer 1: after the same letter"].map((name, h) => {
    const panel = play.panel(side + 2, side + 22, `${name}; a row for each place, dark where it looks`), cells = [];
    draw("text", panel, { class: "bold", y: 14, text: name });
    for (let i = 0; i < places; i++) {
      draw("text", panel, { ...axis, class: "small quiet middle", x: 5, y: 44 + cell * i, text: letters[i] });
      draw("text", panel, { ...axis, class: "small quiet middle", x: cell * (i + 1.5), y: 31, text: letters[i] });
      for (let j = 0; j <= i; j++) {
        const place = { x: cell * (j + 1) + 1, y: cell * i + 35, width: cell - 2, height: cell - 2, fill: blue };
        cells.push(draw("rect", panel, { ...place, stroke: wanted[h](i, j) ? "var(--c1)" : "var(--line)" }));
      }
    }
    return cells;
  });

  const width = 2 * side + 24, chart = play.panel(width, 120, "the loss on what repeats, step by step");
  const x = frame => 30 + (width - 40) * frame / last, y = nats => 108 - 90 * nats / Math.max(...loss);
  draw("text", chart, { class: "bold", y: 14, x: 30, text: "loss on what repeats" });
  for (const nats of [0, 2, 4]) {
    draw("path", chart, { class: "line", d: `M30 ${y(nats)}H${width - 10}` });
    draw("text", chart, { ...axis, x: 8, y: y(nats) + 4, text: nats });
  }
  const line = draw("path", chart, { fill: "none", stroke: blue, "stroke-width": 2 });
  const dot = draw("circle", chart, { r: 5, fill: "var(--c1)" });

  const show = frame => {
    heads.forEach((cells, h) => cells.forEach((one, i) => set(one, { "fill-opacity": maps[frame][h][i] / 9 })));
    const points = loss.slice(0, frame + 1).map((nats, i) => `${x(i).toFixed(1)} ${y(nats).toFixed(1)}`);
    set(line, { d: `M${points.join("L")}` });
    set(dot, { cx: x(frame), cy: y(loss[frame]) });
    const [back, after] = scores[frame].map(score => Math.round(100 * score));
    play.say(`After ${frame * between} updates: a loss of ${fixed(loss[frame])}. Where it's outlined, the lower head ` +
      `has ${back} % of its attention, and the upper one ${after} %.`);
  };
  const slider = play.slider("updates", { min: 0, max: last, value: 0, show: frame => frame * between }, show);
  play.moves(share => show(slider.value = Math.round(last * share)), 9000);
});
