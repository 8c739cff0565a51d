// Requests as other people's programs send them, by their documentation, their sources and what
// their users report: each gets what its program expects.

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "server/anthropic_routes.h"
#include "server/fake_served_model.h"
#include "server/openai_routes.h"
#include "server/token_routes.h"

namespace outrider {
namespace {

constexpr const char* kChatPath = "/v1/chat/completions";
constexpr const char* kCompletionPath = "/v1/completions";
constexpr const char* kMessagesPath = "/v1/messages";

struct ServedClients : FakeScheduler {
  std::shared_ptr<FakeReply> post(const std::string& path, const std::string& body) {
    std::vector<HttpRoute> routes = openai_routes(model());
    for (const auto& more : {anthropic_routes(model()), token_routes(model())})
      routes.insert(routes.end(), more.begin(), more.end());
    return ask(routes, {.method = "POST", .path = path, .query = "", .headers = {}, .body = body});
  }
};

struct ClientCase {
  const char *client, *path;
  std::string body;
  const char* refused_field = nullptr;  // null: it gets an answer
  // Of the request that the scheduler gets.
  std::function<bool(const Request&)> is_right = [](const Request&) { return true; };
};

const std::vector<ClientCase>& client_cases() {
  using R = const Request&;
  static const std::vector<ClientCase> cases = {
      {"Open WebUI, a chat", kChatPath,
       R"({"stream":true,"model":"fake","messages":[{"role":"system","content":"You help."},
           {"role":"user","content":"hi"},{"role":"assistant","content":"Hello","sources":[]},
           {"role":"user","content":"more","id":"0a1b","timestamp":1732800000}],
           "stream_options":{"include_usage":true},"temperature":0.8,"max_tokens":1000,
           "stop":["<|im_end|>"],"seed":7,"chat_id":"c","session_id":"s","id":"m",
           "features":{"web_search":false},"variables":{"{{USER_NAME}}":"Ada"},
           "background_tasks":{"title_generation":true}})",
       nullptr, [](R r) { return r.stop.n_predict == 1000 && r.sampling.seed == 7; }},
      {"Open WebUI, settings for Ollama", kChatPath,
       R"({"stream":false,"model":"fake","messages":[{"role":"user","content":"hi"}],
           "num_ctx":8192,"num_batch":512,"num_gpu":99,"num_thread":8,"num_keep":24,"use_mmap":true,
           "keep_alive":"5m","top_k":40,"repeat_last_n":64,"tfs_z":1,"mirostat":0,
           "mirostat_eta":0.1,"mirostat_tau":5})",
       nullptr, [](R r) { return r.sampling.repeat_last_n == 64; }},
      {"Open WebUI, Mirostat", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"mirostat":2,
           "mirostat_eta":0.1})",
       "mirostat"},
      {"Open WebUI, a title", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"stream":false,
           "max_completion_tokens":1000,"metadata":{"task":"title_generation","chat_id":"c"}})",
       nullptr, [](R r) { return r.stop.n_predict == 1000; }},
      {"Continue, a chat", kChatPath,
       R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text",
           "text":"hi"}]}],"model":"fake","max_tokens":4096,"temperature":0.2,"stream":true,
           "stop":["<|im_start|>","<|im_end|>"],"parallel_tool_calls":false,
           "tools":[{"type":"function","displayTitle":"Read File","readonly":true,"function":{
           "name":"read_file","description":"d","parameters":{"type":"object","properties":{}}}}]})",
       nullptr, [](R r) { return r.stop.texts.size() == 2; }},
      {"Continue, completion of code", kCompletionPath,
       R"({"model":"fake","prompt":"<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>","max_tokens":256,
           "temperature":0.01,"stream":true,"stop":["<|endoftext|>","<|fim_prefix|>",
           "<|fim_middle|>","<|fim_suffix|>","<|fim_pad|>","<|repo_name|>","<|file_sep|>",
           "<|im_start|>","<|im_end|>","/src/","#- coding: utf-8","```"]})",
       nullptr, [](R r) { return r.stop.texts.size() == 12; }},
      {"Continue, completion with a suffix", kCompletionPath,
       R"({"model":"fake","prompt":"a","suffix":"b","max_tokens":256,"stream":true})", "suffix"},
      {"aider", kChatPath,
       R"({"messages":[{"role":"system","content":"Act as an expert."},{"role":"user",
           "content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]},
           {"role":"assistant","content":"Ok."},{"role":"user","content":"more"}],
           "model":"fake","temperature":0,"stream":true,"stream_options":{"include_usage":true}})",
       nullptr, [](R r) { return r.sampling.filters.temperature == 0; }},
      {"aider, reasoning", kChatPath,
       R"({"messages":[{"role":"user","content":"hi"}],"model":"fake","stream":true,
           "reasoning_effort":"none","extra_headers":{},"drop_params":true})"},
      {"Claude Code", kMessagesPath,
       R"({"model":"fake","max_tokens":32000,"stream":true,"temperature":1,
           "system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=1;"},
             {"type":"text","text":"You are Claude Code.","cache_control":{"type":"ephemeral",
             "ttl":"1h","scope":"global"}}],
           "messages":[{"role":"user","content":[{"type":"text","text":"<system-reminder>x"},
             {"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]},
             {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},
               {"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls"},
                "caller":{"type":"direct"}}]},
             {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1",
               "content":"a","is_error":false,"cache_control":{"type":"ephemeral"}}]}],
           "tools":[{"name":"Bash","description":"d","input_schema":{"type":"object",
             "$schema":"http://json-schema.org/draft-07/schema#","properties":{"command":{
             "type":"string"}},"additionalProperties":false},"eager_input_streaming":true}],
           "metadata":{"user_id":"user_1_account__session_2"},
           "thinking":{"type":"adaptive","display":"summarized"},
           "output_config":{"effort":"medium"},
           "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
           "no_one_knows":1})",
       nullptr, [](R r) { return r.stop.n_predict == 32000; }},
      {"Claude Code, counting", "/v1/messages/count_tokens",
       R"({"model":"fake","messages":[{"role":"user","content":"foo"}],"tools":[{"name":"Bash",
           "input_schema":{"type":"object"}}],"betas":["x"]})"},
      {"Claude Code, its title", kMessagesPath,
       R"({"model":"fake","max_tokens":512,"messages":[{"role":"user","content":"hi"}],
           "system":[{"type":"text","text":"Title."}],"output_config":{"format":{
           "type":"json_schema","schema":{"type":"object"}}}})",
       "output_config.format"},
      {"LM Studio's example", kChatPath,
       R"({"model":"fake","messages":[{"role":"system","content":"Always answer in rhymes."},
           {"role":"user","content":"hi"}],"temperature":0.7,"max_tokens":-1,"stream":false})",
       nullptr, [](R r) { return r.stop.n_predict == -1; }},
      {"LM Studio's example, text", kCompletionPath,
       R"({"model":"fake","prompt":"hi","temperature":0.7,"max_tokens":-1,"stream":true,
           "stop":"\n"})",
       nullptr, [](R r) { return r.stop.n_predict == -1; }},
      {"llama.cpp's page", kChatPath,
       R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}],
           "stream":true,"return_progress":true,"reasoning_format":"auto","temperature":0.8,
           "max_tokens":-1,"dynatemp_range":0,"dynatemp_exponent":1,"top_k":40,"top_p":0.95,
           "min_p":0.05,"xtc_probability":0,"xtc_threshold":0.1,"typ_p":1,"repeat_last_n":64,
           "repeat_penalty":1,"presence_penalty":0,"frequency_penalty":0,"dry_multiplier":0,
           "dry_base":1.75,"dry_allowed_length":2,"dry_penalty_last_n":-1,"samplers":["penalties",
           "dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc","temperature"],
           "backend_sampling":false,"timings_per_token":true})",
       nullptr, [](R r) { return r.stop.n_predict == -1 && r.sampling.filters.top_k == 40; }},
      {"llama.cpp's page of old", kChatPath,
       R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"cache_prompt":true,
           "samplers":"edkypmxt","temperature":0.8,"dynatemp_range":0,"dynatemp_exponent":1,
           "typical_p":1,"max_tokens":-1,"timings_per_token":false})"},
      {"llama.cpp's page, DRY", kChatPath,
       R"({"messages":[{"role":"user","content":"hi"}],"dry_multiplier":0.8})", "dry_multiplier"},
      {"llama.cpp's page, an order of its own", kChatPath,
       R"({"messages":[{"role":"user","content":"hi"}],"samplers":["temperature","top_k"]})",
       "samplers"},
      {"llama.cpp's old parameters", kCompletionPath,
       R"({"stream":true,"n_predict":-1,"temperature":0.7,"stop":["</s>","Llama:","User:"],
           "repeat_last_n":256,"repeat_penalty":1.18,"top_k":40,"top_p":0.5,"tfs_z":1,
           "typical_p":1,"presence_penalty":0,"frequency_penalty":0,"mirostat":0,"mirostat_tau":5,
           "mirostat_eta":0.1,"grammar":"","n_probs":0,"min_keep":0,"image_data":[],
           "cache_prompt":true,"slot_id":0,"id_slot":-1,"logit_bias":[],"prompt":"hi"})"},
      {"vLLM's defaults", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"logprobs":false,
           "top_logprobs":0,"n":1,"best_of":null,"use_beam_search":false,"top_k":-1,"min_p":0.0,
           "repetition_penalty":1.0,"length_penalty":1.0,"stop_token_ids":[],
           "include_stop_str_in_output":false,"ignore_eos":false,"min_tokens":0,
           "skip_special_tokens":true,"spaces_between_special_tokens":true,
           "truncate_prompt_tokens":null,"prompt_logprobs":null,"allowed_token_ids":null,
           "bad_words":[],"echo":false,"add_generation_prompt":true,
           "continue_final_message":false,"add_special_tokens":false,"documents":null,
           "include_reasoning":true,"priority":0,"return_tokens_as_token_ids":false,
           "return_token_ids":false,"vllm_xargs":{},"tool_choice":"none"})",
       nullptr, [](R r) { return !r.options.n_logprobs && r.sampling.filters.top_k == -1; }},
      {"vLLM, stops by id", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"stop_token_ids":[2]})",
       "stop_token_ids"},
      {"LangChain", kChatPath,
       R"({"messages":[{"content":"hi","role":"user"},{"content":null,"role":"assistant",
           "tool_calls":[{"type":"function","id":"call_1","function":{"name":"f",
           "arguments":"{\"a\": 1}"}}]},{"content":"3","role":"tool","tool_call_id":"call_1"}],
           "model":"fake","n":1,"stream":false,"temperature":0.7,"tools":[{"type":"function",
           "function":{"name":"f","description":"d","parameters":{"properties":{"a":{
           "type":"integer"}},"required":["a"],"type":"object"}}}]})"},
      {"LangChain, structured output", kChatPath,
       R"({"messages":[{"content":"hi","role":"user"}],"model":"fake","response_format":{
           "type":"json_schema","json_schema":{"name":"A","schema":{},"strict":true}}})",
       "response_format"},
      {"LibreChat", kChatPath,
       R"({"model":"fake","user":"65f0","stream":true,"messages":[{"role":"user","content":"hi"}],
           "temperature":1,"top_p":1,"presence_penalty":0,"frequency_penalty":0,"stop":[],
           "promptPrefix":null,"iconURL":"x"})"},
      {"Cline", kChatPath,
       R"({"model":"fake","messages":[{"role":"system","content":"s"},{"role":"user","content":[
           {"type":"text","text":"hi"},{"type":"text","text":"<environment_details>"}]}],
           "temperature":0,"stream":true,"stream_options":{"include_usage":true}})"},
      {"Cline, a picture", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":[{"type":"image_url","image_url":{
           "url":"data:image/png;base64,AA"}}]}]})",
       "messages[0].content[0].type"},
      {"CodeCompanion", kChatPath,
       R"({"model":"fake","stream":true,"messages":[{"content":"s","role":"system","id":1947269257,
           "opts":{"visible":false}},{"content":"hi","role":"user","id":5,"cycle":1,
           "_meta":{"index":2}}]})"},
      {"SillyTavern, a custom endpoint", kChatPath,
       R"({"messages":[{"role":"system","content":"[Start a new Chat]"},{"role":"user",
           "content":"hi"}],"prompt":"","model":"fake","temperature":1,"max_tokens":300,
           "stream":true,"presence_penalty":0,"frequency_penalty":0,"top_p":1,"top_k":0,"top_a":0,
           "min_p":0,"repetition_penalty":1,"logit_bias":{},"n":1,"custom_prompt":1})"},
      {"Ollama's thinking", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"think":true})", "think"},
      {"Ollama's options", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"options":{
           "temperature":0}})",
       "options"},
      {"Ollama's result of a tool", kChatPath,
       R"({"model":"fake","messages":[{"role":"user","content":"hi"},{"role":"assistant",
           "content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},
           {"role":"tool","content":"3","tool_name":"f"}]})"},
      {"llama.cpp's template, a whole chat", "/apply-template",
       R"({"messages":[{"role":"user","content":"hi"}],"temperature":0,"mirostat":2})"},
      {"vLLM's tokenizer", "/tokenize",
       R"({"model":"fake","prompt":"hi","return_token_strs":true,"mm_processor_kwargs":{}})"},
  };
  return cases;
}

