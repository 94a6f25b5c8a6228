// What the engine refuses for a reason that a reader understands, so that the page says it in their language.

class Refusal extends Error {
  // `reason` is the name of a sentence among the page's words, which makes it of `values`.
  constructor(reason, ...values) {
    super(`${reason} ${JSON.stringify(values)}`);
    Object.assign(this, { reason, values });
  }
}
