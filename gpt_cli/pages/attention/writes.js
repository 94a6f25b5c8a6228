// What a head writes: the tokens whose logits it raises and lowers most at each position.

class Writes {
  constructor(content, tokens, logits, numTokens) {
    Object.assign(this, content);
    this.tokens = tokens; // [2, heads, T, top]: raised, then lowered
    this.logits = logits;
    this.numTokens = numTokens;
  }

  static async read(content, numTokens) {
    const [tokens, logits] = await Promise.all([unpack(content.tokens), unpack(content.logits)]);
    return new Writes(content, new Uint32Array(tokens), new Int16Array(logits), numTokens);
  }

  // Texts and logits, the strongest first; `place` counts the heads through all layers.
  of(lowered, place, token) {
    const half = this.tokens.length / 2;
    const at = lowered * half + (place * this.numTokens + token) * this.top;
    return Array.from({ length: this.top }, (_, rank) =>
      ({ text: this.texts[this.tokens[at + rank]], logit: this.logits[at + rank] * this.unit }));
  }
}

// Bars of what the chosen head writes at the chosen token. A part without a choice keeps its room, so that nothing jumps.
function showWrites(page) {
  const { writes, place, token, words } = page;
  const part = byId("writes");
  part.hidden = writes === null;
  if (writes === null) return;
  part.classList.toggle("empty", place === null || token === null);
  if (place === null || token === null) return;
  byId("writes-name").textContent = words.writes(page.tokens.quoted(token));
  const [raised, lowered] = [0, 1].map((kind) => writes.of(kind, place, token));
  const widest = Math.max(...[...raised, ...lowered].map(({ logit }) => Math.abs(logit)), 1e-9);
  for (const [name, found] of [["raised", raised], ["lowered", lowered]])
    byId(name).replaceChildren(...found.map(({ text, logit }) => {
      const row = element("li");
      const bar = element("span", "bar");
      bar.style.width = `${(100 * Math.abs(logit) / widest).toFixed(1)}%`;
      const frame = element("span", "frame");
      frame.append(bar);
      const word = element("span", "word", text);
      word.title = text; // where it is cut
      row.append(word, frame, element("span", "number", signed(logit)));
      return row;
    }));
}

function signed(logit) { return `${logit < 0 ? "−" : "+"}${Math.abs(logit).toFixed(3)}`; }
