// How the next token is drawn, as `gpt sample` understands these settings.

// A field that is empty stands for the value that changes nothing. `label` is the word beside the field.
const FIELDS = {
  temperature: { label: "temperature", empty: 1 },
  "top-k": { label: "topK", empty: 0, whole: true },
  "top-p": { label: "topP", empty: 1 },
  seed: { label: "seed", empty: 0, whole: true },
};

class Settings {
  constructor(changed) {
    this.good = {}; // the last number of each field that was in its range, and its text
    this.read();
    byId("settings").addEventListener("input", () => {
      this.read();
      changed();
    });
  }

  // Numbers between the steps that a field suggests are good too, unless it is about whole ones.
  read() {
    for (const [name, { empty, whole }] of Object.entries(FIELDS)) {
      const { value, validity: { badInput, rangeUnderflow, rangeOverflow } } = byId(name);
      const wrong = badInput || rangeUnderflow || rangeOverflow || (whole && !Number.isInteger(Number(value)));
      byId(name).setAttribute("aria-invalid", wrong);
      if (!wrong) this.good[name] = { number: value === "" ? empty : Number(value), text: value };
    }
  }

  get values() {
    const { temperature, "top-k": topK, "top-p": topP } = this.good;
    return { temperature: temperature.number, topK: topK.number, topP: topP.number };
  }

  get seed() { return this.good.seed.number; }

  // Says which fields have no number of their range, and what counts instead.
  tell(words) {
    const wrong = Object.keys(FIELDS).filter((name) => byId(name).ariaInvalid === "true");
    byId("settings-told").replaceChildren(...wrong.map((name) => {
      const { min, max, placeholder } = byId(name);
      const used = this.good[name].text || placeholder || FIELDS[name].empty;
      return element("span", "", words.outOfRange(words[FIELDS[name].label], FIELDS[name].whole, min, max, used));
    }));
  }

  speak(words) {
    byId("temperature").placeholder = "1";
    byId("top-k").placeholder = byId("top-p").placeholder = words.all;
    byId("settings-meanings").replaceChildren(...["temperature", "topK", "topP", "seed"].flatMap((name) =>
      [element("dt", "", words[name]), element("dd", "", words.settingMeanings[name])]));
    this.tell(words);
  }
}
