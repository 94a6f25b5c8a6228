// The overview of heads that have scores: their labels, and the heads that one chooses, in the order of a score.

class ScoredHeads extends Heads {
  constructor(page) {
    super(page);
    this.column = null; // the order: null is by layer and head
    this.role = ""; // "" is any, "none" is no label
    this.least = null; // of the column
    this.order = null; // the tiles of the list; null shows the grid
    this.arranged = "grid"; // what the page shows of it
    this.list = element("ol");
    this.list.id = "sorted";
    this.list.hidden = true;
    byId("maps").append(this.list);
    // where labels come and go, they keep their room
    byId("heads").classList.toggle("labelled", page.scores.vary && page.scores.rolesFound().length > 0);
    // an order of one head is of use in a film, whose curve is of its column
    byId("choosing").hidden = page.weights.numHeads === 1 && !page.weights.frames;
    byId("choosing").addEventListener("input", () => this.choose());
  }

  get shown() { return this.order ?? this.tiles; }

  // With the lines below the map. Its cell of the grid is where it goes back to.
  tile(cell, layer, head) {
    const tile = super.tile(cell, layer, head);
    const [caption, kind] = [element("p", "caption"), element("p", "kind")];
    caption.id = `caption-${layer}-${head}`;
    kind.id = `kind-${layer}-${head}`;
    tile.button.setAttribute("aria-describedby", `${caption.id} ${kind.id}`);
    tile.append(caption, kind);
    return Object.assign(tile, { caption, kind });
  }

  // --- which heads, in which order

  choose() {
    this.column = byId("order").value || null;
    this.role = byId("role").value;
    byId("least").disabled = this.column === null;
    this.least = this.column === null || byId("least").value === "" ? null : Number(byId("least").value);
    this.arrange();
    this.page.show();
  }

  score(tile) { return this.page.scores.of(this.page.frame, tile.place, this.column); }

  passes(tile) {
    const { scores, frame } = this.page;
    const role = scores.role(frame, tile.place);
    if (this.role && role !== (this.role === "none" ? null : this.role)) return false;
    return this.least === null || this.score(tile) >= this.least;
  }

  // The highest first; where there was nothing to measure last.
  arrange() {
    const { column, role, least } = this;
    const plain = column === null && !role && least === null;
    this.order = plain ? null : this.ofHeads.filter((tile) => this.passes(tile));
    const height = (tile) => Number.isNaN(this.score(tile)) ? -Infinity : this.score(tile);
    if (column !== null) this.order.sort((a, b) => height(b) - height(a) || a.place - b.place);
    this.place(plain ? "grid" : this.order.map(({ place }) => place).join());
  }

  // Puts the tiles where they belong now. One that has the focus keeps it, if it is shown.
  place(arranged) {
    if (arranged === this.arranged) return;
    this.arranged = arranged;
    const focused = document.activeElement;
    byId("heads").hidden = this.order !== null;
    this.list.hidden = this.order === null;
    if (this.order === null) for (const tile of this.ofHeads) tile.cell.append(tile);
    this.list.classList.toggle("many", this.ofHeads.length > 24);
    this.list.replaceChildren(...(this.order ?? []).map((tile) => {
      const item = document.createElement("li");
      item.append(tile);
      return item;
    }));
    if (byId("maps").contains(focused)) focused.focus({ preventScroll: true });
  }

  neighbour(tile, down, right) {
    return this.order === null ? super.neighbour(tile, down, right) : this.order[this.order.indexOf(tile) + down + right];
  }

  // --- what is on the page

  speak() {
    super.speak();
    const { words, scores } = this.page;
    const options = (select, pairs, chosen) => select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value, false, value === chosen)));
    const named = (names, say) => names.map((name) => [name, say(words.columns[name])]);
    options(byId("order"), [["", words.byPlace], ...named(scores.columns, words.byColumn)], this.column ?? "");
    options(byId("role"), [["", words.anyRole], ...named(scores.rolesFound(), (name) => name), ["none", words.noRole]], this.role);
    byId("least").disabled = this.column === null;
  }

  // Captions come first: they change the widths that maps are drawn for.
  mark() {
    this.caption();
    super.mark();
  }

  get narrow() { return this.order === null && super.narrow; }

  caption() {
    const { narrow } = this;
    const { weights, scores, frame, words } = this.page;
    const put = (part, text) => { if (part.textContent !== text) part.textContent = text; }; // else it is laid out again
    for (const tile of this.ofHeads) {
      const role = scores.role(frame, tile.place);
      const value = this.column === null ? "" : `\n${scoreText(this.score(tile))}`;
      put(tile.caption, this.order === null ? "" : `L${weights.layers[tile.layer]} H${weights.heads[tile.head]}${value}`);
      put(tile.kind, role === null ? "" : (narrow ? words.short : words.columns)[role]);
    }
    put(byId("num-shown"), this.order === null ? "" : words.shownHeads(this.order.length, this.ofHeads.length));
  }
}
