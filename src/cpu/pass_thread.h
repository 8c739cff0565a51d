// What each thread of a pass does below the level of a layer: it takes pieces of products and rows,
// waits for the other threads, and reports where its time went.

#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "base/threads.h"
#include "cpu/activations.h"
#include "cpu/kernels/kernels.h"
#include "cpu/pass_timer.h"
#include "cpu/product_pieces.h"

namespace outrider {

class PassThread {
 public:
  // n_rows: of the pass.
  PassThread(ThreadTeam& team, int thread, std::size_t n_rows, const ProductKernels& kernels,
             ThreadMemory& memory, PassTimer& timer)
      : team_(team),
        thread_(thread),
        n_rows_(n_rows),
        kernels_(kernels),
        memory_(memory),
        timer_(timer) {
    // The caller's thread prepared the pass; the others were not awake yet.
    thread == 0 ? done(PassPart::plan) : timer_.waited(thread, PassPart::plan);
  }

  int index() const { return thread_; }
  // Room for outputs of `gate` and `up`.
  std::array<MatrixView<float>, 2> gate_and_up(std::size_t rows, std::size_t columns) const {
    const std::span<float> both = memory_.gate_and_up;
    return {MatrixView<float>(both.data(), rows, columns),
            MatrixView<float>(both.data() + both.size() / 2, rows, columns)};
  }

  // This thread's even share of n items.
  Range share_of(std::size_t n, std::size_t grain = 1) const {
    return share(n, thread_, team_.size(), grain);
  }

  // What this thread did since the last call was a part of `part`.
  void done(PassPart part) {
    last_part_ = part;
    timer_.worked(thread_, part);
  }

  // Waits until all threads are here.
  void barrier() {
    team_.barrier(soon_);
    timer_.waited(thread_, last_part_);
  }

  // Once all threads are here, calls f(row) for every row of the pass, each on one thread, and
  // waits for all of that. A single row is left to the thread that comes last: there is nothing to
  // share, and a barrier is saved.
  template <typename F>
  void for_each_row(PassPart part, const F& f) {
    if (n_rows_ > 1) {
      barrier();
      const Range own = share_of(n_rows_);
      for (std::size_t row = own.begin; row < own.end; ++row) f(row);
      done(part);
      barrier();
    } else {
      const PassPart before = last_part_;
      const auto only_row = [&] {
        f(0);
        done(part);
      };
      team_.barrier(only_row, soon_);
      timer_.waited(thread_, before);
    }
  }

  // Names the panels that this thread will multiply first after the next barrier. It prefetches
  // some of them while it waits there.
  void announce(const PackedMatrix& weights, Range panels) {
    constexpr std::size_t kPrefetchedMax = 256 << 10;
    soon_ = {weights.panel(panels.begin),
             std::min(kPrefetchedMax, (panels.end - panels.begin) * weights.panel_bytes)};
  }
  void announce(const PackedMatrix& weights, std::size_t grain = 1) {
    announce(weights, share_of(weights.panels(), grain));
  }

  // Cuts n_rows rows into chunks that are small enough for products with each of `weights`. Threads
  // take pieces of a chunk and at most piece_max of n_items items, until together they have called
  // f(rows, items) for all.
  template <typename F>
  void share_out(std::initializer_list<const PackedMatrix*> weights, std::size_t n_rows,
                 std::size_t n_items, std::size_t piece_max, const F& f) {
    std::size_t chunks = 0;
    for (const PackedMatrix* each : weights) chunks = std::max(chunks, n_chunks(n_rows, *each));
    memory_.n_forms = 0;
    team_.share_out(thread_, chunks * n_items, piece_max, [&](Range run) {
      while (run.begin < run.end) {
        const std::size_t chunk = run.begin / n_items, before = chunk * n_items;
        const std::size_t end = std::min(run.end, before + n_items);
        f(share(n_rows, chunk, chunks, kChunkGrain), Range{run.begin - before, end - before});
        run.begin = end;
      }
    });
  }

  // For a piece of what is shared out, out = some panels of `weights` times some rows of the input.
  // All products that are shared out together have the same input.
  void multiply(const PackedMatrix& weights, const ProductInput& input, Range rows, Range panels,
                MatrixView<float> out) {
    kernels_.product(weights, arranged(weights, input, rows), panels, out);
  }

  // Shares out the product with these rows of the input, and calls finish(rows, columns) for what a
  // thread has computed.
  template <typename F>
  void multiply_rows(const PackedMatrix& weights, const ProductInput& input, Range of,
                     MatrixView<float> out, const F& finish) {
    const std::size_t piece_max = panels_per_piece(weights), n_rows = of.end - of.begin;
    share_out({&weights}, n_rows, weights.panels(), piece_max, [&](Range piece, Range panels) {
      const Range rows = {of.begin + piece.begin, of.begin + piece.end};
      const Range columns = {panels.begin * kPanel, std::min(panels.end * kPanel, weights.outputs)};
      multiply(weights, input, rows, panels, out.from(rows.begin, columns.begin));
      finish(rows, columns);
    });
  }
  // The same with the first n_rows rows.
  void multiply_all(const PackedMatrix& weights, const ProductInput& input, std::size_t n_rows,
                    MatrixView<float> out) {
    multiply_rows(weights, input, {0, n_rows}, out, [](Range, Range) {});
  }

 private:
  // A chunk of rows as products with `weights` read it: kept until other rows or other products
  // come.
  const ArrangedRows& arranged(const PackedMatrix& weights, const ProductInput& input, Range rows) {
    auto& forms = memory_.forms;
    const auto end = forms.begin() + memory_.n_forms;
    auto form = std::find_if(forms.begin(), end, [&](const ThreadMemory::Form& each) {
      return each.type == weights.type;
    });
    if (form != end && form->rows.rows.begin == rows.begin) return form->rows;
    if (form == end && memory_.n_forms < forms.size()) ++memory_.n_forms;
    if (form == forms.end()) --form;
    form->type = weights.type;
    kernels_.arrange(weights, input, rows, form->rows);
    return form->rows;
  }

  ThreadTeam& team_;
  const int thread_;
  const std::size_t n_rows_;
  const ProductKernels& kernels_;
  ThreadMemory& memory_;
  PassTimer& timer_;
  PassPart last_part_ = PassPart::plan;
  std::span<const std::byte> soon_;  // the weights that this thread will read next
};

}  // namespace outrider
