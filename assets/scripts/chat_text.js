// Text in numbers, for the chat card: how many tokens it may be, and how far it is in sentences.
// Pure functions without a document.

const LETTERS_PER_TOKEN = 7;
const PIECES = /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|[\p{L}\p{M}]+|\p{N}|[^\s\p{L}\p{M}\p{N}]|\n+/gu;
const SENTENCE_END = /[.!?:;][)"'»”]*(?=\s)|\n/g;

/**
 * About how many tokens a subword tokenizer makes of a text: one a short word, digit, sign or
 * run of line ends, more for long words. Off by some ten per cent either way for plain prose.
 */
export function estimateTokens(text) {
  let tokens = 0;
  for (const [piece] of text.matchAll(PIECES)) {
    tokens += Math.ceil([...piece].length / LETTERS_PER_TOKEN);
  }
  return tokens;
}

/** Length of the part of a text that consists of finished sentences. */
export function finishedSentences(text) {
  let end = 0;
  for (const match of text.matchAll(SENTENCE_END)) end = match.index + match[0].length;
  return end;
}
