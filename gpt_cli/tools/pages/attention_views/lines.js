// Lines between two rows of tokens: above those that look, below those they look at.

// All lines of one token, or of all where it is null. 32 strengths by the square root of the weight, one path for each:
// hundreds of thousands of lines would be too many elements.
// `from` and `to` are the middles of the tokens of each row, in pixels, and `widest` is the wider row.
function drawLines(svg, { from, to, widest }, token, shown) {
  const paths = new Map();
  const add = (query, key, kind) => {
    const strength = Math.round(Math.sqrt(shown(query, key)) * 32);
    const name = `${kind} ${strength}`;
    if (strength) paths.set(name, `${paths.get(name) ?? ""}M${from[query]} 0L${to[key]} 110`);
  };
  for (let query = 0; query < from.length; query++)
    if (token === null) for (let key = 0; key <= query; key++) add(query, key, "looks");
    else if (query === token) for (let key = 0; key <= token; key++) add(token, key, "looks");
    else if (query > token) add(query, token, "looked");
  svg.style.width = `${widest}px`;
  svg.replaceChildren(...[...paths].map(([name, lines]) => {
    const [kind, strength] = name.split(" "), path = drawn("path", kind, { d: lines });
    path.style.opacity = strength / 32;
    return path;
  }));
}
