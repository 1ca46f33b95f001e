// The table of runs in the Workload tab: which run is open, and sorting by a column. Its rows come from
// ui/workload_runs.py and are replaced as a whole; what the reader has chosen stays.

const OPEN = "#ps-workload-report [data-result]";

/** Bring the table inside `element` to life; open(name) is called with the run whose name is clicked. */
export function watchRuns(element, open) {
  const runs = new RunsTable(element);
  element.addEventListener("click", (event) => {
    const name = event.target.closest(".ps-run");
    if (name) open(name.closest("tr").dataset.run);
    const column = event.target.closest(".ps-sort");
    if (column) runs.sortBy(runs.columns().indexOf(column));
  });
  const changed = () => runs.update();
  new MutationObserver(changed).observe(element.closest("#ps-workload-run"), { subtree: true, childList: true });
  changed();
}

class RunsTable {
  constructor(element) {
    this.element = element;
    this.body = null;
    this.sorted = null; // {column, up}
  }

  columns() {
    return [...this.element.querySelectorAll(".ps-sort")];
  }

  /** From the lowest on, and from the highest when it is asked for again. */
  sortBy(column) {
    this.sorted = { column, up: this.sorted?.column !== column || !this.sorted.up };
    this.#sort();
  }

  update() {
    const body = this.element.querySelector("tbody");
    if (body && body !== this.body) {
      this.body = body;
      if (this.sorted) this.#sort();
    }
    const shown = document.querySelector(OPEN)?.dataset.result;
    for (const row of body?.rows ?? []) {
      if (row.dataset.run === shown) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  #sort() {
    const { column, up } = this.sorted;
    for (const [i, button] of this.columns().entries()) {
      button.parentElement.ariaSort = i !== column ? null : up ? "ascending" : "descending";
    }
    const rows = [...this.body.querySelectorAll("tr[data-run]")].map((row) => {
      const { value } = row.querySelectorAll("td")[column].dataset;
      return { row, value: value === undefined ? null : Number(value) };
    });
    rows.sort((a, b) => comparison(a.value, b.value, up));
    this.body.append(...rows.map(({ row }) => row));
  }
}

// What has no value is last either way.
function comparison(a, b, up) {
  if (a === null || b === null) return (a === null) - (b === null);
  return up ? a - b : b - a;
}
