"""Experiments on the engine: benchmarks and what drives them. Nothing that serves imports this."""
