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
    const line = drawn("path", "line", { d: "M1 5H27" });
    return drawn("svg", `swatch ${this.kind}`, { viewBox: "0 0 28 10", "aria-hidden": "true" }, line);
  }

  // Swatch, mark and name.
  label() { return element("span", "run", this.swatch(), element("b", "", this.mark), " ", element("bdi", "", this.name)); }
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
    const last = moment && run.state !== "finished" ? [element("small", "", words.lastLine(moment))] : [];
    return element("span", `state ${run.state}`, words.states[run.state], ...last);
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
    byId("figures").replaceChildren(
      pairOf(words.state, this.state(run)),
      ...this.names().same.map((name) => pairOf(words.figures[name], this.figure(run, name))),
    );
  }

  fillTable() {
    const { runs, words, content } = this.page;
    const names = this.names().differing;
    const differing = content.settings.filter((row) => row.differs);
    const heads = [...(this.sameState() ? [] : [words.state]), ...names.map((name) => words.figures[name])];
    const rows = runs.map((run) => {
      const name = Object.assign(element("th", "", this.choice(run)), { scope: "row" });
      const settings = differing.map(({ values }) => element("td", "value", values[run.number] ?? ""));
      const state = this.sameState() ? [] : [element("td", "", this.state(run))];
      return element("tr", "", name, ...settings, ...state, ...names.map((one) => element("td", "number", this.figure(run, one))));
    });
    const settings = differing.map(({ name }) => headOf(name, "setting"));
    byId("runs").replaceChildren(element("tr", "", headOf(words.run), ...settings, ...heads.map((text) => headOf(text))), ...rows);
  }

  // The mean of runs that differ in their seed alone, a row for each of their other settings.
  fillMeans() {
    const { words, content } = this.page;
    const { means } = content;
    byId("means").hidden = !means.length;
    if (!means.length) return;
    const names = Object.keys(means[0].settings);
    const settings = names.map((name) => headOf(name, "setting"));
    const head = element("tr", "", ...settings, headOf(words.numRuns), headOf(words.mean(content.byToken)));
    byId("means").replaceChildren(head, ...means.map(({ settings, num_runs, mean, error }) => {
      const loss = mean === null ? "" : FORMATS.loss(mean) + (error === null ? "" : ` ± ${FORMATS.loss(error)}`);
      const cells = [...names.map((name) => settings[name]), whole.format(num_runs), loss];
      return element("tr", "", ...cells.map((text) => element("td", "value", text)));
    }));
  }

  // The label with a box that shows or hides its lines.
  choice(run) {
    const box = element("input");
    box.type = "checkbox";
    box.checked = run.shown;
    box.setAttribute("aria-label", this.page.words.show(run.name));
    box.addEventListener("change", () => {
      run.shown = box.checked;
      this.page.curves.show();
    });
    return element("label", "", box, run.label());
  }
}

function headOf(text, kind = "") {
  return Object.assign(element("th", kind, text), { scope: "col" });
}

// Models in turn, settings, environment and corpus: a row for each name, a column for each run.
class Tables {
  constructor(page) {
    this.page = page;
    this.parts = ["models", "settings", "environment", "corpus"].filter((name) => page.content[name].length).map((name) => {
      const title = element("summary"), table = element("table", "facts");
      const details = element("details", "", title, element("div", "wide", table));
      byId("settings-part").append(Object.assign(details, { id: name }));
      return { name, title, table };
    });
    byId("settings-part").hidden = this.parts.length === 0;
  }

  speak() {
    const { words, runs, content } = this.page;
    for (const { name, title, table } of this.parts) {
      title.textContent = words.tables[name];
      const rows = content[name].map(({ name: key, values, differs }) => {
        const head = Object.assign(element("th", "", name === "settings" ? key : words.rows[key] ?? key), { scope: "row" });
        return element("tr", differs ? "differs" : "", head, ...values.map((value) => element("td", "value", value ?? "")));
      });
      const head = element("tr", "", element("td"), ...runs.map((run) => element("th", "", run.label())));
      table.replaceChildren(...(runs.length > 1 ? [head] : []), ...rows);
    }
  }
}
