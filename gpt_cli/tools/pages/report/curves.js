// All panels, and what they have in common: the axis, the scale, smoothing, and the place that is looked at.

const PANELS = {
  loss: ["validation_loss", "loss", "smoothed_loss"],
  bits_per_byte: ["bits_per_byte"],
  learning_rate: ["learning_rate"],
  gradient_norm: ["gradient_norm"],
  tokens_per_second: ["tokens_per_second"],
};
const WIDE_RANGE = 20; // from the lowest to the highest loss: then a logarithmic scale shows more

class Curves {
  constructor(page) {
    this.page = page;
    const any = (names) => page.runs.some((run) => names.some((name) => run.curves[name].value.length));
    const { byToken } = page.content;
    const entries = Object.entries(PANELS).filter(([quantity, names]) => any(names) && (byToken || quantity !== "loss"));
    this.panels = entries.map(([quantity, names]) => new Panel(this, quantity, names));
    for (const { quantity, figure } of this.panels) figure.classList.toggle("large", quantity === (byToken ? "loss" : "bits_per_byte"));
    byId("smooth").parentElement.hidden = byId("smoothing").hidden = !byToken;
    byId("panels").append(...this.panels.map((panel) => panel.figure));
    byId("nothing").hidden = this.panels.length > 0;
    byId("choices").hidden = this.panels.length === 0;
    const [low, high] = endsOf(page.runs.flatMap((run) => [...run.curves.loss.value]));
    byId("logarithmic").checked = low > 0 && high / low > WIDE_RANGE;
    byId("choices").addEventListener("input", () => this.show());
    window.addEventListener("resize", () => this.show());
  }

  // What the reader has chosen.
  get axis() { return byId("axis").value || this.page.content.axis; }
  get logarithmic() { return byId("logarithmic").checked; }
  get smooth() { return byId("smooth").checked; }

  speak() { fillSelect(byId("axis"), Object.entries(this.page.words.axes), this.axis); }

  show() {
    for (const panel of this.panels) panel.draw();
  }

  // Mark a place of the axis on all panels; `teller` says what is there.
  look(x, teller) {
    for (const panel of this.panels) panel.show(x, panel === teller);
  }
}
