// Chapter 05: the keys that are made while words are written, without a cache and with one.

start("cache", play => {
  const { most } = play.data, cell = Math.floor((Math.min(play.panels.clientWidth || 540, 540) - 21) / 2 / most);
  const side = cell * most, blue = "rgb(var(--blue))", look = { rx: 2, fill: blue, stroke: blue };
  const panels = ["without a cache", "with a cache"].map((name, cached) => {
    const panel = play.panel(side, side + 50, `the keys made ${name}, a row for each word`);
    const rows = Array.from({ length: most }, () => draw("g", panel));
    rows.forEach((row, n) => rows.slice(0, n + 1).forEach((_, i) => draw("rect", row, { ...look, x: cell * i + 2,
      y: 24 + cell * n, width: cell - 4, height: cell - 4, "fill-opacity": cached && i < n ? 0 : 1 })));  // 0: kept
    draw("text", panel, { class: "bold", y: 14, text: name });
    ["filled: made", ...(cached ? ["outlined: kept"] : [])].forEach((text, n) =>
      draw("text", panel, { class: "end small quiet", x: side, y: 36 + 16 * n, text }));
    return { rows, total: draw("text", panel, { class: "bold", y: side + 44 }) };
  });
  const show = step => {
    const words = step + 1, sums = [words * (words + 1) / 2, words];
    panels.forEach(({ rows, total }, i) => {
      rows.forEach((row, n) => set(row, { opacity: n + 1 < words ? 0.55 : n + 1 > words ? 0.1 : 1 }));
      set(total, { text: `${sums[i]} ${sums[i] === 1 ? "key" : "keys"} made` });
    });
    play.say(`Step ${step}: ${words} new without a cache, 1 with it. In all: ${sums.join(" and ")}.`);
  };
  const slider = play.slider("step", { min: 0, max: most - 1, value: 0 }, show);
  play.moves(share => show(slider.value = Math.round((most - 1) * share)), 5000);
});
