// llama.cpp, or with IK_LLAMA defined ik_llama.cpp, as bench/peers/measure asks for it:
// llama-passes MODEL.gguf THREADS. Both run with the settings that were the fastest for one user:
// weights repacked, so not mapped; flash attention; with ik_llama.cpp also q, k and v merged.

#include <cstdio>
#include <cstdlib>

#include "llama.h"
#include "passes.h"

namespace {

constexpr int kContext = 1024, kBatch = 512;

void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "llama-passes: %s failed\n", what);
  std::exit(1);
}

class Engine {
 public:
  Engine(const char* path, int threads) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    model_params.progress_callback = [](float, void*) { return true; };  // the standard one prints
    llama_context_params params = llama_context_default_params();
    params.n_ctx = kContext;
    params.n_batch = kBatch;
    params.n_ubatch = kBatch;
    params.n_threads = threads;
    params.n_threads_batch = threads;
#ifdef IK_LLAMA
    model_params.use_mmap = false;
    model_params.repack_tensors = true;
    model_params.merge_qkv = true;
    params.flash_attn = true;
#else
    model_params.load_mode = LLAMA_LOAD_MODE_NONE;
    model_params.use_extra_bufts = true;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
#endif
    llama_model* model = llama_model_load_from_file(path, model_params);
    check(model != nullptr, "loading");
    context_ = llama_init_from_model(model, params);
    check(context_ != nullptr, "making a context");
    batch_ = llama_batch_init(kBatch, 0, 1);
  }

  void pass(int n_tokens, int position, bool all_logits) {
    batch_.n_tokens = n_tokens;
    for (int i = 0; i < n_tokens; ++i) {
      batch_.token[i] = 100 + (position + i) * 37 % 20000;
      batch_.pos[i] = position + i;
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = 0;
      batch_.logits[i] = all_logits || i + 1 == n_tokens;
    }
    check(llama_decode(context_, batch_) == 0, "a pass");
    llama_synchronize(context_);
    check(llama_get_logits_ith(context_, n_tokens - 1) != nullptr, "reading logits");
  }

  void clear() {
#ifdef IK_LLAMA
    llama_kv_cache_seq_rm(context_, 0, 0, -1);
#else
    llama_memory_seq_rm(llama_get_memory(context_), 0, 0, -1);
#endif
  }

 private:
  llama_context* context_;
  llama_batch batch_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: llama-passes MODEL.gguf THREADS\n");
    return 2;
  }
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  Engine engine(argv[1], std::atoi(argv[2]));
  serve_passes(engine);
}
