// One panel of curves: an SVG with the lines of all runs that are shown, and what they say at a place.

const MARGIN = { left: 54, right: 26, top: 8, bottom: 24 }; // pixels
const APART = 12; // pixels between marks at the ends of lines

class Panel {
  // `quantity` names the panel; `lines` are the curves on it, the main one last.
  constructor(curves, quantity, lines) {
    Object.assign(this, { curves, quantity, lines });
    this.legend = element("span", "legend");
    this.svg = drawn("svg", "curves", { tabindex: 0, role: "application" });
    this.tip = element("div", "tip");
    this.tip.setAttribute("role", "status");
    this.title = element("b");
    this.figure = element("figure", `panel ${quantity}`, element("figcaption", "", this.title, " ", this.legend), this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => curves.look(null, this));
    this.svg.addEventListener("blur", () => curves.look(null, this));
    this.svg.addEventListener("keydown", (event) => this.walk(event));
  }

  get page() { return this.curves.page; }

  // The lines that are drawn now: [run, name of the curve, points].
  drawnLines() {
    const { axis, smooth } = this.curves;
    const names = this.lines.filter((name) => smooth || name !== "smoothed_loss");
    return this.page.runs.filter((run) => run.shown).flatMap((run) => names
      .map((name) => [run, name, pointsOf(run.curves[name], axis)])
      .filter(([, , points]) => points.length));
  }

  speak() {
    const { words, content } = this.page;
    const ofTokens = content.evaluatedTokens ? words.ofTokens(content.evaluatedTokens.toLocaleString("en")) : "";
    this.title.textContent = words.panels[this.quantity] + (this.quantity === "bits_per_byte" ? ofTokens : "");
    const legend = this.curves.smooth ? words.lossLegend : words.plainLegend;
    this.legend.textContent = this.quantity === "loss" ? legend + ofTokens : "";
    this.svg.setAttribute("aria-label", this.title.textContent);
  }

  get logarithmic() { return ["loss", "gradient_norm"].includes(this.quantity) && this.curves.logarithmic && this.low > 0; }

  // --- drawing

