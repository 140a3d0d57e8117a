// The panels in rows, as on a desk; the style goes along, since a picture in a picture does not see the page's.
style => {
  document.querySelectorAll("[data-still]").forEach(button => button.click());
  const [desk, gap, edge] = [656, 20, 8];
  let [x, y, width, height] = [0, 0, 0, 0];
  const copies = [...document.querySelectorAll(".play-panels > svg")].map(panel => {
    const [across, down] = [panel.width.baseVal.value, panel.height.baseVal.value];
    if (x && x + across > desk) [x, y] = [0, height + gap];
    const copy = panel.cloneNode(true);
    copy.setAttribute("x", x);
    copy.setAttribute("y", y);
    [x, width, height] = [x + across + gap, Math.max(width, x + across), Math.max(height, y + down)];
    return new XMLSerializer().serializeToString(copy).replace(' xmlns="http://www.w3.org/2000/svg"', "");
  });
  const [across, down] = [width + 2 * edge, height + 2 * edge];
  const size = `viewBox="${-edge} ${-edge} ${across} ${down}" width="${across}" height="${down}"`;
  const paper = `<rect x="${-edge}" y="${-edge}" width="100%" height="100%" fill="var(--paper)"/>`;
  const parts = [`<style>\n${style}</style>`, paper, ...copies, "</svg>\n"];
  return [`<svg xmlns="http://www.w3.org/2000/svg" class="play" ${size}>`, ...parts].join("\n");
}
