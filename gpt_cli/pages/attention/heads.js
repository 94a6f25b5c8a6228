// The overview: a small map for each head, in a grid of layers and heads with the means, or those chosen in an order.

class Heads {
  constructor(page) {
    this.page = page;
    this.column = null; // the order: null is by layer and head
    this.role = ""; // "" is any, "none" is no label
    this.least = null; // of the column
    this.order = null; // the tiles of the list; null shows the grid
    this.buildGrid();
    byId("maps").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) page.take(button.layer, button.head);
    });
    byId("maps").addEventListener("keydown", (event) => this.walk(event));
    // an order of one head is of use in a film, whose curve is of its column
    byId("choosing").hidden = page.scores === null || (page.weights.numHeads === 1 && !page.weights.frames);
    byId("choosing").addEventListener("input", () => this.choose());
  }

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
    // in a film labels come and go, so they keep their room
    table.classList.toggle("labelled", this.page.weights.frames !== undefined && this.page.scores.rolesFound().length > 0);
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

  // The map of a head or of a mean, and the lines below it. Its cell of the grid is where it goes back to.
  tile(cell, layer, head) {
    const [tile, button, canvas] = [element("div", "tile"), element("button"), element("canvas")];
    const [caption, kind] = [element("p", "caption"), element("p", "kind")];
    caption.id = `caption-${layer}-${head}`;
    kind.id = `kind-${layer}-${head}`;
    button.setAttribute("aria-describedby", `${caption.id} ${kind.id}`);
    button.append(canvas);
    tile.append(button, ...(this.page.scores ? [caption, kind] : []));
    cell.append(tile);
    Object.assign(button, { layer, head, tile });
    return Object.assign(tile, { cell, layer, head, button, canvas, caption, kind, place: this.page.weights.place(layer, head) });
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
    byId("heads").hidden = !plain;
    byId("sorted").hidden = plain;
    if (plain) for (const tile of this.ofHeads) tile.cell.append(tile);
    byId("sorted").classList.toggle("many", this.ofHeads.length > 24);
    byId("sorted").replaceChildren(...(this.order ?? []).map((tile) => {
      const item = document.createElement("li");
      item.append(tile);
      return item;
    }));
  }

  walk(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const { tile } = event.target;
    if (!tile || !(down || right)) return;
    const row = this.rows.findIndex((cells) => cells.includes(tile));
    const next = this.order === null ? this.rows[row + down]?.[this.rows[row].indexOf(tile) + right]
      : this.order[this.order.indexOf(tile) + down + right];
    if (!next) return;
    event.preventDefault();
    this.page.take(next.layer, next.head);
    next.button.focus();
  }

  // --- what is on the page

  speak() {
    const { words, scores } = this.page;
    for (const { button } of this.tiles) button.setAttribute("aria-label", this.page.name(button.layer, button.head));
    if (scores === null) return;
    const options = (select, pairs, chosen) => select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value, false, value === chosen)));
    const named = (names, say) => names.map((name) => [name, say(words.columns[name])]);
    options(byId("order"), [["", words.byPlace], ...named(scores.columns, words.byColumn)], this.column ?? "");
    options(byId("role"), [["", words.anyRole], ...named(scores.rolesFound(), (name) => name), ["none", words.noRole]], this.role);
    byId("least").disabled = this.column === null;
  }

  // Marks the chosen head, and draws the maps that have changed.
  show() {
    const { weights, threshold, palette, layer, head, frame } = this.page;
    const shown = this.order ?? this.tiles;
    const entered = shown.find((tile) => tile.layer === layer && tile.head === head) ?? shown[0];
    for (const tile of this.tiles) {
      tile.button.setAttribute("aria-pressed", tile.layer === layer && tile.head === head);
      tile.button.tabIndex = tile === entered ? 0 : -1;
    }
    const narrow = this.order === null && shown[0].canvas.clientWidth < 76; // pixels, of "duplicate token"
    this.nameRowsAndColumns(narrow);
    if (this.page.scores) this.caption(narrow);
    const sides = shown.map((tile) => Math.floor(tile.canvas.clientWidth * window.devicePixelRatio));
    shown.forEach((tile, at) => {
      const drawn = `${frame} ${threshold} ${sides[at]}`;
      if (tile.drawn !== drawn) drawSmall(tile.canvas, weights.of(tile.layer, tile.head), weights.numTokens, sides[at], threshold, palette);
      tile.drawn = drawn;
    });
  }

  // As the table of `gpt heads` does where there is little room.
  nameRowsAndColumns(narrow) {
    const { words, weights } = this.page;
    byId("heads").classList.toggle("narrow", narrow);
    for (const cell of byId("heads").querySelectorAll("th")) {
      const { layer, head } = cell.of;
      if (layer === null || head === null) cell.textContent = words.average;
      else if (layer === undefined) cell.textContent = narrow ? `H${weights.heads[head]}` : words.head(weights.heads[head]);
      else cell.textContent = narrow ? `L${weights.layers[layer]}` : words.layer(weights.layers[layer]);
    }
  }

  caption(narrow) {
    const { weights, scores, frame, words } = this.page;
    for (const tile of this.ofHeads) {
      const role = scores.role(frame, tile.place);
      const value = this.column === null ? "" : `\n${scoreText(this.score(tile))}`;
      tile.caption.textContent = this.order === null ? "" : `L${weights.layers[tile.layer]} H${weights.heads[tile.head]}${value}`;
      tile.kind.textContent = role === null ? "" : (narrow ? words.short : words.columns)[role];
    }
    byId("num-shown").textContent = this.order === null ? "" : words.shownHeads(this.order.length, this.ofHeads.length);
  }
}
