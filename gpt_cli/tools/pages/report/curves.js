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
    this.axis = page.content.axis;
    this.smooth = true;
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
    this.logarithmic = low > 0 && high / low > WIDE_RANGE;
    byId("logarithmic").checked = this.logarithmic;
    byId("smooth").checked = true;
    byId("choices").addEventListener("input", () => {
      this.axis = byId("axis").value;
      this.logarithmic = byId("logarithmic").checked;
      this.smooth = byId("smooth").checked;
      this.show();
    });
    window.addEventListener("resize", () => this.show());
  }

  speak() { fillSelect(byId("axis"), Object.entries(this.page.words.axes), this.axis); }

  show() {
    for (const panel of this.panels) panel.draw();
  }

  // Mark a place of the axis on all panels; `teller` says what is there.
  look(x, teller) {
    for (const panel of this.panels) panel.show(x, panel === teller);
  }
}
