// Frames of a camera or a video: one request at a time, and frames that come meanwhile are skipped.

import { ServerError } from "./server.js";

const MOST_PIXELS = 1280; // of a frame's longer side
const QUALITY = 0.85;
const WINDOW_MS = 3000; // of the rate that is shown

export class Live {
  // video: a <video>; predict(blob, signal) → result; show(canvas, result, {rate, skipped, count}).
  constructor(video, predict, show) {
    this.video = video;
    this.predict = predict;
    this.show = show;
    this.frame = document.createElement("canvas");
    this.running = false;
  }

  async openCamera() {
    if (!navigator.mediaDevices) {
      throw new Error("A browser gives its camera only to pages over https, or of this machine (localhost).");
    }
    const wanted = { video: { facingMode: "environment", width: { ideal: 1280 } }, audio: false };
    try {
      this.video.srcObject = await navigator.mediaDevices.getUserMedia(wanted);
    } catch (error) {
      const refused = error.name === "NotAllowedError" || error.name === "SecurityError";
      throw new Error(refused ? "The browser does not let this page use the camera." : `There is no camera: ${error.message}`);
    }
  }

  openFile(file) {
    this.video.src = URL.createObjectURL(file);
  }

  // Plays until the end, or until stop() is called. Throws what makes going on useless.
  async run() {
    this.running = true;
    this.stopped = new AbortController();
    const { signal } = this.stopped;
    try {
      await this.play();
      const answered = [];
      const count = { skipped: 0, answered: 0 };
      let before = null;
      while (this.running && !this.video.ended) {
        const presented = await this.nextFrame(signal);
        if (!this.running || presented === null) break;
        if (before !== null) count.skipped += Math.max(0, presented - before - 1);
        before = presented;
        const result = await this.ask(signal);
        if (!this.running || result === null) continue;
        const now = performance.now();
        answered.push(now);
        while (answered[0] < now - WINDOW_MS) answered.shift();
        count.answered += 1;
        const rate = answered.length > 1 ? (1000 * (answered.length - 1)) / (now - answered[0]) : 0;
        await this.show(this.frame, result, { rate, ...count });
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      this.stop();
    }
  }

  async play() {
    try {
      await this.video.play();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The browser cannot play this video.");
    }
  }

  // Sends the frame that is shown now. Null if the server is busy: it said how long to wait, and that time has passed.
  async ask(signal) {
    const { videoWidth: width, videoHeight: height } = this.video;
    const scale = Math.min(1, MOST_PIXELS / Math.max(width, height));
    this.frame.width = Math.round(width * scale);
    this.frame.height = Math.round(height * scale);
    this.frame.getContext("2d").drawImage(this.video, 0, 0, this.frame.width, this.frame.height);
    const blob = await new Promise((done) => this.frame.toBlob(done, "image/jpeg", QUALITY));
    try {
      return await this.predict(blob, signal);
    } catch (error) {
      if (!(error instanceof ServerError) || error.retryAfter === null) throw error;
      await new Promise((done) => setTimeout(done, 1000 * error.retryAfter));
      return null;
    }
  }

  // The number of the next frame that is presented; null once there is none.
  nextFrame(signal) {
    return new Promise((done) => {
      const end = () => done(null);
      signal.addEventListener("abort", end, { once: true });
      this.video.addEventListener("ended", end, { once: true });
      if (this.video.requestVideoFrameCallback) {
        this.video.requestVideoFrameCallback((_, { presentedFrames }) => done(presentedFrames));
      } else {
        requestAnimationFrame(() => done(0)); // an older browser: nothing is known of frames
      }
    });
  }

  stop() {
    if (!this.running && !this.video.srcObject && !this.video.src) return;
    this.running = false;
    this.stopped?.abort();
    this.video.pause();
    for (const track of this.video.srcObject?.getTracks() ?? []) track.stop();
    this.video.srcObject = null;
    if (this.video.src) URL.revokeObjectURL(this.video.src);
    this.video.removeAttribute("src");
  }
}