TEST(ClientRequests, GetWhatTheirProgramsExpect) {
  for (const ClientCase& c : client_cases()) {
    SCOPED_TRACE(c.client);
    ServedClients served;
    served.setting().context = 100'000;
    std::string refused_field;
    try {
      served.post(c.path, c.body);
    } catch (const RequestError& error) {
      refused_field = error.param;
      EXPECT_EQ(error.status, 400);
      EXPECT_TRUE(c.refused_field) << error.what();
      EXPECT_EQ(error.code, "unsupported_value") << error.what();
    }
    EXPECT_EQ(refused_field, c.refused_field ? c.refused_field : "");
    if (!served.submitted.empty()) {
      EXPECT_TRUE(c.is_right(served.submitted[0].request.request));
    }
  }
}

TEST(ClientRequests, UnknownFieldsAreToldOnEveryRoute) {
  struct Case {
    const char *path, *body;
    std::vector<std::string> told;
  };
  const Case cases[] = {
      {kChatPath,
       R"({"a":1,"messages":[{"role":"user","content":"x","b":2}]})",
       {"a", "messages[].b"}},
      {kCompletionPath, R"({"prompt":"x","a":{"b":1}})", {"a"}},
      {kMessagesPath,
       R"({"max_tokens":5,"a":[],"messages":[{"role":"user","b":1,"content":[{"type":"text",
           "text":"x","c":1}]}],"tools":[{"name":"f","input_schema":{"q":1},"d":1}],
           "thinking":{"type":"disabled","e":1}})",
       {"a", "messages[].b", "messages[].content[].c", "tools[].d", "thinking.e"}},
      {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"x"}],"a":1})", {"a"}},
      {"/tokenize", R"({"content":"x","a":1})", {"a"}},
      {"/detokenize", R"({"tokens":[5],"a":1})", {"a"}},
      {"/apply-template",
       R"({"messages":[{"role":"user","content":"x"}],"temperature":0})",
       {"temperature"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    ServedClients served;
    std::vector<std::string> told;
    served.setting().unknown_field = [&](const std::string& place) { told.push_back(place); };
    served.post(c.path, c.body);
    std::ranges::sort(told);
    std::vector<std::string> expected = c.told;
    std::ranges::sort(expected);
    EXPECT_EQ(told, expected);
  }
}

