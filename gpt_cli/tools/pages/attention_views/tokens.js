// The text in which a token is chosen, the lines between its two rows, and what the chosen token looks at, in words.

class Tokens {
  constructor(page) {
    this.page = page;
    this.rebuild();
    for (const name of ["text", "lookers", "targets"]) {
      byId(name).addEventListener("pointerover", (event) => page.hover(event.target.token ?? null, name === "text"));
      byId(name).addEventListener("pointerleave", () => page.hover(null, false));
      byId(name).addEventListener("click", (event) => event.target.token !== undefined && page.choose(event.target.token));
    }
    byId("text").addEventListener("focusin", (event) => page.choose(event.target.token));
    byId("text").addEventListener("keydown", (event) => walkTokens(event, this.texts, page));
  }

  // For a new text.
  rebuild() {
    const { labels } = this.page.weights;
    this.texts = this.build(byId("text"), labels.map((label) => label.text), "token");
    this.lookers = this.build(byId("lookers"), labels.map((label) => label.short));
    this.targets = this.build(byId("targets"), labels.map((label) => label.short));
  }

  build(parent, labels, name) {
    const { numTokens, numGenerated } = this.page.weights;
    const spans = labels.map((label, token) => {
      const span = element("span", name, label);
      if (name) {
        span.tabIndex = -1;
        span.setAttribute("role", "button");
        span.classList.toggle("generated", token >= numTokens - numGenerated);
      }
      span.token = token;
      return span;
    });
    parent.replaceChildren(...spans);
    return spans;
  }

  // With its position, since words return.
  quoted(token) { return this.page.words.token(isolated(marked(this.page.weights.labels[token].text)), token); }

  // Where the two rows have their tokens; before anything is drawn.
  measure() {
    const middles = (row) => row.map((span) => span.offsetLeft + span.offsetWidth / 2);
    const widest = Math.max(...[this.lookers, this.targets].map((row) => row.at(-1).offsetLeft + row.at(-1).offsetWidth));
    this.ends = { from: middles(this.lookers), to: middles(this.targets), widest };
    this.room = byId("lines").clientWidth;
  }

  show() {
    const { texts, lookers, targets } = this;
    const { token, chosen, threshold } = this.page;
    // half as strong as a line: text stays readable on it
    const shade = (colour, weight) => `rgb(var(--${colour}) / ${(0.5 * Math.sqrt(weight)).toFixed(3)})`;
    const shown = (query, key) => {
      const weight = key <= query ? this.page.weight(query, key) : 0;
      return weight < threshold ? 0 : weight;
    };
    texts.forEach((span, other) => {
      const [looks, looked] = token === null ? [0, 0] : [shown(token, other), shown(other, token)];
      span.style.backgroundColor = targets[other].style.backgroundColor = shade("looks", looks);
      span.style.borderBottomColor = `rgb(var(--looked) / ${Math.sqrt(looked).toFixed(3)})`;
      lookers[other].style.backgroundColor = shade("looked", looked);
      for (const one of [span, lookers[other], targets[other]]) one.classList.toggle("chosen", other === token);
      span.setAttribute("aria-pressed", other === token);
      span.tabIndex = other === (chosen ?? 0) ? 0 : -1;
    });
    drawLines(byId("between"), this.ends, token, shown);
    byId("details").replaceChildren(...this.sentences(shown).map((sentence) => element("p", "", sentence)));
  }

  // The chosen token in the middle of its row, where the rows are wider than the page.
  bringToView() {
    const middle = this.ends.from[this.page.token];
    if (middle !== undefined && this.ends.widest > this.room) byId("lines").scrollLeft = middle - this.room / 2;
  }

  // The five strongest of each direction, in words.
  sentences(shown) {
    const { token, words, weights } = this.page;
    if (token === null) return [];
    const others = weights.tokens.map((_, other) => other);
    const list = (pairs) => pairs.filter(([, weight]) => weight > 0).sort((a, b) => b[1] - a[1]).slice(0, 5)
      .map(([other, weight]) => `${quoted(weights.labels[other].text)} (${other}) ${weight.toFixed(4)}`).join(" · ") || words.nothing;
    return [
      words.looksAt(this.quoted(token)) + list(others.map((key) => [key, shown(token, key)])),
      words.lookedAtBy(this.quoted(token)) + list(others.map((query) => [query, shown(query, token)])),
      ...this.page.told(token),
    ];
  }
}

// Arrow keys between the spans of a text; Enter and Space choose, and nothing else: a page would scroll.
function walkTokens(event, spans, page) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    page.choose(event.target.token);
  }
  const last = spans.length - 1;
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -last, End: last }[event.key];
  if (!step) return;
  event.preventDefault();
  spans[Math.max(0, Math.min(last, event.target.token + step))].focus();
}
