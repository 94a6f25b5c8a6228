// The views of attention on what the model has just computed, and what is changed in it.

class HeadViews extends Views {
  // `changed` is called when changes have been made, `chose` when another token or head is chosen.
  constructor(shell, weights, { colours, scores, writes }, { changed, chose }) {
    super(shell, weights, colours, 0);
    Object.assign(this, { scores, writes });
    this.heads = new Heads(this);
    this.changing = new Changing(this, changed);
    this.start = 0; // of what the model sees of the text
    this.chose = chose;
    this.reading = new Reading(this);
  }

  told(token) { return [this.reading.sentence(token)]; }

  writesName(token) { return this.changing.has(this.layer, this.head, token) ? this.words.writesOff(this.tokens.quoted(token)) : super.writesName(token); }

  // What the model has computed of a text, or of its end from `start` on. The chosen token stays the chosen one, and
  // has the focus if it had it; a choice of the last one stays one of the last. While it plays, heads keep their places.
  receive({ start, first, attention, patterns, surprisals }, texts, numGenerated, playing) {
    const { weights } = this;
    const ended = this.chosen === weights.numTokens - 1;
    const strip = document.activeElement.closest("#text, #surprisals");
    weights.take({ first, attention }, texts.slice(start), numGenerated);
    this.scores.take(patterns, weights.numTokens);
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

  speak() {
    super.speak();
    this.changing.speak();
  }

  show() {
    const { words, changing } = this;
    super.show();
    for (const { button, layer, head } of this.heads.ofHeads) {
      const isChanged = changing.has(layer, head);
      button.classList.toggle("off", isChanged);
      button.setAttribute("aria-label", this.name(layer, head) + (isChanged ? words.isOff : ""));
    }
  }

  showToken() {
    super.showToken();
    this.reading.show();
    this.changing.show();
    this.chose();
  }
}

function inField(target) { return ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName); }