// A template that tells the model which call a result belongs to needs it.
TEST(ClientRequests, ResultsOfToolsNeedAnIdWhereTheTemplateWritesIt) {
  struct Case {
    const char *source, *message, *refused_field;
  };
  const std::string plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const std::string with_ids = plain + "{{ messages[-1].tool_call_id }}";
  const Case cases[] = {
      {plain.c_str(), R"({"role":"tool","content":"x"})", ""},
      {plain.c_str(), R"({"role":"tool","content":"x","tool_call_id":"1"})", ""},
      {with_ids.c_str(), R"({"role":"tool","content":"x"})", "messages[1].tool_call_id"},
      {with_ids.c_str(), R"({"role":"tool","content":"x","tool_call_id":null})",
       "messages[1].tool_call_id"},
      {with_ids.c_str(), R"({"role":"tool","content":"x","tool_call_id":"1"})", ""},
      {with_ids.c_str(), R"({"role":"user","content":"x"})", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    ServedClients served;
    served.setting().chat_template = std::make_shared<ChatTemplate>(c.source, "fake", "", "<end>");
    served.setting().format = answer_format(*served.setting().chat_template);
    for (const char* path : {kChatPath, "/apply-template", "/tokenize"}) {
      std::string refused_field;
      try {
        served.post(
            path, R"({"messages":[{"role":"user","content":"q"},)" + std::string(c.message) + "]}");
      } catch (const RequestError& error) {
        refused_field = error.param;
      }
      EXPECT_EQ(refused_field, c.refused_field) << path;
    }
  }
}

}  // namespace
}  // namespace outrider
