// Text that a person has selected in the conversation stays selected and in place while an answer is
// written: each update replaces an answer's nodes, but its text only grows.

/** Gradio scrolls to the end with each token; a person who has selected text is not done with it. */
export function keepSelectionInView(area) {
  area.scrollTo = (...place) => {
    const selection = getSelection();
    const selects = !selection.isCollapsed && area.contains(selection.anchorNode);
    if (!selects) Element.prototype.scrollTo.apply(area, place);
  };
}

/** Watch selections inside `log`; returns what is to be called after each of its changes. */
export function keepSelection(log) {
  let held = null;
  // This event comes after the observers of a change, so they still find what was selected before.
  document.addEventListener("selectionchange", () => {
    const { isCollapsed, anchorNode, anchorOffset, focusNode, focusOffset } = getSelection();
    const ends = isCollapsed
      ? []
      : [placeOf(log, anchorNode, anchorOffset), placeOf(log, focusNode, focusOffset)];
    held = ends.length && ends.every(Boolean) ? ends : null;
  });
  return () => {
    if (!held) return;
    const [anchor, focus] = held.map(nodeAt);
    const selection = getSelection();
    if (!anchor || !focus || isAt(selection, anchor, focus)) return;
    selection.setBaseAndExtent(...anchor, ...focus);
  };
}

const isAt = (selection, anchor, focus) =>
  selection.anchorNode === anchor[0] && selection.anchorOffset === anchor[1] &&
  selection.focusNode === focus[0] && selection.focusOffset === focus[1];

/** {text, offset} of a place in the document: the message text it is in, and characters before it. */
function placeOf(log, node, offset) {
  const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
  const text = element.closest(".md");
  if (!text || !log.contains(text)) return null;
  const before = document.createRange();
  before.setStart(text, 0);
  before.setEnd(node, offset);
  return { text, offset: before.toString().length };
}

/** [node, offset] of a place; null when its text is gone or has become shorter. */
function nodeAt({ text, offset }) {
  if (!text.isConnected) return null;
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
  let left = offset;
  while (walker.nextNode()) {
    const { length } = walker.currentNode;
    if (left <= length) return [walker.currentNode, left];
    left -= length;
  }
  return null;
}
