"""Texts that the page itself sends: plain questions, and a long prompt of a wanted length."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, cycle, islice

QUESTIONS = (
    "Why is the sky blue, and why are sunsets red?",
    "Write a short packing list for a weekend in the mountains.",
    "Explain to a ten-year-old how a bicycle stays upright.",
    "Give me three ideas for a quick vegetarian dinner.",
    "What is the difference between weather and climate?",
    "Describe a quiet harbour at dawn in a few sentences.",
    "How does a refrigerator keep things cold?",
    "Write a friendly note to a neighbour about a lost cat.",
    "What makes bread rise, and why is kneading useful?",
    "Name four ways to remember people's names.",
    "Tell a very short story about a lighthouse keeper.",
    "How do bees find their way back to the hive?",
)

TASK = "Summarise the notes below in three sentences.\n\n"

_SENTENCES = (
    "The ferry left the harbour at seven, an hour after the fishing boats.",
    "Rain in the night had filled the barrels behind the school.",
    "Two carpenters repaired the bridge and counted forty loose boards.",
    "The baker sold out of rye bread before the market had opened.",
    "A letter from the island said that the lamp needed a new wick.",
    "Children measured the tide with a stick and wrote the numbers on a wall.",
    "The doctor's bicycle had a flat tyre, so she walked to the mill.",
    "At noon the wind turned and the sails were taken in.",
    "The librarian found a map that showed the old road to the quarry.",
    "Somebody left three baskets of apples at the station.",
    "The mayor asked for quiet while the new bell was tuned.",
    "In the evening a heron stood on the pier and did not move for an hour.",
)


def long_prompt(num_tokens: int, measure: Callable[[str], int]) -> str:
    """A task and notes of at most `num_tokens` tokens, and of few less.

    measure: the number of tokens of a text. The length is found by halving, so it is called about a
    dozen times.
    """
    low, high = 0, max(1, num_tokens)  # a sentence has more than one token
    while low < high:
        middle = (low + high + 1) // 2
        if measure(_notes(middle)) <= num_tokens:
            low = middle
        else:
            high = middle - 1
    return _notes(low)


def _notes(num_words: int) -> str:
    numbered = (f"Day {day}: {text}" for day, text in zip(count(1), cycle(_SENTENCES)))
    words = (word for sentence in numbered for word in sentence.split())
    return TASK + " ".join(islice(words, num_words))
