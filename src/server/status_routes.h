// Routes that tell how the server is: /health, /v1/health, /version, /props, /slots, /metrics.
// Shapes are llama-server's (/version: vLLM's), as far as clients of these read them; none shows
// anything of a request but counts.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "http/http.h"
#include "numerics/choice.h"
#include "speculation/verifier.h"

namespace outrider {

enum class ServerState { loading, ready, draining };

// What /props says of the model and its settings.
struct ServerProperties {
  std::string model_name;
  std::string model_path;  // or as much of it as clients may know
  std::string chat_template = {};
  std::string bos_token = {}, eos_token = {};
  int context = 0;      // tokens of prompt and answer together
  int n_running = 0;    // answers at once
  bool drafts = false;  // whether there are drafters
  // Of a request that says nothing.
  Filters filters = {};
  std::string verifier{kVerifierNames[0]};
};

// All may be called from several threads, and must neither block nor throw.
struct StatusSources {
  std::string version;  // of the program
  std::function<ServerState()> state;
  // Called unless the server is loading.
  std::function<ServerProperties()> properties = {};
  std::function<SchedulerStatus()> status = {};
  std::function<std::string(const SchedulerStatus&)> metrics = {};  // Metrics::text
};

// While the server loads, all but /version answer with status 503, and while it drains /health
// does.
std::vector<HttpRoute> status_routes(StatusSources sources);

}  // namespace outrider
