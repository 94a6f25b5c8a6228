// The film of a training: a frame for each step, moved by a slider or played.

const CURVE = { height: 52, gap: 30, left: 60, right: 10 }; // pixels: of a panel, above it, and beside both

class Film {
  // `page` has `words`, the `frame` it shows, and goTo(frame, playing). Of that frame, moment() says what it is, and panels() are curves below each
  // other, {name, now, lines: [[kind, [[step, number]]]]}, perhaps with the `ends` of their axis.
  constructor(page, steps) {
    this.page = page;
    this.steps = steps;
    this.timer = null;
    this.slider = byId("frame");
    this.slider.max = this.last;
    this.slider.value = this.last; // the trained model; playing begins at the first
    byId("film").hidden = false;
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    byId("play").addEventListener("click", () => this.playOrPause());
    document.addEventListener("keydown", (event) => {
      if (event.key !== " " || event.shiftKey || ![document.body, this.slider].includes(event.target)) return;
      event.preventDefault();
      this.playOrPause();
    });
    byId("curve").addEventListener("click", (event) => this.go(this.nearest(event.offsetX)));
    window.addEventListener("resize", () => this.show());
  }

  get last() { return this.steps.length - 1; }
  get playing() { return this.timer !== null; }

  go(frame) {
    this.slider.value = frame;
    this.page.goTo(frame, this.playing);
  }

  // All frames in ten seconds, but none shorter than a blink or longer than half a second.
  playOrPause() {
    if (this.playing) return this.pause();
    if (this.page.frame === this.last) this.go(0);
    const pause = Math.max(50, Math.min(500, 10_000 / this.steps.length));
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
    const moment = this.page.moment(), panels = this.page.panels();
    byId("moment").textContent = moment;
    this.slider.setAttribute("aria-valuetext", moment);
    const drawn = JSON.stringify([byId("curve").clientWidth, panels.map((panel) => panel.name)]);
    if (this.drawn !== drawn) this.draw(panels);
    this.drawn = drawn;
    const x = this.across(this.steps[this.page.frame]);
    byId("curve").querySelector(".mark").setAttribute("d", `M${x} 0V${byId("curve").clientHeight}`);
    panels.forEach((panel, at) => { byId("curve").querySelectorAll(".now")[at].textContent = panel.now; });
  }

  draw(panels) {
    const svg = byId("curve");
    svg.style.height = `${panels.length * (CURVE.height + CURVE.gap) + 18}px`;
    svg.setAttribute("viewBox", `0 0 ${svg.clientWidth} ${svg.clientHeight}`); // paper is narrower
    const parts = [drawn("path", "mark", {})];
    panels.forEach(({ name, lines, ends }, at) => {
      const top = at * (CURVE.height + CURVE.gap) + CURVE.gap;
      const values = lines.flatMap(([, points]) => points.map(([, value]) => value));
      const [low, high] = [Math.min(...(ends ? [ends[0]] : []), ...values), Math.max(...(ends ? [ends[1]] : []), ...values)];
      const down = (value) => (top + CURVE.height * (high > low ? (high - value) / (high - low) : 0.5)).toFixed(1);
      parts.push(drawn("text", "name", { x: CURVE.left, y: top - 7 }, name), drawn("text", "now", { x: svg.clientWidth - CURVE.right - 5, y: top - 7 }));
      for (const [value, y] of [[high, top + 9], [low, top + CURVE.height]])
        if (values.length) parts.push(drawn("text", "end", { x: CURVE.left - 6, y }, endText(value)));
      parts.push(drawn("path", "ground", { d: `M${CURVE.left} ${top + CURVE.height}H${svg.clientWidth - CURVE.right}` }));
      for (const [kind, points] of lines)
        if (points.length) parts.push(drawn("path", kind, { d: points.map(([step, value], place) => `${place ? "L" : "M"}${this.across(step)} ${down(value)}`).join("") }));
    });
    const bottom = panels.length * (CURVE.height + CURVE.gap) + 14;
    const { steps } = this;
    parts.push(drawn("text", "name", { x: CURVE.left, y: bottom }, steps[0]), drawn("text", "end", { x: svg.clientWidth - CURVE.right - 5, y: bottom }, steps.at(-1)));
    svg.replaceChildren(...parts);
  }

  // Where a step is on the curves, in pixels from the left.
  across(step) {
    const { steps } = this;
    const share = (step - steps[0]) / Math.max(1, steps.at(-1) - steps[0]);
    const width = byId("curve").clientWidth - CURVE.left - CURVE.right;
    return (CURVE.left + width * share).toFixed(1);
  }

  nearest(x) {
    const far = this.steps.map((step) => Math.abs(this.across(step) - x));
    return far.indexOf(Math.min(...far));
  }
}

// The end of an axis in three digits, never longer than the room beside it.
function endText(value) { return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(2) : value.toPrecision(3); }
