// The film of a training: a frame for each snapshot, moved by a slider or played; hidden on the page of one model.

const CURVE = { height: 52, gap: 30, left: 60, right: 10 }; // pixels: of a panel, above it, and beside both

class Film {
  constructor(page, frames) {
    this.page = page;
    this.frames = frames;
    this.timer = null;
    this.slider = byId("frame");
    this.slider.max = this.last;
    this.slider.value = this.last; // the trained model; playing begins at the first
    byId("film").hidden = false;
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    byId("play").addEventListener("click", () => this.playOrPause());
    document.addEventListener("keydown", (event) => {
      if (event.key !== " " || ![document.body, this.slider].includes(event.target)) return;
      event.preventDefault();
      this.playOrPause();
    });
    byId("curve").addEventListener("click", (event) => this.go(this.nearest(event.offsetX)));
  }

  get last() { return this.frames.steps.length - 1; }
  get playing() { return this.timer !== null; }

  go(frame) {
    this.page.weights.show(frame);
    this.slider.value = frame;
    if (!this.playing) this.page.heads.arrange(); // while it plays, heads keep their places
    this.page.show();
  }

  // All frames in ten seconds, but none shorter than a blink or longer than half a second.
  playOrPause() {
    if (this.playing) return this.pause();
    if (this.page.frame === this.last) this.go(0);
    const pause = Math.max(50, Math.min(500, 10_000 / this.frames.steps.length));
    this.timer = setInterval(() => {
      if (this.page.frame < this.last) this.go(this.page.frame + 1);
      if (this.page.frame === this.last) this.pause();
    }, pause);
    this.speak();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.speak();
    this.go(this.page.frame);
  }

  speak() { byId("play").textContent = this.playing ? this.page.words.pause : this.page.words.play; }

  // --- the curves

  show() {
    const { words, frame } = this.page;
    const step = this.frames.steps[frame];
    byId("moment").textContent = words.moment(step, this.frames.losses[frame].toFixed(4));
    this.slider.setAttribute("aria-valuetext", words.moment(step, this.frames.losses[frame].toFixed(4)));
    const panels = this.panels();
    const drawn = JSON.stringify([byId("curve").clientWidth, panels.map((panel) => panel.name)]);
    if (this.drawn !== drawn) this.draw(panels);
    this.drawn = drawn;
    const x = this.across(step);
    byId("curve").querySelector(".mark").setAttribute("d", `M${x} 0V${byId("curve").clientHeight}`);
    panels.forEach((panel, at) => { byId("curve").querySelectorAll(".now")[at].textContent = panel.now; });
  }

  // The loss, and the score of the chosen head: by induction where the heads have no other order.
  panels() {
    const { scores, frame, words, place, weights, heads, layer, head } = this.page;
    const { steps, losses, curves } = this.frames;
    const panels = [{
      name: curves.validation_loss.length ? words.lossAndValidation : words.loss,
      now: losses[frame].toFixed(4),
      lines: [["loss", curves.loss.length ? curves.loss : steps.map((step, at) => [step, losses[at]])], ["validation", curves.validation_loss]],
    }];
    if (place === null) return panels;
    const column = heads.column ?? "induction";
    const points = steps.map((step, at) => [step, scores.of(at, place, column)]).filter(([, score]) => !Number.isNaN(score));
    const name = `L${weights.layers[layer]} H${weights.heads[head]} ${words.columns[column]}`;
    return [...panels, { name, now: scoreText(scores.of(frame, place, column)), lines: [["score", points]], ends: [0, 1] }];
  }

  draw(panels) {
    const svg = byId("curve");
    svg.style.height = `${panels.length * (CURVE.height + CURVE.gap) + 18}px`;
    const make = (name, kind, attributes, text = "") => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      made.setAttribute("class", kind);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      made.textContent = text;
      return made;
    };
    const parts = [make("path", "mark", {})];
    panels.forEach(({ name, lines, ends }, at) => {
      const top = at * (CURVE.height + CURVE.gap) + CURVE.gap;
      const values = lines.flatMap(([, points]) => points.map(([, value]) => value));
      const [low, high] = [Math.min(...(ends ? [ends[0]] : []), ...values), Math.max(...(ends ? [ends[1]] : []), ...values)];
      const down = (value) => (top + CURVE.height * (high > low ? (high - value) / (high - low) : 0.5)).toFixed(1);
      parts.push(make("text", "name", { x: CURVE.left, y: top - 7 }, name), make("text", "now", { x: svg.clientWidth - CURVE.right - 5, y: top - 7 }));
      for (const [value, y] of [[high, top + 9], [low, top + CURVE.height]])
        if (values.length) parts.push(make("text", "end", { x: CURVE.left - 6, y }, endText(value)));
      parts.push(make("path", "ground", { d: `M${CURVE.left} ${top + CURVE.height}H${svg.clientWidth - CURVE.right}` }));
      for (const [kind, points] of lines)
        if (points.length) parts.push(make("path", kind, { d: points.map(([step, value], place) => `${place ? "L" : "M"}${this.across(step)} ${down(value)}`).join("") }));
    });
    const bottom = panels.length * (CURVE.height + CURVE.gap) + 14;
    const { steps } = this.frames;
    parts.push(make("text", "name", { x: CURVE.left, y: bottom }, steps[0]), make("text", "end", { x: svg.clientWidth - CURVE.right - 5, y: bottom }, steps.at(-1)));
    svg.replaceChildren(...parts);
  }

  // Where a step is on the curves, in pixels from the left.
  across(step) {
    const { steps } = this.frames;
    const share = (step - steps[0]) / Math.max(1, steps.at(-1) - steps[0]);
    const width = byId("curve").clientWidth - CURVE.left - CURVE.right;
    return (CURVE.left + width * Math.max(0, Math.min(1, share))).toFixed(1);
  }

  nearest(x) {
    const far = this.frames.steps.map((step) => Math.abs(this.across(step) - x));
    return far.indexOf(Math.min(...far));
  }
}

// The end of an axis in three digits, never longer than the room beside it.
function endText(value) { return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(2) : value.toPrecision(3); }
