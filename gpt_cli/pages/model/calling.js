// Asks the engine, which computes in a worker, so that the page never stands still.

class EngineCaller {
  constructor() {
    // the worker is text of this script, since a page from a disk may load no other file
    this.worker = new Worker(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" })));
    this.waiting = new Map();
    this.worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error === undefined) resolve(result);
      else reject(Object.assign(new Error(error.message), error));
    };
    this.count = 0;
  }

  // The result of a method, in the order of the calls; rejects with the engine's error.
  call(method, args) {
    return new Promise((resolve, reject) => {
      const id = this.count++;
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, method, args });
    });
  }

  // Opens the model of the page; its weights are in an element of their own, which the engine alone reads.
  open(content) { return this.call("open", { content, weights: byId("data").textContent }); }
}
