// A grid of cells that one can point at and walk: a canvas as wide as its frame draws what is in view, so that a long
// text costs no more than a short one, and lines below say what the chosen cell holds.

const CELL = { height: 24, least: 54, most: 96, gap: 1 }; // pixels: of a cell, its width, and between cells

class Grid {
  // `frame` is an empty element; `chose` is called when another cell is chosen.
  constructor(frame, chose = () => {}) {
    this.chose = chose;
    this.canvas = element("canvas");
    this.room = element("div", "grid-room", this.canvas);
    this.view = element("div", "grid-view", this.room);
    this.told = element("div", "grid-told");
    this.view.tabIndex = 0;
    this.view.setAttribute("role", "application"); // so that a screen reader hands on the arrow keys
    this.told.setAttribute("aria-live", "polite");
    frame.classList.add("grid");
    frame.replaceChildren(this.view, this.told);
    this.chosen = this.pointed = null; // [row, column]
    this.content = null;
    const point = (event) => this.point(this.cellAt(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointermove", point);
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("click", (event) => this.choose(this.cellAt(event.offsetX, event.offsetY) ?? this.chosen));
    this.view.addEventListener("keydown", (event) => this.walk(event));
    this.view.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.view);
  }

  // `rows` are labels. `headers` are lines of labels above the columns, {text, strong}. `cell(row, column)` gives {text, fill}, a
  // colour, or null, and `say(row, column)` sentences about it.
  show(content) {
    const { rows, headers: [header], label } = this.content = content;
    this.view.setAttribute("aria-label", label);
    const [row, column] = this.chosen ?? [rows.length - 1, header.length - 1];
    this.chosen = [Math.min(row, rows.length - 1), Math.min(column, header.length - 1)];
    this.pointed = null;
    this.draw();
    this.tell();
  }

  // --- what the user does

  cellAt(x, y) {
    const { rows, headers } = this.content;
    const row = Math.floor((y - headers.length * CELL.height) / CELL.height);
    const column = Math.floor((x - this.margin + this.view.scrollLeft) / this.width);
    const inside = x >= this.margin && row >= 0 && row < rows.length && column >= 0 && column < headers[0].length;
    return inside ? [row, column] : null;
  }

  point(cell) {
    if (String(cell) === String(this.pointed)) return;
    this.pointed = cell;
    this.draw();
    this.tell();
  }

  choose(cell) {
    this.chosen = cell;
    this.pointed = null;
    this.draw();
    this.tell();
    this.chose();
  }

  walk(event) {
    if (!this.content || withModifier(event)) return;
    const { rows, headers: [header] } = this.content, last = header.length - 1;
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -last], End: [0, last] }[event.key] ?? [0, 0];
    if (!(down || right)) return;
    event.preventDefault();
    const within = (place, end) => Math.max(0, Math.min(end, place));
    const [row, column] = this.chosen;
    this.chosen = [within(row + down, rows.length - 1), within(column + right, last)];
    const left = this.chosen[1] * this.width, { scrollLeft } = this.view;
    const seen = this.view.clientWidth - this.margin - this.width;
    if (left < scrollLeft || left > scrollLeft + seen) this.view.scrollLeft = left < scrollLeft ? left : left - seen;
    this.choose(this.chosen);
  }

  tell() {
    const cell = this.pointed ?? this.chosen;
    this.told.replaceChildren(...this.content.say(...cell).map((sentence) => element("p", "", sentence)));
  }

  // --- drawing

  draw() {
    if (!this.content || !this.view.clientWidth) return; // nothing to see
    const { rows, headers, cell } = this.content, { canvas, view } = this;
    const context = canvas.getContext("2d"), style = getComputedStyle(root);
    const font = "12px ui-monospace, monospace";
    context.font = font;
    this.margin = 10 + Math.ceil(Math.max(...rows.map((row) => context.measureText(row).width)));
    const numColumns = headers[0].length, room = view.clientWidth;
    this.width = Math.max(CELL.least, Math.min(CELL.most, Math.floor((room - this.margin) / numColumns)));
    const [across, down] = [Math.min(room, this.margin + numColumns * this.width), (headers.length + rows.length) * CELL.height];
    this.room.style.width = `${this.margin + numColumns * this.width}px`;
    canvas.width = Math.ceil(across * devicePixelRatio);
    canvas.height = Math.ceil(down * devicePixelRatio);
    canvas.style.width = `${across}px`;
    canvas.style.height = `${down}px`;
    context.scale(devicePixelRatio, devicePixelRatio);
    context.fillStyle = style.getPropertyValue("--ground");
    context.fillRect(0, 0, across, down);
    context.textBaseline = "middle";
    const colours = { ink: style.getPropertyValue("--ink"), quiet: style.getPropertyValue("--quiet") };
    const write = (text, x, top, strong) => {
      context.fillStyle = strong ? colours.ink : colours.quiet;
      context.font = strong === "bold" ? `bold ${font}` : font;
      context.fillText(fitting(context, text, this.width - 8), x, top + CELL.height / 2);
    };
    rows.forEach((row, place) => write(row, 2, (headers.length + place) * CELL.height, false));
    context.save();
    context.beginPath();
    context.rect(this.margin, 0, across, down);
    context.clip();
    const first = Math.floor(view.scrollLeft / this.width);
    const end = Math.min(numColumns, Math.ceil((view.scrollLeft + room - this.margin) / this.width));
    for (let column = first; column < end; column++) {
      const x = this.margin + column * this.width - view.scrollLeft;
      headers.forEach((header, line) => write(header[column].text, x + 4, line * CELL.height, header[column].strong ? "bold" : false));
      rows.forEach((_, row) => {
        const found = cell(row, column), top = (headers.length + row) * CELL.height;
        if (!found) return;
        context.fillStyle = found.fill;
        context.fillRect(x, top, this.width - CELL.gap, CELL.height - CELL.gap);
        write(found.text, x + 4, top, true);
      });
      const [row, at] = this.pointed ?? this.chosen;
      if (at !== column) continue;
      context.strokeStyle = colours.ink;
      context.lineWidth = 2;
      context.strokeRect(x + 1, (headers.length + row) * CELL.height + 1, this.width - CELL.gap - 2, CELL.height - CELL.gap - 2);
    }
    context.restore();
  }
}

// A text cut to so many pixels.
function fitting(context, text, width) {
  if (text.length < 4 || context.measureText(text).width <= width) return text;
  const characters = [...text];
  while (characters.length > 1 && context.measureText(`${characters.join("")}…`).width > width) characters.pop();
  return `${characters.join("")}…`;
}

// A colour of the page's style, so strong: 0 to 1.
function shadeOf(name, strength) { return `rgb(${getComputedStyle(root).getPropertyValue(`--${name}`)} / ${strength.toFixed(3)})`; }
