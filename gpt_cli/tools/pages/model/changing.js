// What the reader puts in the place of activations: of heads, or of parts of a block; at all tokens, or at one.

class Changing {
  // `views` have what is chosen; `changed` is called when changes have been made.
  constructor(views, changed) {
    Object.assign(this, { views, changed });
    this.made = new Map(); // changes by their places; a position is one of the whole text
    for (const name of ["change-part", "change-position", "change-how"]) byId(name).addEventListener("change", () => {
      if (byId("change-how").value === "patch") byId("second").open = true;
      views.show();
    });
    byId("off").addEventListener("click", () => this.toggle());
    byId("all-on").addEventListener("click", () => {
      this.made.clear();
      changed();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "x" && !withModifier(event) && !inField(event.target)) this.toggle();
    });
  }

  get part() { return byId("change-part").value; }
  get how() { return byId("change-how").value; }
  get position() { return byId("change-position").value === "all" ? null : this.views.start + (this.views.chosen ?? this.views.weights.numTokens - 1); }

  // The changes as the engine has them where the model reads the text from `start` on: without those of tokens before.
  inWindow(start) {
    const order = ({ part, layer, head, position }) => [layer, part === "head" ? 0 : 1, head ?? 0, position ?? -1];
    const moved = [...this.made.values()].map((change) => ({ ...change, position: change.position === null ? null : change.position - start }));
    return moved.filter(({ position }) => (position ?? 0) >= 0).sort((a, b) => order(a).map((number, at) => number - order(b)[at]).find((sign) => sign) ?? 0);
  }

  // Those that are chosen: of the chosen head, or of all of which the chosen map is the mean, or of parts of such blocks.
  get wanted() {
    const { part, how, position, views } = this;
    const chosen = views.heads.ofHeads.filter(({ layer, head }) => [layer, null].includes(views.layer) && [head, null].includes(views.head));
    const changes = chosen.map(({ layer, head }) => ({ part, layer, head: part === "head" ? head : null, position, how }));
    return new Map(changes.map((change) => [placeOf(change), change]));
  }

  get areMade() { return [...this.wanted].every(([place, { how }]) => this.made.get(place)?.how === how); }

  toggle() {
    const { wanted, areMade } = this;
    for (const [place, change] of wanted) if (areMade) this.made.delete(place); else this.made.set(place, change);
    this.changed();
  }

  has(layer, head, token) {
    return this.inWindow(this.views.start).some((change) => change.part === "head" && change.layer === layer && change.head === head && [null, token].includes(change.position));
  }

  // The part of the page that makes changes.
  speak() {
    const { words } = this.views;
    const texts = { "change-part": words.changeParts, "change-position": words.changePositions, "change-how": words.changeHows };
    for (const [name, options] of Object.entries(texts)) fillSelect(byId(name), Object.entries(options), byId(name).value);
  }

  show() {
    const { words, layer, head } = this.views, { part, how, position } = this;
    const of = part === "head" ? this.views.name(layer, head) : layer === null ? words.changeAll(words.partNames[part]) : words.changeOf(layer, words.partNames[part]);
    const name = position === null ? of : words.changeAt(of, position - this.views.start);
    byId("off").textContent = (this.areMade ? words.restore : words.make)[how](name);
    disable("all-on", this.made.size === 0, "off");
  }
}

function placeOf({ part, layer, head, position }) { return `${part} ${layer} ${head} ${position}`; }

// The names of changes, as short as `L1 H2`, behind how they are made.
function namesOf(changes, words) {
  const short = ({ part, layer, head, position }) =>
    `L${layer} ${part === "head" ? `H${head}` : words.partNames[part]}${position === null ? "" : ` @${position}`}`;
  return ["zero", "mean", "patch"].map((how) => [how, changes.filter((change) => change.how === how).map(short)])
    .filter(([, names]) => names.length).map(([how, names]) => words.made[how](names.join(", "))).join(" ");
}