  draw() {
    this.speak();
    const found = this.drawnLines();
    const all = found.flatMap(([, , points]) => points);
    const values = all.map(([, y]) => y);
    this.found = found;
    this.width = this.svg.clientWidth;
    this.height = this.svg.clientHeight;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`); // paper is narrower
    [this.left, this.rightmost] = endsOf(all.map(([x]) => x));
    this.left = Math.min(this.left, 0); // a run begins at 0
    [this.low, this.high] = endsOf(values);
    if (!this.logarithmic) { // some room, or a level line would be on an edge
      const room = (this.high - this.low) * 0.04 || Math.abs(this.high) * 0.1 || 1;
      if (this.low !== 0) this.low -= this.low > 0 ? Math.min(room, this.low) : room;
      this.high += room;
    }
    this.mark = drawn("path", "mark", {});
    this.dots = drawn("g", "dots", {});
    this.svg.replaceChildren(...(all.length ? [...this.grid(), ...found.map((line) => this.line(line)), ...this.ends(), this.mark, this.dots] : []));
    this.show(null);
  }

  across(x) {
    const share = this.rightmost > this.left ? (x - this.left) / (this.rightmost - this.left) : 0.5;
    return MARGIN.left + share * (this.width - MARGIN.left - MARGIN.right);
  }

  down(y) {
    const at = this.logarithmic ? Math.log : (value) => value;
    const share = this.high > this.low ? (at(this.high) - at(y)) / (at(this.high) - at(this.low)) : 0.5;
    return MARGIN.top + share * (this.height - MARGIN.top - MARGIN.bottom);
  }

  grid() {
    const bottom = this.height - MARGIN.bottom;
    const levels = this.logarithmic ? logarithmicTicks(this.low, this.high, 6) : ticks(this.low, this.high, 5);
    const parts = levels.flatMap((value) => {
      const y = this.down(value).toFixed(1);
      return [drawn("path", "ground", { d: `M${MARGIN.left} ${y}H${this.width - MARGIN.right}` }),
        drawn("text", "end", { x: MARGIN.left - 6, y, dy: 4 }, tickText(value))];
    });
    const places = ticks(this.left, this.rightmost, Math.max(2, Math.min(8, (this.width - MARGIN.left) / 90)));
    return [...parts, ...places.map((value) => drawn("text", "middle", { x: this.across(value).toFixed(1), y: bottom + 17 }, tickText(value)))];
  }

  // Evaluations have dots, 60 at most; lines that are smoothed elsewhere are thin.
  line([run, name, points]) {
    const path = points.map(([x, y], at) => `${at ? "L" : "M"}${this.across(x).toFixed(1)} ${this.down(y).toFixed(1)}`);
    const dotted = name === "validation_loss" || name === "bits_per_byte" || points.length === 1;
    const every = Math.ceil(points.length / 60);
    const dots = dotted ? points.filter((_, at) => at % every === 0).map(([x, y]) => drawn("circle", "dot", { cx: this.across(x).toFixed(1), cy: this.down(y).toFixed(1), r: 3 })) : [];
    const kind = `${run.kind} ${name}${name === "loss" && this.curves.smooth ? " thin" : ""}`;
    return drawn("g", kind, {}, drawn("path", "line", { d: path.join("") }), ...dots);
  }

  // The marks of runs where their main lines end, pushed apart where they would overlap.
  ends() {
    const { runs } = this.page;
    if (runs.length === 1) return [];
    const main = new Map(this.found.map(([run, , points]) => [run, points])); // the last of each run
    const marks = [...main].map(([run, points]) => ({ run, x: this.across(points.at(-1)[0]), y: this.down(points.at(-1)[1]) }));
    marks.sort((a, b) => a.y - b.y);
    const near = (one, other) => Math.abs(one.x - other.x) < APART;
    const lowest = this.height - MARGIN.bottom;
    marks.forEach((mark, at) => {
      for (const above of marks.slice(0, at)) if (near(above, mark)) mark.y = Math.max(mark.y, above.y + APART);
    });
    marks.reverse().forEach((mark, at) => { // those that were pushed below the axis go back, and push the ones above
      mark.y = Math.min(mark.y, lowest);
      for (const below of marks.slice(0, at)) if (near(below, mark)) mark.y = Math.min(mark.y, below.y - APART);
    });
    return marks.map(({ run, x, y }) => drawn("text", `name ${run.kind}`, { x: x + 4, y, dy: 4 }, run.mark));
  }

  // --- reading

  point(event) {
    const place = (event.offsetX - MARGIN.left) / Math.max(1, this.width - MARGIN.left - MARGIN.right);
    this.curves.look(this.left + Math.max(0, Math.min(1, place)) * (this.rightmost - this.left), this);
  }

  walk(event) {
    if (withModifier(event)) return;
    if (event.key === "Escape") return this.curves.look(null, this);
    const places = [...new Set(this.found.flatMap(([, , points]) => points.map(([x]) => x)))].sort((a, b) => a - b);
    const now = this.snapped === null ? -1 : places.indexOf(this.snapped);
    const to = { ArrowLeft: now < 0 ? places.length - 1 : now - 1, ArrowRight: now + 1, Home: 0, End: places.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (places.length) this.curves.look(places[Math.max(0, Math.min(places.length - 1, to))], this);
  }

  // Marks the place `x`, null for none; with `told`, says what all lines are there.
  show(x, told = false) {
    const points = x === null ? [] : this.found.map(([, , points]) => nearest(points, x));
    this.snapped = points.length ? nearest(points, x)[0] : null;
    this.mark.setAttribute("d", this.snapped === null ? "" : `M${this.across(this.snapped).toFixed(1)} ${MARGIN.top}V${this.height - MARGIN.bottom}`);
    this.dots.replaceChildren(...points.map(([px, py], at) => drawn("circle", `dot ${this.found[at][0].kind}`, { cx: this.across(px), cy: this.down(py), r: 4 })));
    this.tip.hidden = !told || this.snapped === null;
    if (this.tip.hidden) return;
    this.tell(points);
    this.tip.style.left = 0; // its width would otherwise depend on where it was
    const { offsetWidth } = this.tip;
    const at = this.across(this.snapped);
    const beside = at > this.width / 2 ? at - 12 - offsetWidth : at + 12;
    this.tip.style.left = `${Math.max(0, Math.min(this.width - offsetWidth, beside))}px`;
  }

  // A line for each run: its mark, then its values; a value of another place says which.
  tell(points) {
    const { words, runs } = this.page;
    const { axis } = this.curves;
    const format = axis === "seconds" ? (value) => `${Number(value.toPrecision(5))}` : (value) => whole.format(value);
    const lines = new Map();
    const place = (at) => this.found[at][0].number * 3 + ["loss", "smoothed_loss", "validation_loss"].indexOf(this.found[at][1]);
    const order = [...this.found.keys()].sort((a, b) => place(a) - place(b));
    for (const at of order) {
      const [[run, name], [x, y]] = [this.found[at], points[at]];
      const value = element("span", "", `${words.lines[name] ?? ""} ${(FORMATS[name] ?? FORMATS.loss)(y)}`.trim());
      if (x !== this.snapped) value.append(element("small", "", ` (${format(x)})`));
      lines.set(run, [...(lines.get(run) ?? []), value]);
    }
    this.tip.replaceChildren(element("b", "", `${words.axes[axis]} ${format(this.snapped)}`), ...[...lines].map(([run, values]) =>
      element("p", "", ...(runs.length > 1 ? [run.swatch(), element("b", "", run.mark)] : []), ...values)));
  }
}

// The lowest and the highest of numbers, of which there may be too many for Math.min; 0 and 1 without any.
function endsOf(numbers) {
  if (!numbers.length) return [0, 1];
  return numbers.reduce(([low, high], number) => [Math.min(low, number), Math.max(high, number)], [Infinity, -Infinity]);
}
