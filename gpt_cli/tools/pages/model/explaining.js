// The steps of the chosen head at the chosen token, with their numbers, as `gpt explain` shows them.

const MOST_COLUMNS = 12; // of a row whose columns have no names

class Explaining {
  constructor(page) {
    this.page = page;
    this.shown = null; // what the steps on the page are of
    byId("explaining").addEventListener("toggle", () => this.show());
  }

  get wanted() {
    const { answer, views } = this.page;
    const { layer, head, chosen, weights } = views;
    return { ids: answer.ids, changes: answer.changes, other: answer.other, layer, head, query: chosen ?? weights.numTokens - 1 };
  }

  speak() {
    this.shown = null;
    if (this.page.answer) this.show();
  }

  // Latest wins: an answer to what is wanted no more is left out.
  show() {
    const { views, engine, words } = this.page;
    const { wanted } = this;
    byId("explaining-name").textContent = words.explain(views.name(wanted.layer, wanted.head), views.tokens.quoted(wanted.query));
    const name = JSON.stringify(wanted);
    if (!byId("explaining").open || this.shown === name) return;
    this.shown = name;
    if (wanted.layer === null || wanted.head === null) {
      byId("steps").replaceChildren(element("p", "", words.explainOne));
      return;
    }
    this.page.busyWith(engine.call("explain", wanted).then(({ steps }) => {
      if (this.shown === name) byId("steps").replaceChildren(...this.sections(steps));
    }).catch((error) => this.page.fail(error)));
  }

  // A section for each step; steps that have a number for each token looked at share one.
  sections(steps) {
    const groups = [];
    for (const [number, step] of steps.entries()) {
      const numbered = { ...step, number: number + 1 };
      if (step.beside && groups.at(-1)?.[0].beside) groups.at(-1).push(numbered);
      else groups.push([numbered]);
    }
    return groups.map((group) => this.section(group));
  }

  section(group) {
    const section = element("section");
    for (const { number, name, formula, shape } of group) {
      const line = element("p", "", element("code", "", formula), element("code", "shape", `[${shape.join(", ")}]`));
      section.append(element("h3", "", `${number}. ${this.title(name)}`), line);
    }
    const frame = element("div", "numbers", group[0].beside ? this.tableBeside(group) : this.table(group[0]));
    frame.tabIndex = 0; // to scroll it with keys
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", group.map(({ name }) => this.title(name)).join(", "));
    section.append(frame);
    const { changes, layer, query } = this.wanted;
    const of = (part) => changes.filter((change) => change.part === part && change.layer === layer && [null, query].includes(change.position));
    const here = of("head");
    if (group[0].name === "projected" && of("attention").length) section.append(element("p", "off", this.page.words.explainWhole));
    const heads = (isOff) => here.filter(({ how }) => (how === "zero") === isOff).map(({ head }) => `h${head}`).join(", ");
    if (group[0].name === "concatenated" && heads(true)) section.append(element("p", "off", this.page.words.explainOff(heads(true))));
    if (group[0].name === "concatenated" && heads(false)) section.append(element("p", "off", this.page.words.explainReplaced(heads(false))));
    return section;
  }

  title(name) { return this.page.content.steps[this.page.shell.language][name]; }

  // A row for each of the step's rows, as many columns as one can read.
  table({ numbers, shape: [, width], rows, columns }) {
    const shown = columns.length ? width : Math.min(width, MOST_COLUMNS);
    const cut = shown < width ? ["…"] : [];
    const header = columns.length ? columns : Array.from({ length: shown }, (_, column) => String(column));
    return tableOf(["", ...header, ...cut], rows.map((row, at) =>
      [row, ...Array.from(numbers.subarray(at * width, at * width + shown), numberText), ...cut]), true);
  }

  // A row for each token looked at, a column for each step.
  tableBeside(group) {
    return tableOf(["", ...group.map(({ name }) => this.title(name))], group[0].columns.map((column, at) =>
      [column, ...group.map(({ numbers }) => numberText(numbers[at]))]), true);
  }
}

function numberText(number) { return number === -Infinity ? "−∞" : numberOf(number, 4); }
