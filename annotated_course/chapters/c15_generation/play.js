// Chapter 15: temperature, top k and nucleus, over a model's next character after two texts.

start("sampling", play => {
  const SHOWN = 24, [width, top, floor] = [312, 48, 180], slot = width / (SHOWN + 1), { texts } = play.data;
  const total = p => p.reduce((sum, one) => sum + one, 0), stretched = p => p.map(one => one / total(p));

  /** As `annotated.models.language_model.sampling_probabilities`, of logits in falling order; and what is cut off. */
  function probabilities(logits, temperature, k, share) {
    if (temperature === 0) [k, temperature] = [1, 1];
    const all = softmax(logits.map(logit => logit / temperature));
    const first = stretched(all.map((p, i) => i < k ? p : 0));
    const stays = first.map((p, i) => p > 0 && (share === 1 || total(first.slice(0, i)) < share));
    return [stretched(first.map((p, i) => stays[i] ? p : 0)), total(all.filter((_, i) => !stays[i]))];
  }

  const hit = (p, dart) => p.findIndex((_, i) => total(p.slice(0, i + 1)) > dart * total(p));  // p laid end to end
  let { seed } = play.data, darts = [];
  const panels = texts.map(({ after }) => play.panel(width, 200, `the next character after ${after}`));

  function showText({ after, characters, logits }, panel) {
    const [p, cut] = probabilities(logits, temperature.value, k.value, share.value), kept = p.filter(one => one > 0);
    const perplexity = Math.exp(-total(kept.map(one => one * Math.log(one))));
    const [own, now] = [softmax(logits), p].map(all => [...all.slice(0, SHOWN), total(all.slice(SHOWN))]);
    const unit = floor - top;  // as tall as 100 % in every chart, so that the charts can be compared
    panel.replaceChildren();
    draw("text", panel, { y: 12, text: `after ${after}` });
    const stay = `${kept.length} of ${p.length} ${kept.length === 1 ? "stays" : "stay"}`;
    draw("text", panel, { class: "small quiet", y: 30, text: `${stay}, ${fixed(100 * cut, 1)} % cut off` });
    const above = floor - 4 - unit * Math.max(own[0], now[0]);
    draw("text", panel, { class: "small", y: above, text: `${fixed(100 * now[0], 1)} %` });
    for (const [y, text] of [[top, "100 %"], [floor - unit / 2, "50 %"]]) {
      draw("path", panel, { class: "line", d: `M60 ${y}H${width}` });
      draw("text", panel, { class: "end small quiet", x: width, y: y - 4, text });
    }
    own.forEach((one, i) => {
      const x = slot * i + 1.5, w = slot - 3, [height, before] = [unit * now[i], unit * one];
      if (now[i]) draw("rect", panel, { x, y: floor - height, width: w, height, fill: "rgb(var(--blue))" });
      else draw("line", panel, { x1: x + w / 2, x2: x + w / 2, y1: floor, y2: floor - before,
        stroke: "var(--c1)", "stroke-width": w, "stroke-dasharray": "1 2" });  // hatched: colour alone says nothing
      draw("rect", panel, { x, y: floor - before, width: w, height: before,
        ...(now[i] ? { fill: "none", stroke: "var(--ink)" } : { fill: "var(--c1)", "fill-opacity": 0.4 }) });
      draw("text", panel, { class: now[i] ? "middle small" : "middle small quiet", x: x + w / 2, y: floor + 15,
        text: i < SHOWN ? characters[i] : "…" });
    });
    draw("path", panel, { class: "line", d: `M0 ${floor}H${width}` });
    const drawn = darts.length ? ` (drawn: ${darts.map(dart => characters[hit(p, dart)]).join(" ")})` : "";
    return `${fixed(perplexity, 1)} equally likely letters after ${after}${drawn}`;
  }

  const show = () => play.say(`A draw is like a choice among ${texts.map((text, i) => showText(text, panels[i]))
    .join(", and among ")}.`);
  const all = texts[0].logits.length;
  const k = play.slider("top k", { min: 1, max: all, value: play.data.k, show: n => n === all ? "all" : n }, show);
  play.more("Temperature, a nucleus, and ten draws");
  const temperature = play.slider("T", { min: 0, max: 2, step: 0.1, value: 1, show: value => fixed(value, 1) }, show);
  const part = { min: 0.05, max: 1, step: 0.05, value: 1, show: p => p === 1 ? "all" : fixed(p) };
  const share = play.slider("nucleus", part, show);
  play.button("draw ten", () => {
    darts = Array.from({ length: 10 }, () => (seed = (1664525 * seed + 1013904223) % 2 ** 32) / 2 ** 32);
    show();
  });
  play.moves(share => { k.value = Math.round(20 * (play.data.k / 20) ** share); show(); }, 4000);
});
