// Heads as points by any two of their scores. A point chooses its head.

Object.assign(WORDS.en, { scatter: "Heads by two scores: a point is a head, and chooses it", across: "across", upwards: "upwards" });
Object.assign(WORDS.zh, { scatter: "按两个得分看各个头：一个点是一个头，点击即可选择", across: "横轴", upwards: "纵轴" });

const SHARES = ["first_token", "previous_token", "self", "duplicate_token", "induction"]; // of attention, so that their axes end at 1
const SCATTER = { height: 280, left: 48, right: 16, top: 12, bottom: 24, near: 18 }; // pixels

class Scatter {
  // `page` has, of a head by its place: score(place, column), NaN where nothing was measured, and shortName(place); the
  // chosen `place`, `words`, and takeHead(place).
  constructor(page, columns, numHeads) {
    Object.assign(this, { page, columns, numHeads });
    const svg = byId("scatter");
    this.axes = ["across", "upwards"].map(byId);
    this.chosen = ["previous_token", "induction"].map((column, axis) => columns.includes(column) ? column : columns[axis]);
    this.axes.forEach((select, axis) => select.addEventListener("input", () => {
      this.chosen[axis] = select.value;
      this.show();
    }));
    svg.addEventListener("pointermove", (event) => this.point(this.nearest(event)));
    svg.addEventListener("pointerleave", () => this.point(null));
    svg.addEventListener("click", (event) => {
      const found = this.nearest(event);
      if (found) page.takeHead(found.place);
    });
    byId("scattering").addEventListener("toggle", () => this.show());
    window.addEventListener("resize", () => this.show());
  }

  speak() {
    const { words } = this.page;
    const options = this.columns.map((column) => [column, words.columns[column]]);
    this.axes.forEach((select, axis) => fillSelect(select, options, this.chosen[axis]));
    this.show();
  }

  show() {
    if (!byId("scattering").open) return; // it has no size
    const svg = byId("scatter"), { page } = this;
    this.width = svg.clientWidth;
    svg.setAttribute("viewBox", `0 0 ${this.width} ${SCATTER.height}`); // paper is narrower
    const all = Array.from({ length: this.numHeads }, (_, place) => ({ place, values: this.chosen.map((column) => page.score(place, column)) }));
    const known = all.filter(({ values }) => !values.some(Number.isNaN));
    this.ends = this.chosen.map((column, axis) => {
      const values = known.map((head) => head.values[axis]).concat(SHARES.includes(column) ? 1 : []);
      return [Math.min(0, ...values), Math.max(0, ...values) || 1];
    });
    const room = [this.width - SCATTER.left - SCATTER.right, SCATTER.height - SCATTER.top - SCATTER.bottom];
    const share = (value, axis) => (value - this.ends[axis][0]) / (this.ends[axis][1] - this.ends[axis][0]);
    const across = (value) => SCATTER.left + room[0] * share(value, 0), down = (value) => SCATTER.top + room[1] * (1 - share(value, 1));
    this.points = known.map((head) => ({ ...head, x: across(head.values[0]), y: down(head.values[1]) }));
    svg.replaceChildren(...this.grid(across, down), ...this.points.map(({ place, x, y }) =>
      drawn("circle", place === page.place ? "head chosen" : "head", { cx: x.toFixed(1), cy: y.toFixed(1), r: place === page.place ? 7 : 5 })),
    drawn("text", "named", {}));
    this.point(null);
  }

  grid(across, down) {
    const [[left, right], [low, high]] = this.ends, bottom = SCATTER.height - SCATTER.bottom;
    const levels = (from, to) => [from, (from + to) / 2, to];
    return [
      ...levels(low, high).flatMap((value) => [drawn("path", "ground", { d: `M${SCATTER.left} ${down(value).toFixed(1)}H${this.width - SCATTER.right}` }),
        drawn("text", "end", { x: SCATTER.left - 6, y: down(value) + 4 }, scatterText(value))]),
      ...levels(left, right).flatMap((value) => [drawn("path", "ground", { d: `M${across(value).toFixed(1)} ${SCATTER.top}V${bottom}` }),
        drawn("text", "middle", { x: across(value), y: bottom + 16 }, scatterText(value))]),
    ];
  }

  nearest(event) {
    const far = ({ x, y }) => Math.hypot(x - event.offsetX, y - event.offsetY);
    const found = this.points?.reduce((best, each) => (best === null || far(each) < far(best) ? each : best), null);
    return found && far(found) <= SCATTER.near ? found : null;
  }

  // Names the point below the pointer, else the chosen one.
  point(found) {
    const shown = found ?? this.points.find(({ place }) => place === this.page.place) ?? null;
    const label = byId("scatter").querySelector(".named");
    label.textContent = shown ? this.page.shortName(shown.place) : "";
    byId("pointed").textContent = shown ? `${label.textContent}: ${shown.values.map((value) => value.toFixed(3)).join(", ")}` : "";
    if (!shown) return;
    const right = shown.x > this.width - 90;
    label.setAttribute("x", shown.x + (right ? -10 : 10));
    label.setAttribute("y", Math.max(16, shown.y - 8));
    label.setAttribute("text-anchor", right ? "end" : "start");
  }
}

function scatterText(value) { return value !== 0 && value < 10 ? value.toPrecision(2) : String(Math.round(value)); }
