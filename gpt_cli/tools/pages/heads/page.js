// The page of a report on heads.

class HeadsPage {
  constructor(content) {
    this.content = content;
    this.shell = new Shell(() => this.speak());
    this.frame = content.frames.length - 1;
    this.place = 0; // of the chosen head among the heads of the report
    this.sorted = null; // a column; null is the order of the report
    this.scatter = new Scatter(this, content.columns, this.heads.length);
    byId("scattering").open = true;
    this.film = this.frame > 0 ? new Film(this, content.steps) : null;
    this.speak();
    byId("rows").addEventListener("click", (event) => this.click(event));
    byId("rows").addEventListener("keydown", (event) => this.walk(event));
  }

  get words() { return this.shell.words; }
  get columns() { return this.content.columns; }
  get heads() { return this.content.frames[this.frame]; }
  get head() { return this.heads[this.place]; }

  score(place, column) { return this.heads[place][column] ?? NaN; }
  // A change of the loss as in the terminal, with its sign and its standard error.
  shown(place, column) {
    const number = this.score(place, column), error = this.score(place, `${column}_error`);
    if (Number.isNaN(number)) return "–";
    if (column !== "loss_change") return number.toFixed(3);
    return signed(number, 4) + (Number.isNaN(error) ? "" : ` ±${error.toFixed(4)}`);
  }

  shortName(place) { return shortName(this.heads[place]); }

  takeHead(place) {
    this.place = place;
    this.show();
  }

  // --- of a film

  goTo(frame) {
    this.frame = frame;
    this.speak();
  }

  moment() { return this.words.moment(this.content.steps[this.frame]); }

  // How the chosen head wrote at its last passages.
  panels() {
    const { words, content, place } = this, ratios = content.frames.map((heads) => heads[place].ratio ?? NaN);
    const points = content.steps.map((step, at) => [step, ratios[at]]).filter(([, ratio]) => !Number.isNaN(ratio));
    return [{ name: words.atLast(this.shortName(place)), now: this.shown(place, "ratio"), lines: [["score", points]], ends: [0, 1] }];
  }

  click(event) {
    const { column } = event.target;
    const row = event.target.closest("tr");
    if (column) {
      this.sorted = this.sorted === column ? null : column;
      this.fill();
    } else if (row?.place !== undefined) this.takeHead(row.place);
  }

  walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tr");
    if (!step || row?.place === undefined || withModifier(event)) return;
    event.preventDefault();
    const next = step > 0 ? row.nextSibling : row.previousSibling;
    if (next?.place === undefined) return;
    this.takeHead(next.place);
    next.querySelector("button").focus();
  }

  speak() {
    const { text, tokens, checkpoint, steps, all_steps: all } = this.content;
    const origin = this.words.origin(isolated(text), tokens, checkpoint, steps[this.frame]);
    byId("origin").textContent = origin + (all > steps.length ? this.words.someSteps(steps.length, all) : "");
    this.fill();
    this.scatter.speak();
    this.film?.speak();
  }

  // The table, in its order; a column's title or the chosen head has the focus if it had it.
  fill() {
    const { words, columns, heads } = this, focused = byId("rows").contains(document.activeElement) && document.activeElement;
    const title = element("tr", "", element("th"), element("th", "", heads.some(({ role }) => role) ? words.label : ""), ...columns.map((column) => {
      const button = Object.assign(element("button", "", words.columns[column]), { column, title: words.meanings[column] ?? "" });
      const cell = Object.assign(element("th", "", button), { scope: "col" });
      cell.setAttribute("aria-sort", column === this.sorted ? "descending" : "none");
      return cell;
    }));
    const places = [...heads.keys()], height = (place) => heads[place][this.sorted] ?? -Infinity;
    if (this.sorted) places.sort((a, b) => height(b) - height(a) || a - b);
    byId("rows").replaceChildren(title, ...places.map((place) => {
      const first = element("td", "", element("button", "", this.shortName(place))), { role } = heads[place];
      const row = element("tr", "", first, element("td", "", role ? words.short[role] : ""),
        ...columns.map((column) => element("td", "", this.shown(place, column))));
      return Object.assign(row, { place });
    }));
    this.show();
    const buttons = [...byId("rows").querySelectorAll("button")];
    if (focused) buttons.find(({ column, tabIndex }) => column === focused.column && tabIndex === 0).focus({ preventScroll: true });
  }

  // What the choice of a head changes.
  show() {
    const { words, head, content } = this;
    for (const row of byId("rows").rows) {
      const chosen = row.place === this.place;
      row.classList.toggle("chosen", chosen);
      const button = row.place === undefined ? null : row.querySelector("button");
      button?.setAttribute("aria-pressed", chosen);
      if (button) button.tabIndex = chosen ? 0 : -1;
    }
    byId("head-name").textContent = words.headOf(head.layer, head.head);
    byId("passages").replaceChildren(...(head.passages ? [element("h3", "", words.passages), ...head.passages.map((each) => this.passage(each)),
      element("p", "help", head.passages.length ? words.shades : words.none)] : []));
    const tables = ["ov", "qk", "query"].filter((name) => head[name]).map((name) => tableOf(words[name], head[name].map(({ value, first, second }) =>
      [value === null ? "" : value.toFixed(3), first.map(quoted).join(" "), second.map(quoted).join(" ")])));
    const { composed } = head;
    if (composed) tables.push(element("h3", "", words.composed(content.baseline.toFixed(3))),
      ...["receives", "gives"].filter((way) => composed[way].length).map((way) =>
        tableOf(["", words[way], ""], composed[way].map(([kind, layer, number, score]) => [kind, shortName({ layer, head: number }), score.toFixed(3)]))));
    byId("circuits").replaceChildren(...tables);
    byId("head-name").hidden = !head.passages && !tables.length; // nothing but scores was asked for
    this.scatter.show();
    this.film?.show();
  }

  passage({ place, value, peak, tokens, shades, looks_at: looks }) {
    const weights = new Map(looks.map(({ index, weight }) => [index, weight]));
    const text = element("p", "", ...tokens.map((token, at) => {
      const span = element("span", at === peak ? "peak" : "", token);
      span.style.backgroundColor = `rgb(var(--kind) / ${(0.5 * shades[at]).toFixed(3)})`;
      span.style.borderBottomColor = `rgb(var(--looked) / ${Math.sqrt(weights.get(at) ?? 0).toFixed(3)})`;
      return span;
    }));
    const told = looks.map(({ token, weight }) => `${quoted(token)} ${weight.toFixed(3)}`).join(" · ");
    return element("div", "passage", text, element("p", "told", this.words.size(value.toFixed(3), place) + told));
  }
}

function shortName({ layer, head }) { return `L${layer} H${head}`; }

start((content) => { new HeadsPage(content); });
