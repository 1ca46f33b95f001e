// The one poller of a tab. It fetches frames, hands them on, and says whether the server answers;
// it knows neither what the frames mean nor who draws them.

const RETRY_SECONDS = [1, 2, 4, 8];
const OFFLINE_AFTER_MS = 30_000;
const TIMEOUT_MS = 10_000;

/** Milliseconds between polls on this host. Spaces answer faster polling with 429. */
export function pollInterval(hostname, hidden) {
  const base = hostname.endsWith(".hf.space") ? 2000 : 400;
  return hidden ? Math.max(1000, base) : base;
}

/** Milliseconds to wait after the given number of failures in a row. */
export function backoff(failures) {
  return 1000 * RETRY_SECONDS[Math.min(failures, RETRY_SECONDS.length) - 1];
}

export class Feed {
  /**
   * trace: what to fill. onData(reset) runs after each answer with news, onStatus() when the
   * connection changes. `fetcher` stands in for window.fetch in tests.
   */
  constructor(trace, { onData, onStatus, fetcher = (...args) => fetch(...args) }) {
    this.trace = trace;
    this.onData = onData;
    this.onStatus = onStatus;
    this.fetcher = fetcher;
    this.failures = 0;
    this.connection = "connecting"; // then live, reconnecting, offline
    this.lastAnswer = performance.now();
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.#onVisible());
  }

  start() {
    this.#poll();
  }

  /** Ask now instead of waiting for the next retry. */
  retry() {
    clearTimeout(this.timer);
    this.#poll();
  }

  /** Milliseconds since the server last answered. */
  silence() {
    return performance.now() - this.lastAnswer;
  }

  #onVisible() {
    if (!document.hidden && this.timer && this.failures === 0) this.retry();
  }

  async #poll() {
    if (this.polling) return;
    this.polling = true;
    this.timer = 0;
    try {
      await this.#ask();
      this.failures = 0;
      this.lastAnswer = performance.now();
      this.#setConnection("live");
    } catch (error) {
      if (!(error instanceof FeedUnavailable)) throw error;
      this.failures += 1;
      this.#setConnection(this.silence() > OFFLINE_AFTER_MS ? "offline" : "reconnecting");
    } finally {
      this.polling = false;
      const wait = this.failures ? backoff(this.failures) : pollInterval(location.hostname, document.hidden);
      this.timer = setTimeout(() => this.#poll(), wait);
    }
  }

  async #ask() {
    const query = new URLSearchParams({ since: this.trace.cursor, epoch: this.trace.epoch ?? "" });
    const answer = await this.#get(new URL(`live/feed?${query}`, document.baseURI));
    if (answer === null) return;
    const reset = this.trace.apply(answer);
    this.onData(reset);
  }

  async #get(url) {
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const response = await this.fetcher(url, { cache: "no-store", signal });
      if (response.status === 204) return null;
      if (response.status !== 200) throw new FeedUnavailable(`status ${response.status}`);
      return await response.json();
    } catch (error) {
      throw error instanceof FeedUnavailable ? error : new FeedUnavailable(String(error));
    }
  }

  #setConnection(connection) {
    if (connection === this.connection) return;
    this.connection = connection;
    this.onStatus();
  }
}

class FeedUnavailable extends Error {}
