// Asks the engine, which computes in a worker, so that the page never stands still.

class EngineCaller {
  constructor() {
    // the worker is text of this script, since a page from a disk may load no other file
    this.worker = new Worker(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" })));
    this.waiting = new Map();
    this.worker.onmessage = ({ data: { id, progress, result, error } }) => {
      const { resolve, reject, told } = this.waiting.get(id);
      if (progress) return told?.(progress);
      this.waiting.delete(id);
      if (error === undefined) resolve(result);
      else reject(Object.assign(new Error(error.message), error));
    };
    this.count = 0;
  }

  // The result of a method, in the order of the calls; rejects with the engine's error. `told` hears {done, total}.
  call(method, args, told) {
    return new Promise((resolve, reject) => {
      const id = this.count++;
      this.waiting.set(id, { resolve, reject, told });
      this.worker.postMessage({ id, method, args });
    });
  }

  // Ends the reading that was asked for so far: its result is null, and what was read stays read.
  stop() { this.worker.postMessage({ stop: true }); }
}
