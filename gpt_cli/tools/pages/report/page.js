// The report: its parts, and what the language and the theme change in them.

class Report {
  constructor(content, runs) {
    Object.assign(this, { content, runs });
    this.shell = new Shell(() => this.speakAndShow());
    this.table = new Runs(this);
    this.curves = new Curves(this);
    this.samples = new Samples(this);
    this.tables = new Tables(this);
  }

  get words() { return this.shell.words; }

  speakAndShow() {
    const { words, runs } = this;
    const names = runs.map(({ name }) => name).join(", ");
    document.title = `${words.title}: ${runs.length > 1 ? `${runs[0].name} … ${runs.at(-1).name}` : names} – gpt`;
    byId("names").textContent = runs.length > 1 ? "" : names;
    byId("origin").textContent = runs.length > 1 ? "" : runs[0].path;
    this.table.speak();
    this.curves.speak();
    this.curves.show();
    this.samples.show();
    this.tables.speak();
    this.attention.show();
  }
}

start(async (content) => {
  const page = new Report(content, await Promise.all(content.runs.map((run, number) => Run.read(run, number))));
  page.attention = await Attention.read(page);
  page.speakAndShow();
});
