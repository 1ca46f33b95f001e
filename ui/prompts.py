"""Texts that the page itself sends: plain questions, and long texts of a wanted length."""

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

LONG_ANSWER_TASKS = (
    "Write a long story about a lighthouse keeper and the last ship of the year.",
    "Explain in detail, step by step, how to build a small wooden boat.",
    "Write a travel diary of ten days on foot along a river, a paragraph a day.",
    "Describe the history of bread in as many paragraphs as you can.",
    "Write a conversation between two clockmakers who disagree about everything.",
    "Plan a village festival in full: people, food, music, and what could go wrong.",
)

DOCUMENT_QUESTIONS = (
    "When did the ferry leave?",
    "What did the carpenters find?",
    "What was missing at the market?",
    "What did the letter from the island ask for?",
    "How did the children measure the tide?",
    "Why did the doctor walk?",
    "What happened at noon?",
    "What did the map show?",
    "What was left at the station?",
    "What did the heron do?",
)

DOCUMENT_TASK = "Read the notes below; a question follows them.\n\n"
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


def long_prompt(num_tokens: int, measure: Callable[[str], int], *, first_day: int = 1) -> str:
    """A task and notes of at most `num_tokens` tokens, and of few less.

    measure: the number of tokens of a text. The length is found by halving, so it is called about a
    dozen times. Prompts of another `first_day` share no more than the task.
    """
    return _longest(num_tokens, measure, lambda words: TASK + _notes(words, first_day))


def document_prompt(num_tokens: int, measure: Callable[[str], int], question: str) -> str:
    """Always the same notes of at most `num_tokens` tokens, and behind them a question."""
    document = _longest(num_tokens, measure, lambda words: DOCUMENT_TASK + _notes(words, 1))
    return f"{document}\n\n{question}"


def _longest(num_tokens: int, measure: Callable[[str], int], make: Callable[[int], str]) -> str:
    """What `make` makes of the most words that still measure `num_tokens` or less."""
    low, high = 0, max(1, num_tokens)  # a word has at least one token
    while low < high:
        middle = (low + high + 1) // 2
        if measure(make(middle)) <= num_tokens:
            low = middle
        else:
            high = middle - 1
    return make(low)


def _notes(num_words: int, first_day: int) -> str:
    sentences = islice(cycle(_SENTENCES), first_day - 1, None)
    numbered = (f"Day {day}: {text}" for day, text in zip(count(first_day), sentences))
    words = (word for sentence in numbered for word in sentence.split())
    return " ".join(islice(words, num_words))
