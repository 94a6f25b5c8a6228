// The means of a text by layer: a curve for each measure, with two standard errors to both sides, and its numbers.

const PANEL = { width: 320, height: 150, left: 52, right: 14, top: 10, bottom: 20 }; // units of the drawing
const MEASURES = { loss: 4, rank: 1, probability: 4, divergence: 4 }; // decimals

function panelOf(name, layers, words) {
  const made = element("section");
  const numbers = layers.map((row) => ({ layer: row.layer, mean: row[name], error: row[`${name}_error`] ?? 0 }));
  const low = Math.min(...numbers.map(({ mean, error }) => mean - 2 * error));
  const high = Math.max(...numbers.map(({ mean, error }) => mean + 2 * error));
  const { width, height, left, right, top, bottom } = PANEL;
  const across = (at) => (left + (width - left - right) * (numbers.length > 1 ? at / (numbers.length - 1) : 0.5)).toFixed(1);
  const down = (value) => (top + (height - top - bottom) * (high > low ? (high - value) / (high - low) : 0.5)).toFixed(1);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words.measures[name] });
  svg.append(drawn("path", { class: "ground", d: `M${left} ${height - bottom}H${width - right}` }));
  svg.append(drawn("path", { d: numbers.map(({ mean }, at) => `${at ? "L" : "M"}${across(at)} ${down(mean)}`).join("") }));
  for (const [at, { layer, mean, error }] of numbers.entries()) {
    svg.append(drawn("circle", { cx: across(at), cy: down(mean), r: 2.5 }));
    if (error) svg.append(drawn("path", { class: "error", d: `M${across(at)} ${down(mean - 2 * error)}V${down(mean + 2 * error)}` }));
    if (at % Math.ceil(numbers.length / 8) === 0) svg.append(drawn("text", { x: across(at), y: height - 5 }, `L${layer}`));
  }
  for (const value of new Set([low, high])) svg.append(drawn("text", { class: "end", x: left - 6, y: Number(down(value)) + 4 }, value.toPrecision(3)));
  const table = element("table");
  for (const { layer, mean, error } of numbers) {
    const row = table.insertRow();
    const shown = (value) => value.toFixed(MEASURES[name]);
    row.append(element("th", "", `L${layer}`), element("td", "", shown(mean)), element("td", "", error ? `±${shown(error)}` : ""));
  }
  made.append(element("h2", "", words.measures[name]), svg, table);
  return made;
}

function drawn(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}
