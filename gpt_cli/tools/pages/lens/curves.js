// The means of a text by layer: a curve for each measure, with one standard error to both sides, and its numbers.

const PANEL = { width: 320, height: 150, left: 52, right: 14, top: 10, bottom: 20 }; // units of the drawing
const MEASURES = { loss: 4, rank: 1, probability: 4, divergence: 4 }; // decimals

function panelOf(name, layers, lenses, words) {
  const curves = lenses.map((lens) => layers.map((row) => {
    const key = lens === "tuned" ? `tuned_${name}` : name;
    return { layer: row.layer, mean: row[key], error: row[`${key}_error`] ?? 0 };
  }));
  const low = Math.min(...curves.flat().map(({ mean, error }) => mean - error));
  const high = Math.max(...curves.flat().map(({ mean, error }) => mean + error));
  const { width, height, left, right, top, bottom } = PANEL;
  const across = (at) => (left + (width - left - right) * (layers.length > 1 ? at / (layers.length - 1) : 0.5)).toFixed(1);
  const down = (value) => (top + (height - top - bottom) * (high > low ? (high - value) / (high - low) : 0.5)).toFixed(1);
  const svg = drawn("svg", "", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words.measures[name] },
    drawn("path", "ground", { d: `M${left} ${height - bottom}H${width - right}` }));
  for (const [place, numbers] of curves.entries()) {
    const path = numbers.map(({ mean }, at) => `${at ? "L" : "M"}${across(at)} ${down(mean)}`).join("");
    const curve = drawn("g", lenses[place], {}, drawn("path", "", { d: path }));
    for (const [at, { mean, error }] of numbers.entries()) {
      curve.append(drawn("circle", "", { cx: across(at), cy: down(mean), r: 2.5 }));
      if (error) curve.append(drawn("path", "error", { d: `M${across(at)} ${down(mean - error)}V${down(mean + error)}` }));
    }
    svg.append(curve);
  }
  for (const [at, { layer }] of layers.entries()) {
    if (at % Math.ceil(layers.length / 8) === 0) svg.append(drawn("text", "", { x: across(at), y: height - 5 }, `L${layer}`));
  }
  for (const value of new Set([low, high])) svg.append(drawn("text", "end", { x: left - 6, y: Number(down(value)) + 4 }, value < 100 ? value.toPrecision(3) : String(Math.round(value))));
  const table = element("table");
  const gains = lenses.length > 1 && `${name}_gain` in layers[0];
  if (lenses.length > 1) {
    table.insertRow().append(element("th"), ...[...lenses, ...(gains ? ["gain"] : [])].map((column) =>
      Object.assign(element("th", column, element("span", "", words.lenses[column])), { colSpan: 2 })));
  }
  const shown = (value) => value.toFixed(MEASURES[name]);
  for (const [at, row] of layers.entries()) {
    const { layer } = row, gain = { mean: row[`${name}_gain`], error: row[`${name}_gain_error`] };
    const figures = [...curves.map((numbers) => numbers[at]), ...(gains ? [gain] : [])];
    const cells = figures.flatMap(({ mean, error }) => [shown(mean), error ? `±${shown(error)}` : ""]);
    table.insertRow().append(element("th", "", `L${layer}`), ...cells.map((cell) => element("td", "", cell)));
  }
  return element("section", "", element("h2", "", words.measures[name]), svg, table);
}
