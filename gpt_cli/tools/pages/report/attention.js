// Where the heads of a run look, in maps; for each snapshot of the training where there are many.

class AttentionOfRun {
  constructor(page, run, weights) {
    Object.assign(this, { page, run, weights, chosen: [0, 0] });
    this.palette = paletteOf(weights.colours);
    this.caption = element("figcaption");
    this.moment = element("output");
    const last = (weights.frames?.steps.length ?? 1) - 1;
    this.slider = Object.assign(element("input"), { type: "range", min: 0, max: last, value: last, autocomplete: "off" });
    this.slider.addEventListener("input", () => {
      weights.show(Number(this.slider.value));
      this.show();
    });
    this.table = element("table", "maps");
    [this.name, this.large] = [element("p"), element("canvas", "large")];
    this.buildTable();
    this.one = element("div", "one", this.name, this.large);
    const both = element("div", "both", element("div", "wide", this.table), this.one);
    const wide = element("p", "frames", this.slider, " ", this.moment);
    wide.hidden = last === 0;
    this.more = element("p", "help");
    this.figure = element("figure", "attention", this.caption, wide, both, this.more);
  }

  buildTable() {
    const { layers, heads } = this.weights;
    const title = this.table.insertRow();
    title.append(element("td"), ...heads.map((head) => headOf(`H${head}`)));
    this.buttons = layers.flatMap((number, layer) => {
      const row = this.table.insertRow();
      row.append(headOf(`L${number}`));
      return heads.map((_, head) => {
        const canvas = element("canvas"), button = element("button", "", canvas);
        button.addEventListener("click", () => {
          this.chosen = [layer, head];
          this.show();
        });
        row.insertCell().append(button);
        return Object.assign(button, { layer, head, canvas });
      });
    });
    this.table.style.setProperty("--columns", heads.length);
  }

  show() {
    const { page: { words, runs }, weights, palette, chosen } = this;
    const { steps, losses } = weights.frames ?? {};
    const what = words.attentionTo(isolated(weights.origin.prompt), whole.format(weights.origin.step));
    this.caption.replaceChildren(...(runs.length > 1 ? [this.run.label(), " · "] : []), what);
    this.slider.setAttribute("aria-label", words.frames);
    if (steps) this.moment.textContent = words.moment(whole.format(steps[weights.frame]), losses[weights.frame].toFixed(4));
    const nameOf = (layer, head) => words.headOf(weights.layers[layer], weights.heads[head]);
    for (const button of this.buttons) {
      const { layer, head, canvas } = button;
      button.setAttribute("aria-pressed", layer === chosen[0] && head === chosen[1]);
      button.setAttribute("aria-label", nameOf(layer, head));
      drawSmall(canvas, weights.of(layer, head), weights.numTokens, 96, 0, palette);
    }
    this.name.textContent = nameOf(...chosen);
    const room = Math.min(460, this.one.clientWidth);
    drawLarge(this.large, weights.of(...chosen), weights.labels.map(({ short }) => short), 0, palette, room);
    this.more.textContent = this.command ? words.more(this.command) : "";
  }
}

// The attention of all runs that have some.
class Attention {
  static async read(page) {
    const parts = await Promise.all(page.content.attention.map(async ({ run, weights, problem, command }) => {
      const found = weights && new AttentionOfRun(page, page.runs[run], await PackedWeights.read(weights));
      return Object.assign(found ?? { figure: element("p"), run: page.runs[run], problem }, { command });
    }));
    return new Attention(page, parts);
  }

  constructor(page, parts) {
    Object.assign(this, { page, parts });
    byId("attention").append(...parts.map(({ figure }) => figure));
    byId("no-attention").hidden = parts.length > 0;
    window.addEventListener("resize", () => this.show());
  }

  show() {
    const { words, content } = this.page;
    byId("no-attention").textContent = words.noAttention(content.attentionCommand);
    for (const part of this.parts)
      if (part instanceof AttentionOfRun) part.show();
      else part.figure.textContent = `${part.run.name}: ${part.problem || (part.command ? `${words.tooLarge} ${words.more(part.command)}` : words.tooLarge)}`;
  }
}
