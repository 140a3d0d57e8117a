// Chapter 05: what each place reads and what it must write; the lower row slides by one word.

start("shift", play => {
  const { words, losses } = play.data, places = words.length - 1;
  const cell = Math.floor(Math.min(Math.max(play.panels.clientWidth, 300), 640) / (places + 0.5));
  const panel = play.panel(cell * (places + 0.5), 176, "what each place reads, and below it what it must write");
  const put = (word, place) => set(word, { transform: `translate(${cell * (place + 0.75)} 0)` });
  const [, written] = [["reads", 12, 20], ["must write", 172, 122]].map(([title, label, y], more) => {
    draw("text", panel, { class: "small quiet", x: cell / 4 + 2, y: label, text: title });
    return words.slice(0, places + more).map((text, i) => {
      const word = put(draw("g", panel), i), stroke = i % places ? `var(--c${(i - 1) % 5})` : "var(--quiet)";
      const box = { x: 2 - cell / 2, y, width: cell - 4, height: 34, rx: 5 };
      draw("rect", word, { ...box, stroke, fill: stroke, "fill-opacity": 0.2 });
      draw("text", word, { class: cell < 60 ? "middle small" : "middle", y: y + 22, text });
      return word;
    });
  });
  const lines = written.slice(0, places).map(word => draw("path", word, { "stroke-width": 2 }));
  const slide = shift => {
    const near = shift < 0.5, stroke = near ? "var(--c1)" : "var(--quiet)";  // orange: the answer can be copied
    for (const line of lines) set(line, { d: `M0 118L${cell * shift} 58`, stroke });  // to where the word is read
    const at = i => Math.min(i - shift, places - 0.66), seen = place => 1 - 3 * Math.max(0, -place, place - places + 1);
    written.forEach((word, i) => set(put(word, at(i)), { opacity: Math.max(0, seen(at(i))) }));
    const told = near ? "Not shifted: each place must write what it reads."
      : "Shifted by one: each place must write the next word, which it reads only one place later.";
    play.say(`${told} The copycat’s loss is ${fixed(losses[slider.value = Math.round(shift)])}.`);
  };
  const slider = play.slider("shift", { min: 0, max: 1, value: 0 }, to => glide(far => slide(Math.abs(1 - to - far))));
  play.moves(share => slide(Math.min(Math.max(2 * share - 0.4, 0), 1)), 3000);
});
