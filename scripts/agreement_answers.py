#!/usr/bin/env python3
"""Reads calls back that chat templates wrote, and compares the formats of answers with what is expected.

    scripts/agreement_answers.py FOLDER [--dump build/release/bench/outrider-dump-answers] [--show 3]

FOLDER holds *.jinja files, such as models/templates of llama.cpp's sources. Each template is given conversations with
tools as OpenAI's API gives them, whose last message calls one or two; what it writes of this message must be read as
the same calls, the same content and the same reasoning. Prints a line per template: the format of answers, how many
conversations came back, how many the template refuses, how many differ.
"""

import argparse
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What is expected of published templates: reasoning and tools, by the names in src/text/answer_format.cpp. Of others:
# neither.
EXPECTED = {
    "Bielik-11B-v3.0-Instruct": ("think", "tool_call tags"),
    "Cohere2MoE": ("START_THINKING", "START_ACTION"),
    "CohereForAI-c4ai-command-r-plus-tool_use": (None, "Action"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("START_THINKING", "START_ACTION"),
    "GLM-4.6": ("think", None),
    "GLM-4.7-Flash": ("think", None),
    "HuggingFaceTB-SmolLM3-3B": ("think", None),
    "Kimi-K2-Thinking": ("think", None),
    "LFM2.5-8B-A1B": ("think", None),
    "LFM2.5-Instruct": ("think", None),
    "MiMo-VL": (None, "tool_call tags"),
    "MiniMax-M2": ("think", None),
    "Mistral-Small-3.2-24B-Instruct-2506": (None, "TOOL_CALLS and ARGS"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("think", "function and parameter tags"),
    "NVIDIA-Nemotron-Nano-v2": ("think", "TOOLCALL"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": (None, "tool_call tags"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": (None, "tool_call tags"),
    "Qwen-QwQ-32B": ("think", "tool_call tags"),
    "Qwen-Qwen2.5-7B-Instruct": (None, "tool_call tags"),
    "Qwen-Qwen3-0.6B": ("think", "tool_call tags"),
    "Qwen3-Coder": (None, "function and parameter tags"),
    "Qwen3.5-4B": ("think", "function and parameter tags"),
    "Reka-Edge": ("think", "tool_call tags"),
    "Spark2.5": ("think", None),
    "StepFun3.5-Flash": ("think", "function and parameter tags"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("think", "tool calls begin"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("think", "tool calls begin"),
    "deepseek-ai-DeepSeek-V3.1": ("think", None),
    "deepseek-ai-DeepSeek-V3.2": ("think", None),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("think", None),
    "deepseek-ai-DeepSeek-V4": ("think", None),
    "ibm-granite-granite-3.3-2B-Instruct": ("think and response", "|tool_call|"),
    "ibm-granite-granite-4.0": (None, "tool_call tags"),
    "ibm-granite-granite-4.1": (None, "tool_call tags"),
    "inclusionai-ling-3.0-flash": ("think", None),
    "llama-cpp-deepseek-r1": ("think", "tool calls begin"),
    "llama-cpp-rwkv-world": ("think", None),
    "meetkai-functionary-medium-v3.1": (None, "function tags"),
    "meetkai-functionary-medium-v3.2": (None, ">>>"),
    "meta-llama-Llama-3.1-8B-Instruct": (None, "JSON with parameters"),
    "meta-llama-Llama-3.2-3B-Instruct": (None, "JSON with parameters"),
    "meta-llama-Llama-3.3-70B-Instruct": (None, "JSON with parameters"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("THINK", "TOOL_CALLS and ARGS"),
    "mistralai-Mistral-Nemo-Instruct-2407": (None, "TOOL_CALLS"),
    "openbmb-MiniCPM5-1B": ("think", None),
    "poolside-Laguna-S-2.1": ("think", None),
    "poolside-Laguna-XS-2.1": ("think", None),
    "poolside-Laguna-XS.2": ("think", None),
    "unsloth-mistral-Devstral-Small-2507": (None, "TOOL_CALLS and ARGS"),
    "template_minicpmv45": ("think", "tool_call tags"),
    "tool_chat_template_deepseekr1": ("think", "tool calls begin"),
    "tool_chat_template_deepseekv3": (None, "tool calls begin"),
    "tool_chat_template_deepseekv31": ("think", None),
    "tool_chat_template_granite": (None, "|tool_call|"),
    "tool_chat_template_hermes": (None, "tool_call tags"),
    "tool_chat_template_hunyuan_a13b": ("think", None),
    "tool_chat_template_llama3.1_json": (None, "JSON with parameters"),
    "tool_chat_template_llama3.2_json": (None, "JSON with parameters"),
    "tool_chat_template_mistral": (None, "TOOL_CALLS"),
    "tool_chat_template_mistral3": (None, "TOOL_CALLS"),
    "tool_chat_template_mistral_parallel": (None, "TOOL_CALLS"),
    "tool_chat_template_qwen3coder": (None, "function and parameter tags"),
}


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": {
        "type": "object", "properties": {key: {"type": kind, "description": "It.", "additionalProperties": {"type": "string"}} for key, kind in properties.items()}, "required": list(properties)}}}


TOOLS = [tool("get_weather", place="string", days="integer"), tool("run", code="string", options="object", quiet="boolean"), tool("now", zone="string")]
WEATHER = ("get_weather", {"place": "Zürich", "days": 2})
RUN = ("run", {"code": "if a {\n\tprint(\"}]</tool_call> \\\\\")\n}", "options": {"names": ["a", {"b": [1.5, None]}], "empty": {}}, "quiet": True})
CASES = {
    "one call": dict(calls=[WEATHER]),
    "difficult arguments": dict(calls=[RUN]),
    "two calls": dict(calls=[WEATHER, RUN]),
    "text before": dict(calls=[WEATHER], content="I look it up."),
    "reasoning before": dict(calls=[WEATHER], reasoning="The user wants\n\nweather."),
    "text alone": dict(calls=[], content="It is {\"cold\": true}.\n\n<b>Really</b>"),
}


def messages(case):
    answer = dict(role="assistant", content=case.get("content"))
    if case["calls"]:
        answer["tool_calls"] = [dict(id=f"call_{i}", type="function", function=dict(name=name, arguments=json.dumps(arguments)))
                                for i, (name, arguments) in enumerate(case["calls"])]
    if "reasoning" in case:
        answer["reasoning_content"] = case["reasoning"]
    return [dict(role="user", content="Do it."), answer]


class Reader:
    def __init__(self, program, template):
        self.process = subprocess.Popen([program, template], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.format = json.loads(self.process.stdout.readline())

    def __call__(self, **case):
        print(json.dumps(case), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def parts(deltas):
    out = dict(content="", reasoning="", calls=[])
    for kind, text, call in deltas:
        if kind in ("content", "reasoning"):
            out[kind] += text
        elif kind == "call":
            out["calls"].append([text, ""])
        elif kind == "arguments":
            out["calls"][call][1] += text
    out["calls"] = [(name, json.loads(arguments)) for name, arguments in out["calls"]]
    return out


def compare(reader, case):
    """None if the template refuses or changes its prompt, otherwise what was read, what should have been, and the text."""
    question, answer = messages(case)
    prompt = reader(messages=[question], tools=TOOLS)
    whole = reader(messages=[question, answer], tools=TOOLS, add_generation_prompt=False)
    if "error" in prompt or "error" in whole:
        return None
    text, begun = whole["text"], prompt["begun"]
    if not text.startswith(prompt["text"]):  # this answer is not what the prompt has begun
        prompt["text"], begun = prompt["text"][:len(prompt["text"]) - len(begun)], ""
    if not text.startswith(prompt["text"]):
        return None
    text = re.sub(r"(<[|｜](?!tool)[^<>]*[|｜]>|</s>|<sep>|<SPECIAL_12>|\s)*$", "", text[len(prompt["text"]):])  # the end of the turn
    read = parts(reader(text=text, begun=begun, tools=TOOLS)["deltas"])
    read["content"] = read["content"].strip()  # some templates put a space before it
    wanted = dict(content=case.get("content") or "", reasoning=case.get("reasoning", ""), calls=case["calls"])
    if not read["reasoning"]:  # few templates write it again
        wanted["reasoning"] = ""
    if case["calls"] and not read["content"]:  # some write no text beside calls
        wanted["content"] = ""
    return read, wanted, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dump", default=ROOT / "build/release/bench/outrider-dump-answers")
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    totals = dict(read=0, refused=0, differ=0, unexpected=0)
    for path in sorted(options.folder.glob("*.jinja")):
        reader = Reader(options.dump, path)
        if "error" in reader.format:
            print(f"{path.stem:48} {reader.format['error']}")
            continue
        found = (reader.format["reasoning"], reader.format["syntax"])
        counts, shown = dict(read=0, refused=0, differ=0), []
        if found != EXPECTED.get(path.stem, (None, None)):
            totals["unexpected"] += 1
            shown.append(f"    expected {EXPECTED.get(path.stem)}, found {found}")
        for name, case in CASES.items() if reader.format["syntax"] and reader.format["tools"] != "nowhere" else ():
            result = compare(reader, case)
            kind = "refused" if result is None else "read" if result[0] == result[1] else "differ"
            counts[kind] += 1
            totals[kind] += 1
            if kind == "differ":
                shown.append(f"    {name}:\n      text   {result[2]!r}\n      read   {result[0]}\n      wanted {result[1]}")
        tools = reader.format["tools"]
        print(f"{path.stem:48} reasoning: {found[0] or 'none'}; calls: {found[1] or 'unknown'}; tools: {tools}; "
              f"read {counts['read']}, refused {counts['refused']}, differ {counts['differ']}")
        print(*shown[:options.show], sep="\n", end="\n" if shown[:options.show] else "")
    print(totals)


if __name__ == "__main__":
    main()
