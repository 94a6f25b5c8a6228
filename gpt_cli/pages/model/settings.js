// How the next token is drawn, as `gpt sample` understands these settings.

class Settings {
  constructor(changed) {
    byId("settings").addEventListener("input", changed);
  }

  // A field that is empty or out of its range stands for the value that changes nothing.
  get values() {
    return { temperature: numberIn("temperature", 1), topK: Math.floor(numberIn("top-k", 0)), topP: numberIn("top-p", 1) };
  }

  get seed() { return Math.floor(numberIn("seed", 0)); }

  speak(words) {
    byId("top-k").placeholder = byId("top-p").placeholder = words.all;
    byId("settings-meanings").replaceChildren(...["temperature", "topK", "topP", "seed"].flatMap((name) =>
      [element("dt", "", words[name]), element("dd", "", words.settingMeanings[name])]));
  }
}

// A number between those that its field suggests is good too.
function numberIn(name, otherwise) {
  const { value, validity: { badInput, rangeUnderflow, rangeOverflow } } = byId(name);
  const wrong = badInput || rangeUnderflow || rangeOverflow;
  byId(name).setAttribute("aria-invalid", wrong);
  return wrong || value === "" ? otherwise : Number(value);
}
