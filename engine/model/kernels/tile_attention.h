// Attention of a step's tokens on the processor's tiles: prompts in blocks of queries of one head,
// single tokens in spans of their context.

#pragma once

#include <vector>

#include "decode.h"
#include "heads.h"
#include "prefill.h"
#include "team.h"

#if PHASESCOPE_AMX

namespace phasescope {

class TileAttention {
 public:
  using Number = c10::BFloat16;

  // qkv, out: a row a token of the step, its queries first. threads: as many as a team may have.
  TileAttention(const Heads& heads, const Sequences& sequences, Rows<Number> qkv, Rows<Number> out,
                int threads)
      : heads_(heads), sequences_(sequences), qkv_(qkv), out_(out) {
    for (int64_t r = 0; r < sequences.count; ++r)
      if (sequences.counts[r] > 1)
        plan_blocks(r);
      else
        plan_spans(r);
    // A pass of whole KV heads, or of part of one or two where these have too many queries.
    const int64_t widest = std::max<int64_t>(kQueries / heads.group(), 2) * heads.dim;
    const int64_t longest = blocks_.empty() ? kSpan : std::max(kSpan, sequences.longest);
    rooms_.assign(threads, TileRoom(widest, longest));
  }

  // On every thread of the team.
  void run(Team& team, int thread, const Pool<Number>& pool) {
    TileRoom& room = rooms_[thread];
    if (!prompts_.empty())
      team.share(size_of(turned_), 1, [&](int64_t i, int64_t) { turn(i, pool); });
    // Blocks first: they take longest, and threads that are done wait for the last.
    const int64_t blocks = size_of(blocks_);
    shape_tiles(kTileRows, kTileRows);
    team.share(blocks + size_of(spans_), 1, [&](int64_t i, int64_t) {
      if (i < blocks)
        attend(blocks_[i], pool, room);
      else
        attend(i - blocks, pool, room);
    });
    _tile_release();
    if (!several_) return;
    team.share(size_of(spans_), 1, [&](int64_t i, int64_t) {
      if (spans_[i].pieces > 1) join(i);
    });
  }

 private:
  // Some neighbouring tokens of a prompt, [first, first + count) of this step's, and one KV head.
  struct Block {
    int64_t request, head, first, count;
    int64_t values;  // which of the turned ones
  };

  // A token's pass over the part of its context that begins at `begin`. The pieces of a pass follow
  // each other; the first tells how many there are, the others 0.
  struct Span {
    int64_t request, begin, pieces;
    Pass pass;
  };

  template <typename Item>
  static int64_t size_of(const std::vector<Item>& items) {
    return static_cast<int64_t>(items.size());
  }

  void plan_blocks(int64_t r) {
    const int64_t count = sequences_.counts[r], values = size_of(turned_);
    prompts_.push_back(r);
    for (int64_t h = 0; h < heads_.kv_count; ++h)
      turned_.emplace_back(heads_.dim, sequences_.lengths[r]);
    for (int64_t first = 0; first < count; first += kQueries)
      for (int64_t h = 0; h < heads_.kv_count; ++h)
        blocks_.push_back({r, h, first, std::min(kQueries, count - first), values + h});
  }

  void plan_spans(int64_t r) {
    const int64_t group = heads_.group(), together = heads_of_pass(group);
    const int64_t pieces = (sequences_.lengths[r] + kSpan - 1) / kSpan;
    several_ |= pieces > 1;
    for (int64_t head = 0; head < heads_.count; head += together) {
      const Pass pass{head, std::min(together, heads_.count - head), group, heads_.dim};
      for (int64_t i = 0; i < pieces; ++i) {
        spans_.push_back({r, i * kSpan, i == 0 ? pieces : 0, pass});
        partials_.emplace_back(pass.count * pass.dim);
      }
    }
  }

  // What the token sees that is its request's last but `back`.
  Context context(int64_t r, int64_t back, int64_t window) const {
    return sequences_.context(r, back, heads_.kv_stride(), heads_.scale, window, 0.0);
  }

  void turn(int64_t i, const Pool<Number>& pool) {
    const int64_t r = prompts_[i / heads_.kv_count], h = i % heads_.kv_count;
    turned_[i].take(pool.values + h * heads_.dim, context(r, 0, 0), heads_.dim);
  }

  void attend(const Block& block, const Pool<Number>& pool, TileRoom& room) {
    const int64_t r = block.request, dim = heads_.dim, added = sequences_.counts[r];
    const Context seen = context(r, added - block.first - block.count, 0);
    const int64_t row = sequences_.rows[r] + block.first;
    const int64_t position = sequences_.lengths[r] - added + block.first;
    for (int64_t i = 0; i < heads_.group(); ++i) {
      const int64_t at = (block.head * heads_.group() + i) * dim;
      attend_block({qkv_[row] + at, qkv_.stride, block.count, position},
                   pool.keys + block.head * dim, turned_[block.values], seen, pool.window, dim,
                   room, out_[row] + at, out_.stride);
    }
  }

  void attend(int64_t i, const Pool<Number>& pool, TileRoom& room) {
    const Span& span = spans_[i];
    const Number* queries = qkv_[sequences_.rows[span.request]] + span.pass.first * heads_.dim;
    attend_span(span.pass, queries, pool.keys, pool.values, context(span.request, 0, pool.window),
                span.begin, span.begin + kSpan, room, partials_[i]);
    if (span.pieces == 1) join(i);
  }

  // Of the pass whose first piece is the i-th, all its pieces done.
  void join(int64_t i) {
    const Span& span = spans_[i];
    Number* out = out_[sequences_.rows[span.request]] + span.pass.first * heads_.dim;
    join_spans(span.pass, &partials_[i], span.pieces, out);
  }

  const Heads& heads_;
  const Sequences& sequences_;
  Rows<Number> qkv_, out_;
  bool several_ = false;              // whether some pass has more than one piece
  std::vector<int64_t> prompts_;      // the requests that go in blocks
  std::vector<TurnedValues> turned_;  // of each of these and KV head
  std::vector<Block> blocks_;
  std::vector<Span> spans_;
  std::vector<Partial> partials_;  // one a span
  std::vector<TileRoom> rooms_;    // one a thread
};

}  // namespace phasescope

#endif
