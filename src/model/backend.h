// The interface to a device: a model loaded with its cache, and what the engine and drafters ask of
// it. cpu/ implements it, and fake_backend.h does for tests. Not thread-safe: one thread at a time
// calls one backend. A call that breaks a rule below fails a CHECK.
//
// Every call throws Error or std::bad_alloc if memory for it cannot be had. The backend stays
// usable: what is committed stays, and what the call was to change is as before, except where
// forward() says otherwise.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/token.h"
#include "cache/ids.h"
#include "formats/tensor_type.h"
#include "model/model.h"
#include "model/pass_profile.h"
#include "numerics/attention.h"
#include "numerics/choice.h"

namespace outrider {

// What a row continues.
struct CommittedEnd {};  // the last committed position, or the beginning of an empty sequence
struct EarlierRow {
  int row;
};  // of the same batch and sequence
using Parent = std::variant<CommittedEnd, EarlierRow, SlotId>;

// The state that a head's row goes on from (EagleInput in model/spec.h).
struct KeptFeatures {};  // the features of the last committed position; zeros if there is none
struct TargetRow {
  int row;
};  // the features of a row of the target's last pass, of the same sequence
struct BlockRow {
  int row;
  // Of a head that remembers tokens: its memory before this one (kMemoryTap); empty: zeros.
  std::span<const float> memory = {};
};  // what a row of the head's last pass over blocks says, which the token completes (BlockInput)
using StateBefore =
    std::variant<KeptFeatures, TargetRow, BlockRow, std::span<const float>>;  // or its own

// One token to compute. It attends to the committed positions and to its ancestors, nothing else,
// so its logits have the bits that plain decoding of its path would give.
struct Row {
  SequenceId sequence;
  Token token;
  int position = 0;  // its parent's + 1; after the committed end: committed(sequence)
  Parent parent = CommittedEnd{};
  bool wants_logits = false;
  // Of a head:
  StateBefore before = KeptFeatures{};
  // The slot of a row of the target, which the head's layers write, too; nothing: a new one.
  std::optional<SlotId> slot = {};
  // Of a block (BlockInput in model/spec.h): its last row in the batch, whose path goes through
  // this one.
  std::optional<int> block_end = {};
};

struct ForwardOptions {
  // Layers to run, ascending; nothing: all. A row's parent must have been written by at least
  // these.
  std::optional<std::vector<int>> layers = {};
  // What is kept for read_tap (kEmbeddingTap, kMemoryTap in model/spec.h); layers of those that
  // run.
  std::vector<int> taps = {};
  // If set, where this pass's time went is added to it; a device may leave it empty.
  PassProfile* profile = nullptr;
};

// What a forward pass left on the device: logits, taps, and a slot per row. Valid until the next
// forward(), add_outputs() or remove_added_outputs() of its backend.
struct Pass {
  std::vector<SlotId> slots;  // [rows], in row order
  std::uint64_t number = 0;   // set by the backend, which refuses a pass that is over
  // Rows whose slots a head's layers have written already: see Backend::truncate.
  std::vector<int> completed = {};
};

struct HeadToLoad;

struct LoadOptions {
  int context = 4096;   // positions a sequence can have, at most 2^20
  int n_sequences = 1;  // alive at once, forks counted
  int n_slots = 0;      // scratch rows a sequence may hold; 0: batch_rows
  // Pages of kPagePositions that all sequences have together, scratch among them; 0: as many as
  // they need at their longest.
  int n_pages = 0;
  bool shares_texts = false;  // whether reuse_prefix() finds what other sequences have computed
  int batch_rows = 512;       // of one forward pass
  CacheType cache_type = CacheType::f16;
  int n_threads = 1;
  // For draft models, whose proposals the target checks: matrices whose weights would take more
  // bits in memory are encoded in this type, or as encodable_type() says (numerics/encode.h).
  std::optional<TensorType> requantize = {};
  // For draft models: the tokens that have logits, ascending, each once; all others are at -inf.
  // Empty: all tokens. Zhao et al. 2025, arXiv:2502.14856 (FR-Spec).
  std::vector<Token> output_ids = {};
  // For draft models of another vocabulary: what their choices call these tokens, in the order of
  // output_ids, each name once and less than n_names, the size of that vocabulary. Rows keep the
  // model's own tokens. Empty: the same.
  std::vector<Token> output_names = {};
  int n_names = 0;
  // How many more tokens add_outputs() may add; only with output_ids, without names.
  int output_room = 0;
  // What Backend::tuning() gave for this model on this machine, which saves measuring it again, up
  // to 0.3 s. Anything else is as if empty.
  std::string tuning = {};
  // A head that is loaded beside the model (Backend::head).
  std::shared_ptr<const HeadToLoad> head = {};
};

// A learned head with its own options, of which those count that say how weights are loaded:
// requantize, and those of outputs.
struct HeadToLoad {
  Model model;  // spec.eagle, spec.medusa or spec.block is set, for this target
  LoadOptions options = {};
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const ModelSpec& spec() const = 0;
  virtual const LoadOptions& options() const = 0;  // with defaults filled in
  // What suits this machine, as measured when the model was loaded and since then (on CPUs the
  // prefetch pattern): a line to keep for LoadOptions::tuning. It changes the speed of passes, not
  // their results. Empty: nothing to keep.
  virtual std::string tuning() const { return {}; }

  // Rows of several sequences come in any order, parents before children. At most batch_rows rows.
  // If it throws, all scratch of the sequences in the batch is gone, as after discard(), and the
  // last pass is over.
  virtual Pass forward(std::span<const Row> rows, const ForwardOptions& options = {}) = 0;

