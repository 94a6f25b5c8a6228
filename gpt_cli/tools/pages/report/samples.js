// What the runs wrote while they trained, a column for each run.

class Samples {
  constructor(page) {
    this.page = page;
    this.steps = [...new Set(page.runs.flatMap(({ samples }) => samples.map(({ step }) => step)))].sort((a, b) => a - b);
    this.slider = byId("sample-step");
    this.slider.max = Math.max(0, this.steps.length - 1);
    this.slider.value = this.slider.max;
    byId("samples-choices").hidden = this.steps.length < 2;
    byId("samples-choices").addEventListener("input", () => this.show());
  }

  show() {
    const { words, runs } = this.page;
    const every = byId("every-sample").checked;
    const step = this.steps[this.slider.value];
    this.slider.disabled = every;
    byId("sample-moment").textContent = every || step === undefined ? "" : words.moment(whole.format(step));
    if (step !== undefined) this.slider.setAttribute("aria-valuetext", words.moment(whole.format(step)));
    byId("samples").replaceChildren(...(every ? this.steps : this.steps.filter((one) => one === step)).map((one) => this.row(one, every)));
    if (!this.steps.length) byId("samples").textContent = words.noSamples;
    byId("samples-marked").hidden = !document.querySelector(".sample mark");
    byId("samples-left-out").textContent = runs.filter((run) => run.samples.length < run.numSamples)
      .map((run) => words.samplesLeftOut(run.samples.length, run.numSamples, run.name)).join(" · ");
  }

  // The samples of a step; alone, a run that has none then shows the one before.
  row(step, exactly) {
    const { words, runs } = this.page;
    return element("div", "row", ...runs.flatMap((run) => {
      const found = run.samples.findLast((sample) => exactly ? sample.step === step : sample.step <= step);
      if (!found) return [];
      const name = runs.length > 1 ? [run.label(), " · "] : [];
      const caption = element("figcaption", "", ...name, words.moment(whole.format(found.step)));
      const prompt = found.begins ? [element("mark", "", found.begins)] : [];
      const text = element("p", "", ...prompt, found.text.slice(found.begins.length));
      return element("figure", "sample", caption, text);
    }));
  }
}
