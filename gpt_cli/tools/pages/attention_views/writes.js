// What a head writes: the tokens whose logits it raises and lowers most at each position.

// Bars of what the chosen head writes at the chosen token. The `writes` of a page are null where it has none; their
// of(place, token) gives those raised, then those lowered, {text, logit}, the strongest first, or null while they are
// computed. A part without a choice keeps its room, so that nothing jumps.
function showWrites(page) {
  const { writes, place, token } = page;
  const part = byId("writes");
  part.hidden = writes === null;
  if (writes === null) return;
  const chosen = place !== null && token !== null;
  const found = chosen ? writes.of(place, token) : null;
  part.classList.toggle("empty", !chosen);
  part.classList.toggle("behind", chosen && found === null);
  if (chosen) byId("writes-name").textContent = page.writesName(token);
  if (found === null) return;
  const widest = Math.max(...found.flat().map(({ logit }) => Math.abs(logit)), 1e-9);
  for (const [at, name] of ["raised", "lowered"].entries())
    byId(name).replaceChildren(...found[at].map(({ text, logit }) => {
      const bar = element("span", "bar");
      bar.style.width = `${(100 * Math.abs(logit) / widest).toFixed(1)}%`;
      const word = element("span", "word", marked(text));
      word.title = marked(text); // where it is cut
      return element("li", "", word, element("span", "frame", bar), element("span", "number", signed(logit, 3)));
    }));
}
