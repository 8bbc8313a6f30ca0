// Search from a folder: a page of file:// may start no worker, so the worker's script runs in a frame of the page.
// The plugin "offline" would fetch such a script from unpkg.com in every visit.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
      this.load(url).then(() => {
        const messages = this.waiting;
        this.waiting = null;
        messages.forEach((data) => this.postMessage(data));
      });
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = done;
        script.onerror = failed;
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
