#include "text/stream_decoder.h"

#include <algorithm>

#include "base/utf8.h"

namespace outrider {

std::string StreamDecoder::push(Token token) {
  waiting_ += tokenizer_->bytes(token, std::ranges::binary_search(shown_, token));
  const std::size_t n_complete = waiting_.size() - unfinished_suffix(waiting_);
  std::string complete = well_formed(std::string_view(waiting_).substr(0, n_complete));
  waiting_.erase(0, n_complete);
  return complete;
}

std::string StreamDecoder::finish() {
  std::string rest = well_formed(waiting_);
  waiting_.clear();
  return rest;
}

}  // namespace outrider
