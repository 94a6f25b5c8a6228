// The text as the model has read it: each token the stronger in colour, the less the model expected it.

const MOST_SURPRISING = 8; // nats, from which on the shade stays the same: 1 in 3,000

class Reading {
  constructor(views) {
    this.views = views;
    const strip = byId("surprisals");
    strip.addEventListener("pointerover", (event) => event.target.token !== undefined && this.tell(event.target.token));
    strip.addEventListener("pointerleave", () => this.tell(null));
    strip.addEventListener("click", (event) => event.target.token !== undefined && views.choose(event.target.token));
    strip.addEventListener("focusin", (event) => views.choose(event.target.token));
    strip.addEventListener("keydown", (event) => walkTokens(event, this.spans, views));
    this.pointed = null;
  }

  // `surprisals` in nats, NaN for a token that nothing came before.
  take(surprisals, cut) {
    const { tokens, weights } = this.views;
    Object.assign(this, { surprisals, cut });
    this.spans = tokens.build(byId("surprisals"), weights.labels.map(({ text }) => text), "read");
    this.spans.forEach((span, token) => {
      const share = Math.min(1, (surprisals[token] || 0) / MOST_SURPRISING);
      span.style.backgroundColor = `rgb(var(--lowers) / ${(0.6 * share).toFixed(3)})`;
    });
  }

  tell(token) {
    this.pointed = token;
    this.show();
  }

  // The loss of the text in nats per token; null for a single token.
  get loss() { return meanSurprisal(this.surprisals); }

  sentence(token) {
    const { words, tokens } = this.views;
    const surprisal = this.surprisals[token];
    const of = tokens.quoted(token);
    return Number.isNaN(surprisal) ? words.first(of) : words.surprisalOf(of, percent(Math.exp(-surprisal)), surprisal.toFixed(3));
  }

  show() {
    const { words, chosen, weights } = this.views;
    const token = this.pointed ?? chosen;
    this.spans.forEach((span, place) => {
      span.classList.toggle("chosen", place === chosen);
      span.tabIndex = place === (chosen ?? 0) ? 0 : -1;
      span.setAttribute("aria-pressed", place === chosen);
      span.setAttribute("aria-label", this.sentence(place));
    });
    const parts = [
      ...(this.loss === null ? [] : [words.lossOf(this.loss.toFixed(4))]),
      ...(this.cut ? [words.cut(weights.numTokens, weights.numTokens + this.cut)] : []),
      ...(token === null || token >= weights.numTokens ? [] : [this.sentence(token)]),
    ];
    byId("surprisal").replaceChildren(...parts.map((part) => element("span", "", part)));
  }
}

// The mean of those that are known; null where none is.
function meanSurprisal(surprisals) {
  const known = surprisals.filter((surprisal) => !Number.isNaN(surprisal));
  return known.length ? known.reduce((sum, surprisal) => sum + surprisal, 0) / known.length : null;
}
