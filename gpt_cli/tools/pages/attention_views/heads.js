// The overview: a small map for each head, with its label: all heads and their means in a grid, or chosen heads in the
// order of a score.

const DRAWING = 50; // milliseconds, after which keys and clicks come before further maps

class Heads {
  constructor(page) {
    this.page = page;
    this.order = null; // the tiles of the list; null shows the grid
    this.arranged = "grid"; // what the page shows of it
    this.buildGrid();
    this.list = element("ol");
    this.list.id = "sorted";
    this.list.hidden = true;
    byId("maps").append(this.list);
    // where labels come and go, they keep their room
    byId("heads").classList.toggle("labelled", page.scores.vary && page.scores.rolesFound().length > 0);
    // with one head, an order is useful only in a film, whose curve shows its column
    byId("choosing").hidden = page.weights.numHeads === 1 && !page.weights.frames;
    byId("choosing").addEventListener("input", () => this.choose());
    byId("maps").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) page.take(button.layer, button.head);
    });
    byId("maps").addEventListener("keydown", (event) => this.walk(event));
  }

  // The tiles that are on the page.
  get shown() { return this.order ?? this.tiles; }

  buildGrid() {
    const { layers, heads } = this.page.weights;
    this.rows = [];
    const table = byId("heads");
    const columns = [...heads.keys(), ...(heads.length > 1 ? [null] : [])];
    const rows = layers.map((_, layer) => [layer, columns]);
    if (layers.length > 1) rows.push([null, [...heads.map(() => undefined), null].slice(-columns.length)]);
    const title = table.insertRow();
    title.append(element("td"), ...columns.map((head) => this.titleCell({ head })));
    table.style.setProperty("--columns", columns.length);
    for (const [layer, cells] of rows) {
      const row = table.insertRow();
      row.append(this.titleCell({ layer }));
      this.rows.push(cells.map((head) => {
        const cell = row.insertCell();
        return head === undefined ? null : this.tile(cell, layer, head);
      }));
    }
    this.tiles = this.rows.flat().filter((tile) => tile);
    this.ofHeads = this.tiles.filter((tile) => tile.place !== null);
  }

  titleCell(of) {
    return Object.assign(element("th"), { of, scope: "layer" in of ? "row" : "col" });
  }

  // The map of a head or of a mean, with the lines below it. Its cell of the grid is where it goes back to.
  tile(cell, layer, head) {
    const [canvas, caption, kind] = [element("canvas"), element("p", "caption"), element("p", "kind")];
    const button = element("button", "", canvas), tile = element("div", "tile", button, caption, kind);
    caption.id = `caption-${layer}-${head}`;
    kind.id = `kind-${layer}-${head}`;
    button.setAttribute("aria-describedby", `${caption.id} ${kind.id}`);
    cell.append(tile);
    Object.assign(button, { layer, head, tile });
    const place = this.page.weights.place(layer, head);
    return Object.assign(tile, { cell, layer, head, button, canvas, caption, kind, place, turn: 0 });
  }

  // The tile so many rows and columns from another one, if there is one.
  neighbour(tile, down, right) {
    if (this.order !== null) return this.order[this.order.indexOf(tile) + down + right];
    const row = this.rows.findIndex((cells) => cells.includes(tile));
    return this.rows[row + down]?.[this.rows[row].indexOf(tile) + right];
  }

  walk(event) {
    if (withModifier(event)) return;
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const { tile } = event.target;
    if (!tile || !(down || right)) return;
    const next = this.neighbour(tile, down, right);
    if (!next) return;
    event.preventDefault();
    this.page.take(next.layer, next.head);
    next.button.focus();
  }

  // --- which heads, in which order

  // What the reader has chosen. Column: null is the order by layer and head; role: "" is any label, "none" no label.
  get column() { return byId("order").value || null; }
  get role() { return byId("role").value; }
  get least() { return this.column === null || byId("least").value === "" ? null : Number(byId("least").value); }

  choose() {
    byId("least").disabled = this.column === null;
    this.arrange();
    this.page.show();
  }

  score(tile) { return this.page.score(tile.place, this.column); }

  passes(tile) {
    const { scores, frame } = this.page;
    const role = scores.role(frame, tile.place);
    if (this.role && role !== (this.role === "none" ? null : this.role)) return false;
    return this.least === null || this.score(tile) >= this.least;
  }

  // The highest first; heads with nothing to measure come last.
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
    this.list.replaceChildren(...(this.order ?? []).map((tile) => element("li", "", tile)));
    if (byId("maps").contains(focused)) focused.focus({ preventScroll: true });
  }

  // --- what is on the page

  speak() {
    for (const { button } of this.tiles) button.setAttribute("aria-label", this.page.name(button.layer, button.head));
    const { words, scores } = this.page;
    const named = (names, say) => names.map((name) => [name, say(words.columns[name])]);
    fillSelect(byId("order"), [["", words.byPlace], ...named(scores.columns, words.byColumn)], this.column ?? "");
    fillSelect(byId("role"), [["", words.anyRole], ...named(scores.rolesFound(), (name) => name), ["none", words.noRole]], this.role);
  }

  // Marks the chosen head, and names rows and columns. Captions come first: they change the widths that maps are drawn for.
  mark() {
    this.caption();
    const { layer, head } = this.page;
    const { shown } = this;
    const entered = shown.find((tile) => tile.layer === layer && tile.head === head) ?? shown[0];
    for (const tile of this.tiles) {
      tile.button.setAttribute("aria-pressed", tile.layer === layer && tile.head === head);
      tile.button.tabIndex = tile === entered ? 0 : -1;
    }
    this.nameRowsAndColumns();
  }

  caption() {
    const { narrow } = this;
    const { scores, frame, words } = this.page;
    const put = (part, text) => { if (part.textContent !== text) part.textContent = text; }; // else it is laid out again
    for (const tile of this.ofHeads) {
      const role = scores.role(frame, tile.place);
      const value = this.column === null ? "" : `\n${scoreText(this.score(tile))}`;
      put(tile.caption, this.order === null ? "" : this.page.shortName(tile.place) + value);
      put(tile.kind, role === null ? "" : (narrow ? words.short : words.columns)[role]);
    }
    put(byId("num-shown"), this.order === null ? "" : words.shownHeads(this.order.length, this.ofHeads.length));
  }

  // Dots across each map that is on the page.
  get sides() { return this.shown.map((tile) => Math.floor(tile.canvas.clientWidth * window.devicePixelRatio)); }

  // Draws the maps that have changed, those first whose turn is longest ago; where that takes long, the rest a little later.
  draw(sides) {
    const { weights, threshold, palette, frame } = this.page;
    const started = performance.now();
    clearTimeout(this.later);
    const changed = this.shown.map((tile, at) => ({ tile, side: sides[at], drawn: `${frame} ${threshold} ${sides[at]}` }))
      .filter(({ tile, drawn }) => tile.drawn !== drawn).sort((one, other) => one.tile.turn - other.tile.turn);
    for (const { tile, side, drawn } of changed) {
      if (performance.now() - started > DRAWING) {
        this.later = setTimeout(() => this.draw(sides));
        return;
      }
      drawSmall(tile.canvas, weights.of(tile.layer, tile.head), weights.numTokens, side, threshold, palette);
      Object.assign(tile, { drawn, turn: started });
    }
  }

  // Whether a tile of the grid has no room for "duplicate token".
  get narrow() { return this.order === null && this.tiles[0].canvas.clientWidth < 76; } // pixels

  // As the table of `gpt heads` does where there is little room.
  nameRowsAndColumns() {
    const { narrow } = this;
    const { words, weights } = this.page;
    if (this.named?.narrow === narrow && this.named.words === words) return; // else each text is laid out again
    this.named = { narrow, words };
    byId("heads").classList.toggle("narrow", narrow);
    for (const cell of byId("heads").querySelectorAll("th")) {
      const { layer, head } = cell.of;
      if (layer === null || head === null) cell.textContent = words.average;
      else if (layer === undefined) cell.textContent = narrow ? `H${weights.heads[head]}` : words.head(weights.heads[head]);
      else cell.textContent = narrow ? `L${weights.layers[layer]}` : words.layer(weights.layers[layer]);
    }
  }
}
