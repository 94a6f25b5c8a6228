// The overview: a small map for each head, in a grid of layers and heads with the means.

const DRAWING = 50; // milliseconds, after which keys and clicks come before further maps

class Heads {
  constructor(page) {
    this.page = page;
    this.buildGrid();
    byId("maps").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) page.take(button.layer, button.head);
    });
    byId("maps").addEventListener("keydown", (event) => this.walk(event));
  }

  // The tiles that are on the page.
  get shown() { return this.tiles; }

  buildGrid() {
    const { layers, heads } = this.page.weights;
    this.rows = [];
    const table = byId("heads");
    const columns = [...heads.keys(), ...(heads.length > 1 ? [null] : [])];
    const rows = layers.map((_, layer) => [layer, columns]);
    if (layers.length > 1) rows.push([null, [...heads.map(() => undefined), null].slice(-columns.length)]);
    const title = table.insertRow();
    title.append(document.createElement("td"));
    for (const head of columns) title.append(this.titleCell({ head }));
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
    const cell = document.createElement("th");
    cell.scope = "layer" in of ? "row" : "col";
    cell.of = of;
    return cell;
  }

  // The map of a head or of a mean.
  tile(cell, layer, head) {
    const [tile, button, canvas] = [element("div", "tile"), element("button"), element("canvas")];
    button.append(canvas);
    tile.append(button);
    cell.append(tile);
    Object.assign(button, { layer, head, tile });
    return Object.assign(tile, { cell, layer, head, button, canvas, turn: 0, place: this.page.weights.place(layer, head) });
  }

  // The tile so many rows and columns from another one, if there is one.
  neighbour(tile, down, right) {
    const row = this.rows.findIndex((cells) => cells.includes(tile));
    return this.rows[row + down]?.[this.rows[row].indexOf(tile) + right];
  }

  walk(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const { tile } = event.target;
    if (!tile || !(down || right)) return;
    const next = this.neighbour(tile, down, right);
    if (!next) return;
    event.preventDefault();
    this.page.take(next.layer, next.head);
    next.button.focus();
  }

  speak() {
    for (const { button } of this.tiles) button.setAttribute("aria-label", this.page.name(button.layer, button.head));
  }

  // Marks the chosen head, and names rows and columns.
  mark() {
    const { layer, head } = this.page;
    const { shown } = this;
    const entered = shown.find((tile) => tile.layer === layer && tile.head === head) ?? shown[0];
    for (const tile of this.tiles) {
      tile.button.setAttribute("aria-pressed", tile.layer === layer && tile.head === head);
      tile.button.tabIndex = tile === entered ? 0 : -1;
    }
    this.nameRowsAndColumns();
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
  get narrow() { return this.tiles[0].canvas.clientWidth < 76; } // pixels

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
