// The views of attention on what the model has just computed, and the heads that are switched off.

class HeadViews extends Views {
  // `changed` is called when heads have been switched, `chose` when another token or head is chosen.
  constructor(shell, weights, { colours, scores, writes }, { changed, chose }) {
    super(shell, weights, colours, 0);
    Object.assign(this, { scores, writes });
    this.heads = new ScoredHeads(this);
    this.off = new Set(); // places of heads
    this.start = 0; // of what the model sees of the text
    this.chose = chose;
    this.reading = new Reading(this);
    byId("off").addEventListener("click", () => this.toggle(changed));
    byId("all-on").addEventListener("click", () => {
      this.off.clear();
      changed();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "x" || event.altKey || event.ctrlKey || event.metaKey || inField(event.target)) return;
      this.toggle(changed);
    });
  }

  told(token) { return [this.reading.sentence(token)]; }

  writesName(token) { return this.off.has(this.place) ? this.words.writesOff(this.tokens.quoted(token)) : super.writesName(token); }

  // [[layer, head], ...] of those that are off, as the engine wants them.
  get without() {
    const { length } = this.weights.heads;
    return [...this.off].sort((a, b) => a - b).map((place) => [Math.floor(place / length), place % length]);
  }

  // The places of the chosen head, or of all heads of which the chosen map is the mean.
  get places() {
    return this.heads.ofHeads.filter(({ layer, head }) => [layer, null].includes(this.layer) && [head, null].includes(this.head))
      .map(({ place }) => place);
  }

  get areOff() { return this.places.every((place) => this.off.has(place)); }

  toggle(changed) {
    const { places, areOff } = this;
    for (const place of places) if (areOff) this.off.delete(place); else this.off.add(place);
    changed();
  }

  // What the model has computed of a text, or of its end from `start` on. The chosen token stays the chosen one, and
  // has the focus if it had it; a choice of the last one stays one of the last. While it plays, heads keep their places.
  receive({ start, first, attention, patterns, surprisals }, texts, numGenerated, playing) {
    const { weights } = this;
    const ended = this.chosen === weights.numTokens - 1;
    const strip = document.activeElement.closest("#text, #surprisals");
    weights.take({ first, attention }, texts.slice(start), numGenerated);
    this.scores.take(patterns);
    if (!playing) this.heads.arrange();
    this.hovered = this.pointed = null;
    byId("details").ariaLive = inField(document.activeElement) ? "off" : "polite"; // not with every letter
    if (this.chosen !== null) {
      const [last, moved] = [weights.numTokens - 1, this.chosen + this.start - start];
      this.chosen = ended || moved < 0 ? last : Math.min(moved, last);
    }
    this.start = start;
    this.tokens.rebuild();
    this.reading.take(surprisals.subarray(start), start);
    this.show();
    this.tokens.bringToView();
    if (strip && this.chosen !== null) strip.children[this.chosen].focus({ preventScroll: true });
  }

  show() {
    const { words, off } = this;
    super.show();
    for (const { button, layer, head, place } of this.heads.ofHeads) {
      button.classList.toggle("off", off.has(place));
      button.setAttribute("aria-label", this.name(layer, head) + (off.has(place) ? words.isOff : ""));
    }
    byId("off").textContent = (this.areOff ? words.switchOn : words.switchOff)(this.name(this.layer, this.head));
    disable("all-on", off.size === 0, "off");
  }

  showToken() {
    super.showToken();
    this.reading.show();
    this.chose();
  }
}

function inField(target) { return ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName); }
