// Submits the answers that a request asks for to the scheduler, and replies with what comes of
// them.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "http/http.h"
#include "server/answer_form.h"
#include "server/served_model.h"

namespace outrider {

struct Asked {
  std::vector<AnswerRequest> answers;
  std::unique_ptr<AnswerForm> form = nullptr;
  bool stream = false;
  std::string path = {};       // of the request: errors have its shape
  std::string heartbeat = {};  // of a stream
};

// Submits the answers and returns; they go to the client as they come, and end when it is gone. A
// stream begins once all are submitted. RequestError if one cannot be: 429 if the scheduler's queue
// is full, or 400.
void give_answers(const ServedModel& model, Asked asked, std::shared_ptr<HttpReply> reply);

}  // namespace outrider
