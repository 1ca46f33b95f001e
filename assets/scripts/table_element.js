// The table behind every "Show as table": texts in, elements out.

/** Put a table of texts into `holder` in place of what is there; `empty` is its row where it has none. */
export function writeTable(holder, { caption, head, rows, empty = null }) {
  const table = document.createElement("table");
  table.createCaption().textContent = caption;
  const top = table.createTHead().insertRow();
  for (const title of head) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = title;
    top.append(cell);
  }
  const body = table.createTBody();
  for (const values of rows) {
    const line = body.insertRow();
    for (const value of values) line.insertCell().textContent = value;
  }
  if (!rows.length && empty !== null) body.insertRow().insertCell().textContent = empty;
  holder.replaceChildren(table);
}
