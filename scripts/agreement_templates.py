#!/usr/bin/env python3
# requirements: transformers==5.24.0 jinja2==3.1.6
"""Compares what chat templates write with jinja2, as transformers sets it up.

    scripts/agreement_templates.py FOLDER [--dump build/release/bench/outrider-dump-chat] [--show 3]

FOLDER holds *.jinja files, such as models/templates of llama.cpp's sources. Each renders ten conversations, with and without
a generation prompt: with a system message, tools, calls and results, reasoning, several turns, empty content, documents.
Prints a line per template: how many are equal, how many both refuse.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import unittest.mock

import transformers.utils.chat_template_utils as reference

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOW = datetime.datetime(2024, 7, 26, 9, 5, 1)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a <place>, \"today\".", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "description": "A city"}, "days": {"type": "integer", "default": 1},
                                     "units": {"type": "string", "enum": ["°C", "°F"]}}, "required": ["place"]}}}
SEARCH = {"type": "function", "function": {"name": "search", "description": "Searches.", "parameters": {
    "type": "object", "properties": {"queries": {"type": "array", "items": {"type": "string"}}, "deep": {"type": "boolean"}, "limit": {"type": "number"}}}}}


def call(name, arguments, number):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


CASES = {
    "one question": dict(messages=[dict(role="user", content="What is 2 + 2?")]),
    "system": dict(messages=[dict(role="system", content="Be terse. "), dict(role="user", content=" Hi\n")]),
    "several turns": dict(messages=[dict(role="system", content="S"), dict(role="user", content="a"), dict(role="assistant", content="b"),
                                    dict(role="user", content="c\n\nd"), dict(role="assistant", content="e"), dict(role="user", content="f")]),
    "empty content": dict(messages=[dict(role="user", content=""), dict(role="assistant", content=""), dict(role="user", content="x")]),
    "tools": dict(messages=[dict(role="system", content="Use tools."), dict(role="user", content="Weather in Paris?")], tools=[WEATHER, SEARCH]),
    "a call and its result": dict(messages=[
        dict(role="user", content="Weather in Zürich?"),
        dict(role="assistant", content="", tool_calls=[call("get_weather", {"place": "Zürich", "days": 2, "units": "°C"}, 1)]),
        dict(role="tool", name="get_weather", tool_call_id="call00001", content='{"temperature": -3.5, "sky": "clear"}'),
    ], tools=[WEATHER, SEARCH]),
    "two calls, then an answer": dict(messages=[
        dict(role="system", content="Use tools."), dict(role="user", content="Compare."),
        dict(role="assistant", content="I look.", tool_calls=[call("get_weather", {"place": "A"}, 1), call("search", {"queries": ["x", "y's"], "deep": True, "limit": 1.5}, 2)]),
        dict(role="tool", name="get_weather", tool_call_id="call00001", content="warm"), dict(role="tool", name="search", tool_call_id="call00002", content="nothing"),
        dict(role="assistant", content="A is warm."), dict(role="user", content="Thanks"),
    ], tools=[WEATHER, SEARCH]),
    "reasoning": dict(messages=[dict(role="user", content="Why?"), dict(role="assistant", content="Because.", reasoning_content="Let me think.\nYes."),
                                dict(role="user", content="Really?")], variables=dict(enable_thinking=True)),
    "no reasoning": dict(messages=[dict(role="user", content="Why?"), dict(role="assistant", content="<think>\nhm\n</think>\n\nBecause."),
                                   dict(role="user", content="Really?")], variables=dict(enable_thinking=False, thinking=False)),
    "documents": dict(messages=[dict(role="user", content="What do they say?")],
                      documents=[dict(title="One", text="First text.", doc_id=1), dict(title="Two", text="Second\ntext.", doc_id="b")]),
}


def cases():
    for name, case in CASES.items():
        for generation in (False, True):
            yield f"{name}{', with a generation prompt' if generation else ''}", dict(case, add_generation_prompt=generation)


def expected(template, case):
    try:
        compiled = reference._compile_jinja_template(template)
        return compiled.render(messages=case["messages"], tools=case.get("tools"), documents=case.get("documents"),
                               add_generation_prompt=case["add_generation_prompt"], bos_token="<s>", eos_token="</s>", **case.get("variables", {}))
    except Exception as error:
        return error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dump", default=ROOT / "build/release/bench/outrider-dump-chat")
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    totals = dict(equal=0, refused=0, differ=0)
    with unittest.mock.patch.object(reference, "datetime", FixedTime):
        for path in sorted(options.folder.glob("*.jinja")):
            template = path.read_text()
            data = "".join(json.dumps(case) + "\n" for _, case in cases())
            lines = subprocess.run([options.dump, path], input=data, capture_output=True, text=True, check=True).stdout.splitlines()
            counts, shown = dict(equal=0, refused=0, differ=0), []
            for (name, case), line in zip(cases(), lines):
                found, wanted = json.loads(line), expected(template, case)
                if isinstance(wanted, Exception) and "error" in found:
                    counts["refused"] += 1
                elif found.get("text") == wanted:
                    counts["equal"] += 1
                else:
                    counts["differ"] += 1
                    shown.append((name, found, wanted))
            for key in totals:
                totals[key] += counts[key]
            print(f"{path.stem:56} equal {counts['equal']:2}, both refuse {counts['refused']:2}, differ {counts['differ']:2}")
            for name, found, wanted in shown[:options.show]:
                print(f"    {name}:\n      ours   {found.get('error') or found.get('text')!r}\n      theirs {wanted!r}")
    print(totals)


if __name__ == "__main__":
    main()
