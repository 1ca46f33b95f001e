// The words of the Compare tab, which come with its panels from ui/words_compare.py.

/** Sentences and labels by name, from the element that carries them. */
export const compareWords = (holder) => JSON.parse(holder.dataset.compareWords);
