// The page of `gpt patch`: its texts, and the grids of what patches recover; over training with a slider of steps.

class PatchPage {
  constructor(content, results) {
    Object.assign(this, { ...content, results, frame: results.length - 1, view: new PatchView(() => this.film?.show()) });
    this.shell = new Shell(() => this.show());
    this.film = this.frame > 0 ? new Film(this, this.steps) : null;
    if (this.film) this.view.map = "heads"; // if there is one: its curves differ, those of a residual stream at all positions do not
    this.show();
  }

  get words() { return this.shell.words; }

  // The metric, with its tokens where all pairs share them.
  get name() {
    const { words, metric } = this, [one, other] = [this.answer, this.against].map((token) => token && isolated(marked(token)));
    return metric === "log_probability" && one ? words.chanceOf(one) : one && other ? words.metricOf(one, other) : words.metrics[metric] ?? metric;
  }

  // --- of a film

  goTo(frame) {
    this.frame = frame;
    this.show();
  }

  moment() { return this.words.moment(this.steps[this.frame]); }

  // The metric on both texts, and the share of the chosen cell.
  panels() {
    const { words, view, frame, steps, metrics } = this, { clean, corrupt } = metrics[frame], place = view.chosen;
    const shares = this.results.map((result) => result.of(place)?.recovered ?? NaN);
    const points = steps.map((step, at) => [step, Math.max(-0.5, Math.min(1.5, shares[at]))]).filter(([, share]) => !Number.isNaN(share));
    const line = (kind) => steps.map((step, at) => [step, metrics[at][kind]]);
    return [
      { name: words.bothTexts(this.name), now: `${numberOf(clean, 3)} · ${numberOf(corrupt, 3)}`, lines: [["score", line("clean")], ["validation", line("corrupt")]] },
      { name: view.named(place, words), now: Number.isNaN(shares[frame]) ? "–" : numberOf(shares[frame], 3), lines: [["score", points]], ends: [0, 1] },
    ];
  }

  show() {
    const { words, texts, pairs, name } = this, metrics = this.metrics[this.frame];
    byId("origin").textContent = words.origin(this.checkpoint, this.steps[this.frame]);
    document.title = `${words.title}: ${texts.clean ?? pairs.file} – gpt`;
    byId("pairs").textContent = pairs ? words.pairs(pairs.file, pairs.number) : "";
    const figures = (kind) => (metrics[kind] === null ? "" : ` · ${name} ${numberOf(metrics[kind], 4)}`);
    byId("texts").replaceChildren(...["clean", "corrupt"].flatMap((kind) =>
      [element("dt", "", words[kind] + figures(kind)), element("dd", "", element("bdi", "", texts[kind] ?? ""))]));
    this.view.show(this.results[this.frame], metrics, words);
    this.film?.speak();
    this.film?.show();
  }
}

start(async (content) => { new PatchPage(content, await PatchResult.read(content.patch, content.tokens)); });
