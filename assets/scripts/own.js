// Which requests are this session's own. The numbers come from the chat's footers (data-own) or from
// own.add(n); they are kept for a reload under the feed's epoch, since numbers start anew with a server.

const KEY = "phasescope.own";

export class OwnRequests {
  /** changed() runs when a number was added or all were dropped. */
  constructor(changed, storage = sessionStorage) {
    this.changed = changed;
    this.storage = storage;
    this.epoch = null;
    this.numbers = new Set();
  }

  has(n) {
    return this.numbers.has(n);
  }

  /** Newest own request number, null without one. */
  newest() {
    return this.numbers.size ? Math.max(...this.numbers) : null;
  }

  add(n) {
    const number = Number(n);
    if (!Number.isInteger(number) || number < 0 || this.numbers.has(number)) return;
    this.numbers.add(number);
    this.#save();
    this.changed();
  }

  /** Take up the numbers of a feed epoch; those of an earlier server are forgotten. */
  enter(epoch) {
    if (epoch === this.epoch) return;
    const early = this.epoch === null ? [...this.numbers] : [];
    this.epoch = epoch;
    this.numbers = new Set([...this.#load(), ...early]);
    this.#save();
    this.changed();
  }

  /** Mark what the chat's footers carry, now and whenever the chat changes. */
  watch(chat) {
    const scan = () => {
      for (const footer of chat.querySelectorAll("[data-own]")) {
        const { own, epoch } = footer.dataset;
        if (!epoch || this.epoch === null || epoch === this.epoch) this.add(own);
      }
    };
    new MutationObserver(scan).observe(chat, {
      subtree: true, childList: true, attributes: true, attributeFilter: ["data-own"],
    });
    scan();
  }

  #load() {
    try {
      const { epoch, numbers } = JSON.parse(this.storage.getItem(KEY) ?? "{}");
      return epoch === this.epoch && Array.isArray(numbers) ? numbers.filter(Number.isInteger) : [];
    } catch {
      return []; // storage is closed to this page, or holds what an older version wrote
    }
  }

  #save() {
    if (this.epoch === null) return;
    try {
      this.storage.setItem(KEY, JSON.stringify({ epoch: this.epoch, numbers: [...this.numbers] }));
    } catch {
      // Without storage a reload forgets which lanes were the reader's; nothing else depends on it.
    }
  }
}
