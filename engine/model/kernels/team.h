// Threads that go through the phases of one computation together.
//
// An OpenMP loop each phase would put the threads to sleep and wake them again, hundreds of times
// a step. Here they wait for each other awake for a moment, and asleep after it, as the cores may
// be wanted by others. Work is handed out in pieces, so that a thread whose core is shared does
// less of it.

#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace phasescope {

class Team {
 public:
  // Calls f(team, thread) on up to `threads` threads, numbered from 0; returns when all are done.
  // f must not throw: the others would wait for it.
  template <typename F>
  static void run(int threads, F&& f) {
    Team team;
#pragma omp parallel num_threads(threads)
    {
#pragma omp single
      team.size_ = omp_get_num_threads();
      f(team, omp_get_thread_num());
    }
  }

  // Calls f(begin, end) for pieces of [0, count), each on some thread, and returns on all threads
  // when all pieces are done. Every thread must make the same calls in the same order.
  template <typename F>
  void share(int64_t count, int64_t piece, F&& f) {
    for (int64_t begin; (begin = next_.fetch_add(piece, std::memory_order_relaxed)) < count;)
      f(begin, std::min(begin + piece, count));
    wait();
  }

  int64_t size() const { return size_; }

 private:
  static constexpr int kAwake = 400;  // looks; some ten to thirty microseconds

  void wait() {
    const uint32_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      // In order before the look for sleepers in notify_all, which would miss one otherwise.
      round_.store(round + 1, std::memory_order_seq_cst);
      round_.notify_all();
      return;
    }
    for (int i = 0; i < kAwake; ++i) {
      if (round_.load(std::memory_order_acquire) != round) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    round_.wait(round, std::memory_order_acquire);
  }

  int size_ = 1;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

}  // namespace phasescope
