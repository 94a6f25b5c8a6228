// The runs: a mark for each, a colour and a kind of line for those with the same settings, their figures, and the tables of what they were made with.

const NUM_COLOURS = 8;
const NUM_DASHES = 4;

// One run of the page.
class Run {
  constructor(content, number, curves) {
    Object.assign(this, content, { number, curves, shown: true });
    this.kind = `colour-${this.group % NUM_COLOURS} dash-${Math.floor(this.group / NUM_COLOURS) % NUM_DASHES}`;
  }

  static async read(content, number) {
    const read = async ([name, text]) => [name, await readCurve(text)];
    return new Run(content, number, Object.fromEntries(await Promise.all(Object.entries(content.curves).map(read))));
  }

  // Its line, for a legend.
  swatch() {
    const svg = drawn("svg", `swatch ${this.kind}`, { viewBox: "0 0 28 10", "aria-hidden": "true" });
    svg.append(drawn("path", "line", { d: "M1 5H27" }));
    return svg;
  }

  // Swatch, mark and name.
  label() {
    const label = element("span", "run");
    label.append(this.swatch(), element("b", "", this.mark), " ", element("bdi", "", this.name));
    return label;
  }
}

// The figures of one run as a list, those of several as a table with the settings that differ.
class Runs {
  constructor(page) { this.page = page; }

  speak() {
    const { runs, words, shell } = this.page;
    const several = runs.length > 1;
    byId("figures").hidden = several;
    byId("runs").hidden = !several;
    this.fillMeans();
    if (several) this.fillTable();
    else this.fillList(runs[0]);
    const [{ alike, differs }] = runs;
    const settings = Object.entries(differs).map(([name, value]) => `${name}=${value}`).join(" ");
    const ofOne = !alike ? "" : settings ? words.differs(alike, settings) : words.alike(alike);
    byId("alike").textContent = several ? this.ofAll() : ofOne;
    const notes = runs.flatMap(({ name, notes }) => notes[shell.language].map((note) => several ? `${name}: ${note}` : note));
    byId("notes").replaceChildren(...notes.map((note) => element("li", "", note)));
  }

  state(run) {
    const { words, shell } = this.page;
    const moment = run.lastLineAt && new Date(run.lastLineAt * 1000)
      .toLocaleString(shell.language, { dateStyle: "medium", timeStyle: "short" });
    const cell = element("span", `state ${run.state}`, words.states[run.state]);
    if (moment && run.state !== "finished") cell.append(element("small", "", words.lastLine(moment)));
    return cell;
  }

  // A figure as text; the validation loss is the one that runs are compared by.
  figure(run, name) {
    const { result, figures } = run;
    const value = { validation_loss: result?.loss, bits_per_byte: result?.bits_per_byte }[name] ?? figures[name];
    if (value === null || (!result && name === "validation_loss")) return "";
    const text = FORMATS[name](value);
    if (name !== "validation_loss") return text;
    if (!result.closed) return this.page.words.soFar(text);
    return result.error === null ? text : `${text} ± ${FORMATS[name](result.error)}`;
  }

  // The figures that some run has, those that are the same for all apart.
  names() {
    const { runs, words } = this.page;
    const known = Object.keys(words.figures).filter((name) => runs.some((run) => this.figure(run, name)));
    const isSame = (name) => runs.every((run) => this.figure(run, name) === this.figure(runs[0], name));
    return { same: known.filter(isSame), differing: known.filter((name) => !isSame(name)) };
  }

  sameState() {
    const { runs } = this.page;
    return runs.every(({ state }) => state === "finished");
  }

  // What needs no column, since it is so for all runs.
  ofAll() {
    const { runs, words, content } = this.page;
    const figures = this.names().same.map((name) => `${words.figures[name]} ${this.figure(runs[0], name)}`);
    const same = [...(this.sameState() ? [words.states.finished] : []), ...figures];
    return [...(same.length ? [words.same(same)] : []), ...(content.byToken ? [] : [words.tokenizersDiffer])].join(" ");
  }

  fillList(run) {
    const { words } = this.page;
    const known = Object.keys(words.figures).filter((name) => this.figure(run, name));
    byId("figures").replaceChildren(
      pairOf(words.state, this.state(run)),
      ...known.map((name) => pairOf(words.figures[name], this.figure(run, name))),
    );
  }

  fillTable() {
    const { runs, words, content } = this.page;
    const names = this.names().differing;
    const differing = content.settings.filter((row) => row.differs);
    const heads = [...(this.sameState() ? [] : [words.state]), ...names.map((name) => words.figures[name])];
    const rows = runs.map((run) => {
      const name = holding("th", this.choice(run));
      name.scope = "row";
      const settings = differing.map(({ values }) => element("td", "value", values[run.number] ?? ""));
      const state = this.sameState() ? [] : [holding("td", this.state(run))];
      return holding("tr", name, ...settings, ...state, ...names.map((one) => element("td", "number", this.figure(run, one))));
    });
    const settings = differing.map(({ name }) => headOf(name, "setting"));
    byId("runs").replaceChildren(holding("tr", headOf(words.run), ...settings, ...heads.map((text) => headOf(text))), ...rows);
  }

  // The mean of runs that differ in their seed alone, a row for each of their other settings.
  fillMeans() {
    const { words, content } = this.page;
    const { means } = content;
    byId("means").hidden = !means.length;
    if (!means.length) return;
    const names = Object.keys(means[0].settings);
    const settings = names.map((name) => headOf(name, "setting"));
    const head = holding("tr", ...settings, headOf(words.numRuns), headOf(words.mean(content.byToken)));
    byId("means").replaceChildren(head, ...means.map(({ settings, num_runs, mean, error }) => {
      const loss = mean === null ? "" : FORMATS.loss(mean) + (error === null ? "" : ` ± ${FORMATS.loss(error)}`);
      const cells = [...names.map((name) => settings[name]), whole.format(num_runs), loss];
      return holding("tr", ...cells.map((text) => element("td", "value", text)));
    }));
  }

  // The label with a box that shows or hides its lines.
  choice(run) {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = run.shown;
    box.setAttribute("aria-label", this.page.words.show(run.name));
    box.addEventListener("change", () => {
      run.shown = box.checked;
      this.page.curves.show();
    });
    return holding("label", box, run.label());
  }
}

function headOf(text, kind = "") {
  const cell = element("th", kind, text);
  cell.scope = "col";
  return cell;
}

// Models in turn, settings, environment and corpus: a row for each name, a column for each run.
class Tables {
  constructor(page) {
    this.page = page;
    this.parts = ["models", "settings", "environment", "corpus"].filter((name) => page.content[name].length).map((name) => {
      const [details, title, table] = [element("details"), element("summary"), element("table", "facts")];
      const wide = element("div", "wide");
      wide.append(table);
      details.append(title, wide);
      details.id = name;
      byId("settings-part").append(details);
      return { name, title, table };
    });
    byId("settings-part").hidden = this.parts.length === 0;
  }

  speak() {
    const { words, runs, content } = this.page;
    for (const { name, title, table } of this.parts) {
      title.textContent = words.tables[name];
      const rows = content[name].map(({ name: key, values, differs }) => {
        const row = element("tr", differs ? "differs" : "");
        const head = element("th", "", name === "settings" ? key : words.rows[key] ?? key);
        head.scope = "row";
        row.append(head, ...values.map((value) => element("td", "value", value ?? "")));
        return row;
      });
      const head = holding("tr", element("td"), ...runs.map((run) => holding("th", run.label())));
      table.replaceChildren(...(runs.length > 1 ? [head] : []), ...rows);
    }
  }
}
