// The text in which a token is chosen, the lines between its two rows, and what the chosen token looks at, in words.

class Tokens {
  constructor(page) {
    this.page = page;
    const { labels } = page.weights;
    this.texts = this.build(byId("text"), labels.map((label) => label.text), "token");
    this.lookers = this.build(byId("lookers"), labels.map((label) => label.short));
    this.targets = this.build(byId("targets"), labels.map((label) => label.short));
    for (const name of ["text", "lookers", "targets"]) {
      byId(name).addEventListener("pointerover", (event) => page.hover(event.target.token ?? null, name === "text"));
      byId(name).addEventListener("pointerleave", () => page.hover(null, false));
      byId(name).addEventListener("click", (event) => event.target.token !== undefined && page.choose(event.target.token));
    }
    byId("details").classList.toggle("written", page.weights.generated.length > 0); // a line more
    byId("text").addEventListener("focusin", (event) => page.choose(event.target.token));
    byId("text").addEventListener("keydown", (event) => this.walk(event));
  }

  build(parent, labels, name) {
    const { numTokens, generated } = this.page.weights;
    return labels.map((label, token) => {
      const span = element("span", name, label);
      if (name) {
        span.tabIndex = -1;
        span.setAttribute("role", "button");
        span.classList.toggle("generated", token >= numTokens - generated.length);
      }
      span.token = token;
      parent.append(span);
      return span;
    });
  }

  walk(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.page.choose(event.target.token);
    }
    const last = this.texts.length - 1;
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -last, End: last }[event.key];
    if (!step) return;
    event.preventDefault();
    this.texts[Math.max(0, Math.min(last, event.target.token + step))].focus();
  }

  // With its position, since words return; isolated, so that a token's direction of writing leaves the numbers alone.
  quoted(token) { return `“\u2068${this.page.weights.labels[token].text}\u2069” (${token})`; }

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
    drawLines(byId("between"), lookers, targets, token, shown);
    byId("details").replaceChildren(...this.sentences(shown).map((sentence) => element("p", "", sentence)));
  }

  // The chosen token in the middle of its row, where the rows are wider than the page.
  bringToView() {
    const span = this.lookers[this.page.token];
    if (span) byId("lines").scrollLeft = span.offsetLeft - byId("lines").clientWidth / 2;
  }

  // The five strongest of each direction, in words.
  sentences(shown) {
    const { token, words, weights } = this.page;
    if (token === null) return [];
    const others = weights.tokens.map((_, other) => other);
    const list = (pairs) => pairs.filter(([, weight]) => weight > 0).sort((a, b) => b[1] - a[1]).slice(0, 5)
      .map(([other, weight]) => `${this.quoted(other)} ${weight.toFixed(4)}`).join(" · ") || words.nothing;
    const written = weights.generated[token - weights.numTokens + weights.generated.length];
    return [
      words.looksAt(this.quoted(token)) + list(others.map((key) => [key, shown(token, key)])),
      words.lookedAtBy(this.quoted(token)) + list(others.map((query) => [query, shown(query, token)])),
      ...(written ? [words.generated(written.probability.toFixed(4), written.rank)] : []),
    ];
  }
}