  // A choice per request, in order.
  virtual std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) = 0;

  // What forward_options.taps[tap] names, for one row: [embedding].
  virtual std::vector<float> read_tap(const Pass& pass, int tap, int row) const = 0;
  // BlockInput::has_confidence; nothing where there is none.
  virtual std::optional<float> read_confidence(const Pass&, int /*row*/) const { return {}; }

  // Gives these tokens logits from the next forward pass on. Tokens that have some, that are beyond
  // the vocabulary or beyond output_room are ignored. If any is added, the last pass is over.
  virtual void add_outputs(std::span<const Token> tokens) = 0;
  // Takes away the logits that add_outputs() gave. If it gave any, the last pass is over.
  virtual void remove_added_outputs() = 0;

  // The head that was loaded with the model; null: none. It is a backend whose sequences are this
  // one's: of those that use it, forward() writes the head's keys and values into slots that the
  // model's last pass has written, or into new ones, which are scratch; the calls of the cache are
  // this backend's. Medusa's heads have no keys and values, and rows of theirs no slots and tokens:
  // a row at position committed + h is head h's. They come ordered by head, all with logits. Of a
  // head of BlockInput a pass has rows of the text alone, with slots and with the TargetRow that
  // each is; or blocks alone, with new slots; or rows that complete those of the last pass over
  // blocks (BlockRow), which wanted logits, with the token before the one that is guessed, and
  // without slots. The features of a model's pass can be read (TargetRow) until its next forward
  // pass.
  virtual Backend* head() { return nullptr; }
  // Loads the head anew, as read or encoded in another way. It has as many layers as before, and no
  // sequence lives. Throws as BackendFactory::load() does, and then the target has no head.
  virtual void replace_head(const HeadToLoad& /*head*/) {}
  // Of an empty sequence: whether it uses the head. Its rows must then be written by the head
  // before they are committed. At first none does. Sequences that do and those that do not share
  // no pages.
  virtual void use_head(SequenceId, bool /*uses*/) {}

  // The cache (cache/cache.h). A new sequence is empty. It may share pages with others of its
  // scope.
  virtual SequenceId begin(CacheScope scope = {}) = 0;
  virtual void end(SequenceId sequence) = 0;
  // Drops scratch, then commits what is cached of `tokens` in the sequence's scope (glossary:
  // prefix hit), whole pages only. `tokens` begins with the committed ones. Returns
  // committed(sequence).
  virtual int reuse_prefix(SequenceId sequence, std::span<const Token> tokens) = 0;
  // Pages that no sequence uses. A forward pass over n_rows rows of the sequence and a commit of
  // n_committed positions take at most pages_wanted(). If n_pages is less than all sequences need,
  // the caller makes sure that so many are free.
  virtual int free_pages() const = 0;
  // The cached ones among them.
  virtual int cached_pages() const = 0;
  virtual int pages_wanted(SequenceId sequence, int n_rows, int n_committed) const = 0;
  // A second sequence with the same history; scratch is not copied.
  virtual SequenceId fork(SequenceId sequence) = 0;
  // Makes `path`, a parent-to-child chain that starts at the committed end and was written by all
  // layers, into history; drops all other scratch of the sequence.
  virtual void commit(SequenceId sequence, std::span<const SlotId> path) = 0;
  virtual void discard(SequenceId sequence) = 0;
  // Keeps the first `length` committed positions; drops scratch. Of a sequence that uses a head one
  // position less where the features of the last one are not kept, inside a page: the model
  // computes it again, and Pass::completed says that the head need not.
  virtual void truncate(SequenceId sequence, int length) = 0;
  virtual int committed(SequenceId sequence) const = 0;
  // Scratch rows that the sequence may still write before its next commit, discard or truncate.
  virtual int free_slots(SequenceId sequence) const = 0;
};

// A sequence that ends with its owner. The backend must outlive it.
class OwnedSequence {
 public:
  explicit OwnedSequence(Backend& backend, CacheScope scope = {})
      : backend_(backend), id_(backend.begin(scope)) {}
  ~OwnedSequence() { backend_.end(id_); }
  OwnedSequence(const OwnedSequence&) = delete;
  OwnedSequence& operator=(const OwnedSequence&) = delete;

  SequenceId id() const { return id_; }

 private:
  Backend& backend_;
  const SequenceId id_;
};

// What loading a model takes, in bytes.
struct MemoryNeed {
  std::size_t weights = 0;  // packed
  std::size_t cache = 0;    // all pages
  std::size_t working = 0;  // activations and tables
  std::size_t total() const { return weights + cache + working; }
};

// Told how much is loaded, from 0 to 1, on the thread that loads; returns whether to go on. Must
// not throw.
using LoadProgress = std::function<bool(double)>;

// Loads models onto one kind of device; which one is chosen per model.
class BackendFactory {
 public:
  virtual ~BackendFactory() = default;

  // Device and instruction set, as reports name them: "avx512". Throws Error if what the
  // environment asks for is not there.
  virtual std::string name() const = 0;
  virtual MemoryNeed memory_need(const Model& model, const LoadOptions& options) const = 0;
  // The model's checkpoint stays alive with the backend. Throws Error or std::bad_alloc if there is
  // not enough memory, and Error("interrupted") if `progress` said so.
  virtual std::unique_ptr<Backend> load(const Model& model, const LoadOptions& options,
                                        const LoadProgress& progress) const = 0;
};

}  // namespace outrider
