// Attention of all of a step's tokens, whatever mix of prompts and single tokens it has.
//
// On the processor's tiles where they can be used; where not, each token and KV head is a piece of
// work of its own.

#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "attention.h"
#include "heads.h"
#include "matmul.h"
#include "team.h"
#include "tile_attention.h"

namespace phasescope {

// Attention of tokens whose keys and values are in the pool already.
template <typename T>
class Attention {
 public:
  // qkv, out: a row a token of the step, its queries first. threads: as many as a team may have.
  Attention(const Heads& heads, const Sequences& sequences, Rows<T> qkv, Rows<T> out, int threads)
      : heads_(heads), sequences_(sequences), qkv_(qkv), out_(out) {
#if PHASESCOPE_AMX
    if constexpr (!std::is_same_v<T, float>)
      if (may_use_tiles() && fills_tiles(heads.dim, sequences.block_size) && heads.softcap == 0) {
        tiles_.emplace(heads, sequences, qkv, out, threads);
        return;
      }
#endif
    for (int64_t r = 0; r < sequences.count; ++r)
      for (int64_t token = 0; token < sequences.counts[r]; ++token) tokens_.push_back({r, token});
    scores_.assign(threads, Numbers<float>(room_for_scores(sequences.longest, heads.dim)));
  }

  // On every thread of the team.
  void run(Team& team, int thread, const Pool<T>& pool) {
#if PHASESCOPE_AMX
    if constexpr (!std::is_same_v<T, float>)
      if (tiles_) return tiles_->run(team, thread, pool);
#endif
    const int64_t pieces = static_cast<int64_t>(tokens_.size()) * heads_.kv_count;
    team.share(pieces, 1, [&](int64_t i, int64_t) {
      attend(tokens_[i / heads_.kv_count], i % heads_.kv_count, pool, scores_[thread].data());
    });
  }

 private:
  struct Token {
    int64_t request, index;  // of those that the request adds
  };

  void attend(const Token& token, int64_t head, const Pool<T>& pool, float* scores) {
    const int64_t r = token.request, dim = heads_.dim, group = heads_.group();
    const int64_t row = sequences_.rows[r] + token.index, at = head * group * dim;
    const Context context =
        sequences_.context(r, sequences_.counts[r] - token.index - 1, heads_.kv_stride(),
                           heads_.scale, pool.window, heads_.softcap);
    attend_head(qkv_[row] + at, pool.keys + head * dim, pool.values + head * dim, context, group,
                dim, scores, out_[row] + at);
  }

  const Heads& heads_;
  const Sequences& sequences_;
  Rows<T> qkv_, out_;
  std::vector<Token> tokens_;
  std::vector<Numbers<float>> scores_;  // one a thread
#if PHASESCOPE_AMX
  std::optional<TileAttention> tiles_;
#endif
};

}  // namespace phasescope
