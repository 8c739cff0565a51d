// A text that comes with the program, to try models on: questions and answers, code, letters.

#pragma once

namespace outrider {

extern const char kSampleText[];  // built from assets/sample_text.txt

}  // namespace outrider
