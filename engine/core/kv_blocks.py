"""The KV pool as numbers: which block belongs to whom, what is cached, what goes first.

A block holds the keys and values of `block_size` consecutive positions. Every block is exactly one
of used (referenced by a block table), evictable (unreferenced, but its content is known by hash
and may be reused) or free. Where blocks lie in memory is the runner's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

_HASH_BYTES = 16

# What the pool's map says of a block. A promised block is free, and lies where a running sequence
# will want to grow: it is handed to another sequence only when nothing else is left.
_TAKEN, _FREE, _PROMISED = 0, 1, 2


def root_hash(fingerprint: str, cache_salt: str | None) -> bytes:
    """The parent of a sequence's first block: what else must be equal for blocks to be shared.

    Each part carries its own tag and length, so a salt can never pass for a model's name.
    """
    digest = blake2b(digest_size=_HASH_BYTES, person=b"kv-root")
    for tag, part in ((b"model", fingerprint), (b"salt", cache_salt)):
        data = b"" if part is None else part.encode("utf-8", "surrogatepass")
        kind = b"none" if part is None else b"text"
        digest.update(b"%s:%s:%d:" % (tag, kind, len(data)) + data)
    return digest.digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Identify a full block by its tokens and everything before it."""
    digest = blake2b(parent, digest_size=_HASH_BYTES, person=b"kv-block")
    digest.update(b"".join(token.to_bytes(8, "little") for token in token_ids))
    return digest.digest()


class PoolView(NamedTuple):
    """Every block at one moment, by id: references and last owner; and the evictable ones.

    The owner is the number of the request that took the block last, 0 for a free block.
    """

    references: tuple[int, ...]
    owners: tuple[int, ...]
    evictable: tuple[int, ...]


class BlockPool:
    """`num_blocks` blocks with reference counts and a prefix cache; not thread-safe.

    Always: `num_used + num_evictable + num_free == num_blocks`.
    """

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.caching = caching
        self.num_evictions = 0
        self._references = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._owners = [0] * num_blocks
        self._cached: dict[bytes, int] = {}
        # Insertion order is the order of eviction: least recently used first.
        self._evictable: dict[int, None] = {}
        self._map = bytearray([_FREE]) * num_blocks
        self._promised: dict[int, range] = {}
        self._num_free = num_blocks
        self._displaced: set[int] = set()

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return self._num_free

    @property
    def num_evictable(self) -> int:
        """Blocks that nobody uses but whose content may be reused."""
        return len(self._evictable)

    @property
    def num_used(self) -> int:
        """Blocks referenced by at least one block table."""
        return self.num_blocks - self._num_free - len(self._evictable)

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can hand out."""
        return self._num_free + len(self._evictable)

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """Blocks that hold the longest cached prefix of `hashes`."""
        if not self.caching:
            return []
        blocks: list[int] = []
        for digest in hashes:
            block = self._cached.get(digest)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def count_evictable(self, blocks: Iterable[int]) -> int:
        """How many of the given blocks are evictable now, so would leave that state if acquired."""
        return sum(block in self._evictable for block in blocks)

    def acquire(self, blocks: Iterable[int], owner: int) -> None:
        """Add a reference to cached blocks for request number `owner`."""
        for block in blocks:
            if self._references[block] == 0:
                del self._evictable[block]
                if self._owners[block] != owner:
                    self._displaced.add(self._owners[block])
                    self._owners[block] = owner
            self._references[block] += 1

    def allocate(self, count: int, owner: int, *, after: int | None, room: int = 1) -> list[int]:
        """Take `count` empty blocks for request number `owner`, evicting cached ones if need be.

        Blocks come next to each other, and behind block `after`, where the pool allows: a runner
        can then read a sequence's keys as one view. `room` is how many the sequence may come to
        need in all; other sequences start outside of it while they can.
        Raises ValueError when fewer than `count` are available; nothing is taken then.
        """
        if count > self.num_available:
            raise ValueError(f"{count} blocks asked for, {self.num_available} available")
        while self._num_free < count:
            self._evict_oldest()
        taken: list[int] = []
        previous = after
        while len(taken) < count:
            block = self.num_blocks if previous is None else previous + 1
            if block == self.num_blocks or self._map[block] == _TAKEN:
                block = self._start_run(max(room, count) - len(taken), owner)
            self._map[block] = _TAKEN
            self._num_free -= 1
            self._references[block] = 1
            self._owners[block] = owner
            taken.append(block)
            previous = block
        return taken

    def release(self, block_table: Sequence[int], owner: int) -> None:
        """Drop one reference to each block; blocks whose content is known stay, as evictable.

        The tail goes first, so that it is evicted before the prefix that others may share.
        """
        self._drop_promise(owner)
        for block in reversed(block_table):
            self._references[block] -= 1
            if self._references[block] > 0:
                continue
            if self._references[block] < 0:
                raise AssertionError(f"block {block} was released twice")
            if self._hashes[block] is None:
                self._set_free(block)
            else:
                self._evictable[block] = None

    def register(self, block: int, digest: bytes) -> None:
        """Say that `block` is full and what identifies it. The first block with a hash keeps it."""
        if self.caching and digest not in self._cached:
            self._cached[digest] = block
            self._hashes[block] = digest

    def take_displaced(self) -> tuple[int, ...]:
        """Requests some of whose cached blocks were evicted or reused since the last call."""
        displaced = tuple(sorted(self._displaced))
        self._displaced.clear()
        return displaced

    def view(self) -> PoolView:
        """A frozen copy of every block's state."""
        return PoolView(tuple(self._references), tuple(self._owners), tuple(self._evictable))

    def check(self, block_tables: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless the pool agrees with itself and with all block tables."""
        counts = [0] * self.num_blocks
        for table in block_tables:
            assert len(set(table)) == len(table), "a block stands twice in one table"
            for block in table:
                counts[block] += 1
        assert counts == self._references, "reference counts differ from the block tables"
        num_free = self.num_blocks - self._map.count(_TAKEN)
        assert num_free == self._num_free, "the free count differs from the free blocks"
        for block in range(self.num_blocks):
            states = (
                self._references[block] > 0,
                block in self._evictable,
                self._map[block] != _TAKEN,
            )
            assert sum(states) == 1, f"block {block} is not in exactly one state: {states}"
            digest = self._hashes[block]
            assert digest is None or self._cached.get(digest) == block, "a hash names another block"
            assert not (states[1] and digest is None), "an evictable block has no known content"
        assert len(self._cached) == sum(h is not None for h in self._hashes), "a stale cache entry"

    def _start_run(self, length: int, owner: int) -> int:
        """First block of a free run of `length`, or of a half, a quarter ... of it; promises it."""
        self._drop_promise(owner)
        while length > 0:
            start = self._map.find(bytes([_FREE]) * length)
            if start >= 0:
                self._promised[owner] = range(start, start + length)
                self._map[start : start + length] = bytes([_PROMISED]) * length
                return start
            length //= 2
        return self._map.index(_PROMISED)

    def _drop_promise(self, owner: int) -> None:
        for block in self._promised.pop(owner, ()):
            if self._map[block] == _PROMISED:
                self._map[block] = _FREE

    def _evict_oldest(self) -> None:
        block = next(iter(self._evictable))
        del self._evictable[block]
        self.num_evictions += 1
        self._displaced.add(self._owners[block])
        self._set_free(block)

    def _set_free(self, block: int) -> None:
        digest = self._hashes[block]
        if digest is not None:
            del self._cached[digest]
            self._hashes[block] = None
        self._owners[block] = 0
        self._map[block] = _FREE
        self._num_free += 1
