// Lines between two rows of tokens: above those that look, below those they look at.

// All lines of one token, or of all where it is null. 32 strengths by the square root of the weight, one path for each:
// hundreds of thousands of lines would be too many elements.
function drawLines(svg, lookers, targets, token, shown) {
  const middle = (span) => span.offsetLeft + span.offsetWidth / 2;
  const [from, to] = [lookers.map(middle), targets.map(middle)];
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
  const widest = Math.max(...[lookers, targets].map((row) => row.at(-1).offsetLeft + row.at(-1).offsetWidth));
  svg.style.width = `${widest}px`;
  svg.replaceChildren(...[...paths].map(([name, lines]) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const [kind, strength] = name.split(" ");
    path.setAttribute("class", kind);
    path.setAttribute("d", lines);
    path.style.opacity = strength / 32;
    return path;
  }));
}
