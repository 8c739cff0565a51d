#!/usr/bin/env python3
# requirements: gguf==0.19.0 tokenizers==0.23.3
"""Makes tests/golden/tokenizers.tar.xz: strings, and their tokens by the Python package `tokenizers`.

    scripts/golden/tokenization.py FOLDER    FOLDER holds smollm2-135m.gguf, qwen2.5-coder-0.5b.gguf, gemma3-270m.gguf

strings.json        some 2,400 strings; {"hex": ...} where a string is not well-formed UTF-8
normal_form.json    [text, its normal form C] by unicodedata
NAME.json           "plain": the tokens of each string as a user's text; "special": by the string's number, the tokens with
                    special tokens parsed, where that makes a difference
tiny-NAME.json      the same for a small vocabulary of our own, which the file holds as GGUF's metadata would, and for every
                    sixth string ("every")
"""

import json
import pathlib
import random
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, trainers

import packing

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"
TINY_EVERY = 6

# --- the strings

PROSE = [
    "The quick brown fox jumps over the lazy dog.",
    "It's what we'd've said: they're late, I'm not, you'll see, he's here, she hasn't; O'Neill's DON'T, WE'LL, I'VE.",
    "I’m sure it’s fine — “quoted”, ‘single’, «guillemets» … and an ellipsis...",
    "Dear Ms. O'Connor,\n\nThank you for your letter of 12 March 2024.\n\nYours,\nJ. R. Smith\n",
    "Größe, Straße, Äpfel, Übermut; déjà vu, garçon, naïve, œuvre; mañana, ¿qué tal?; São Paulo; smørrebrød, Åse, ħal",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. Zażółć gęślą jaźń. Árvíztűrő tükörfúrógép. Țară și oraș.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак, ґанок, Ђорђе.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ἐν ἀρχῇ ἦν ὁ λόγος.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. السَّلَامُ عَلَيْكُمْ ١٢٣٤٥",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם עֲלֵיכֶם",
    "यह एक परीक्षण वाक्य है। क्षत्रिय, श्रीमान्, १२३४५। আমি বাংলায় গান গাই। தமிழ் மொழி அழகானது। తెలుగు",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ ๑๒๓๔ ພາສາລາວ ភាសាខ្មែរ မြန်မာဘာသာ",
    "我能吞下玻璃而不伤身体。繁體中文測試,逗號。「引號」《書名》　全形空格１２３ＡＢＣ",
    "いろはにほへと ちりぬるを。カタカナ、ﾊﾝｶｸ、漢字仮名交じり文。々〆ヵヶ",
    "다람쥐 헌 쳇바퀴에 타고파. 한국어 자모 분해 (ㄱㄴㄷ)",
    "ქართული ენა. Հայերեն լեզու։ አማርኛ ቋንቋ። ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ. ᚠᛇᚻ᛫ᛒᛦᚦ. བོད་ཡིག ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ",
    "Tiếng Việt có nhiều dấu: ngã, hỏi, nặng; Nguyễn Thị Minh Khai.",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒻ℴ𝓃𝓉𝓈 𝟙𝟚𝟛 𐍈 𠜎𠜱𡿺 🜁 𓀀 ﬁ ﬂ ﬆ ﷽ ㎏ ½ ⅷ Ⅻ ² ₂ ① ㊿ ٣ ৪ 〇 一 𐄇",
    "E = mc², ∑ᵢ xᵢ ≤ ∫₀^∞ e^{-x²} dx, ∀ε>0 ∃δ: |x−a|<δ ⇒ |f(x)−L|<ε; α→β ↦ γ",
    "Price: $1,234.56 (€1.234,56; £0.99; ¥10000; ₹5,00,000) +15% −3.5e-7 0xDEADBEEF 1_000_000 v2.10.3-rc.1 192.168.0.1",
    "mail@example.org https://example.org/a/b?q=1&r=%20x#frag C:\\Users\\me\\file.txt ~/.config/x.toml @user #tag",
    "'S 'T 'RE 'Ve 'M 'Ll 'D 'ſ x'ſ 's't're've'm'll'd ''s '' s' 'x 'd've k'K",
    "'The 'THE 'the 'Tis 'Men 'MEN 'Ses 'ses 'ſes 'Deep 'llama 'LLAMA 'Very 'VERY 'really 'REAL rock'n'roll y'all'd've",
    "snake_case camelCase PascalCase SCREAMING_SNAKE kebab-case dot.case a1b2c3 x86_64 utf8 3D 1st 2nd COVID19 B2B",
    "wow!!! what??? no... yes--- a==b!=c <=> ::std::vector<int>> {{{}}} [[]] (()) ~~~ ``` ``` *** ___ /* */ // # %%",
]

CODE = [
    'def f(x, *args, **kwargs):\n    """Doc."""\n    return [i**2 for i in range(x) if i % 2 == 0]\n\n\nclass A(B):\n\tpass\n',
    '#include <cstdio>\nint main(int argc, char** argv) {\n  std::printf("%d\\n", argc);\n  return 0;\n}\n',
    "template <typename T, std::size_t N>\nconstexpr auto g(const std::array<T, N>& a) noexcept -> T&& { return a[N-1]; }",
    'fn main() {\n    let v: Vec<u8> = vec![1, 2, 3];\n    println!("{:?} {}", v, v.len());\n}\n',
    'const f = async (a, {b, ...c}) => {\n\tawait g(`x=${a}`);\n\treturn a?.b ?? c;\n};\n',
    'SELECT a.id, COUNT(*) AS n FROM "t" a\r\nLEFT JOIN u ON u.id = a.id\r\nWHERE x LIKE \'%y%\'\r\nGROUP BY 1;\r\n',
    '<table><tr><td class="x">1</td><td>&nbsp;</td></tr></table>\n<ul>\n  <li><b>bold</b></li>\n</ul><!-- c -->',
    '{"a": [1, 2.5, -3e10, null, true], "b": {"c": "\\u00e9\\n"}}\n',
    "all: $(OBJS)\n\t$(CC) -o $@ $^\n\n.PHONY: clean\nclean:\n\trm -f *.o\n",
    "#!/bin/sh\nset -eu\nfor f in \"$@\"; do\n  [ -f \"$f\" ] && wc -l <\"$f\" | awk '{print $1}'\ndone\n",
    "- key: value\n  list:\n    - a\n    - 'b'\n  text: |\n    line 1\n      line 2\n",
    "# Title\n\n* item\n    * nested\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint('x')\n```\n",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old line\n+new line\n context\n",
    "\\begin{equation}\n  \\frac{\\partial u}{\\partial t} = \\nabla^2 u\n\\end{equation}",
    "mov     rax, qword ptr [rdi + 8*rcx - 0x10]\n\tvfmadd231ps\tzmm0, zmm1, zmm2 ; fma",
]

EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🧑🏿‍💻", "🇩🇪🇫🇷", "1️⃣", "❤️", "☺", "🫠", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👨‍❤️‍💋‍👨", "🤷‍♀️", "©️", "⌚️", "🀄"]
MARKS = ["e\u0301", "a\u0308\u0304", "n\u0303", "o\u0302\u0323", "Z\u0351\u036b\u0343", "\u0915\u094d\u0937\u093f", "\u0e01\u0e34\u0e48", "\u0301",
         "\u1100\u1161\u11a8", "\u05e9\u05c1", "\u0627\u064b", "x\u20dd", "\ufe0f", "\u200d", "i\u0307", "\u212b", "\u2126", "q\u0307\u0323"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u180e", "\u2000", "\u2003", "\u2009", "\u200a", "\u200b",
          "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff", "\x1c", "\x1f", " \n", "\n ", "\t\t", " \t", "        ", "\u2581", "\u2581 "]
CONTROLS = ["\0", "\x01", "\x04", "\x06", "\x07", "\b", "\x13", "\x1b[0m", "\x7f", "\x80", "\x9f", "\xad", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000",
            "\U000f0000", "\U000e0001", "\u061c", "\u202e"]
DIGITS = ["0", "7", "12", "123", "1234", "1234567890", "3.14159", "1,000", "0x1F", "1e-9", "2024-03-12", "12:34:56", "½", "²", "Ⅷ", "٣٤", "१२", "４２", "𝟘𝟙", "①②"]
LOOK_ALIKES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\n", "<|im_end|>\n", "<|fim_prefix|>", "<|repo_name|>", "<repo_name>", "<file_sep>",
               "<issue_start>", "<tool_call>", "</tool_call>", "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "[multimodal]", "<start_of_turn>user\n", "<end_of_turn>\n",
               "<start_of_image>", "<unused0>", "<unused1", "<unused12>", "<unused6241>", "<0x0A>", "<0x41>", "<h1>", "</h1>", "<table>", "<tr", "</s>", "<s>",
               "[PAD151665]", "<|im_start|", "<|im_<|im_end|>", "|im_end|>", "<<|im_end|>>", "<|IM_END|>", "< |im_end|>", "<b", "><i>", "<|object_ref_start|>"]
# Normal form C changes these, whole or written apart.
DECOMPOSABLE = ["Ấn Độ ở Việt Nam; ỗ ữ ặ ậ ệ", "Ṩōme Ļātīņu ḝ ǭ ȱ", "ᾧ ᾄδω Ἄϊδος ῗ ΐ", "Й ё ї Ќ Ӂ ӫ", "한국어 자모 분해 갂 닭 힣", "がぎぐげご ぱぴ ヴヷ ゞ",
                "क़ख़ग़ ज़िन्दगी ड़ ढ़ फ़िल्म ऩ ऱ ऴ", "কোনো বৌ ড় ঢ় য়", "ਖ਼ਗ਼ਜ਼ ਲ਼", "கொ கோ கௌ", "ಕೀ ಕೊ ಕೋ", "കൊ കോ കൌ", "කෝ ෞ ේ", "བླ྄ གྷ ཌྷ ཱི", "ဦ ဦ",
                "أإآؤئ ۀ ۂ ۓ", "שׁ שׂ אַ בּ וֹ יִ", "Ω Å K ℃ ℉", "≠ ≮ ≯ ∄ ⊄ ⇍ ⫝̸", "豈 更 車 賈 滑 串 句 龜", "， ｀ ； · ´ ‘ 〈 〉", "𑂚 𑂜 𝅗𝅥 𝅘𝅥𝅮"]
DECOMPOSED = ["e\u0301", "\u0301e", "A\u030a", "\u212b", "\u2126", "\u212a", "o\u0302\u0303", "o\u0303\u0302", "a\u0323\u0302", "a\u0302\u0323", "\u1e9b\u0323", "\u1100\u1161",
              "\u1100\u1161\u11a8", "\uac00\u11a8", "\u1161", "\u11a8", "\u0915\u093c", "\u0958", "\u09c7\u09be", "\u0b47\u0b57", "\u0bc6\u0bd7", "\u0dd9\u0dcf\u0dca", "\u0f71\u0f72",
              "\u0344", "\u0340", "\u0387", "\u1fef", "\u2000", "\u2001 ", "\u2329", "\uf900", "\U0002f800", "\u0340\u0316", ">\u0338", "=\u0338", "<\u0338", "\u304b\u3099",
              "\u30cf\u309a", "x\u0323\u0307", "x\u0307\u0323", " \u0301", "\n\u0301", "1\u20e3", "\u05d0\u05b7", "\u05e9\u05bc\u05c1", "\ufb2a", "\u0627\u0653", "\u0622\u0654",
              "word", " und ", "日本", "\U0001d15e", "\u1b05\u1b35", "\u2adc", "'s", "12", "\n"]
ILL_FORMED = [b"\x80", b"\xbf\xbf", b"\xc0\xaf", b"\xc2", b"\xc2A", b"\xe0\x80\xaf", b"\xe0\xa0", b"\xe2\x82", b"\xe2\x82A", b"\xe2\x28\xa1", b"\xed\xa0\x80",
              b"\xed\xb0\x80", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xf0\x80\x80\x80", b"\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd", b"\xf4\x90\x80\x80", b"\xf5\x80",
              b"\xff\xfe", b"\xf0\x9f\x98\xf0\x9f\x98\x80", b"\xc3\x28", b"\xfc\x80\x80\x80\x80\x80"]


def make_strings():
    """Bytes, each once. Numbers and lengths are such that the golden files stay small."""
    chance = random.Random(20240312)
    words = sorted({word for text in PROSE for word in text.split()})
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"
    groups = [words, words, EMOJI, MARKS, SPACES, SPACES, CONTROLS, DIGITS, LOOK_ALIKES, list(letters), list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")]

    def pick():
        return chance.choice(chance.choice(groups))

    strings = [""] + PROSE + CODE
    for group in (EMOJI, MARKS, SPACES, CONTROLS, DIGITS, LOOK_ALIKES):
        for item in group:
            strings += [item, f"a{item}b", f" {item} ", f"{item}{item}1"]
    for n in [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 30, 31, 32, 33, 40, 63, 64, 65, 100, 130]:
        strings += [c * n for c in " \n\ta0=-\u00e9<"] + [" " * n + "x", "x" + " " * n, "a" + " " * n + "b", "\n" * n + " x", "x\n" + "\t" * n + "y"]
        strings += ["ab" * n, "\r\n" * n, "\u4e2d" * n, "\u0301" * n, "\U0001f600" * n, "</" * n]
    for a in SPACES:
        strings += ["x" + a + b + "y" for b in chance.sample(SPACES, 4)]
    for text in PROSE + CODE:
        for _ in range(6):
            begin = chance.randrange(len(text))
            strings.append(text[begin:begin + chance.randint(3, 45)])
        strings.append(text.upper()[:40])
    while len(strings) < 2200:
        strings.append("".join(pick() for _ in range(chance.randint(2, 7))))
    for _ in range(120):  # any assigned character of Unicode's first planes
        codes = [chance.choice([chance.randrange(0x20, 0x3000), chance.randrange(0x3000, 0xd7a4), chance.randrange(0x1f300, 0x1f650)]) for _ in range(chance.randint(1, 6))]
        strings.append("".join(map(chr, filter(is_stable, codes))))
    strings = [text.encode() for text in strings]
    for ill in ILL_FORMED:
        strings += [ill, b"a" + ill + b"b", " é".encode() + ill + "é\n".encode(), ill + ill]
    strings += [b"".join(chance.choice([bytes([chance.randrange(256)]), pick().encode()]) for _ in range(6)) for _ in range(60)]
    return list(dict.fromkeys(strings + [text.encode() for text in decomposed_strings()]))


def decomposed_strings():
    """Text that normal form C changes, in many scripts."""
    chance = random.Random(15)
    strings = [unicodedata.normalize("NFD", text) for text in PROSE + DECOMPOSABLE if unicodedata.normalize("NFD", text) != unicodedata.normalize("NFC", text)]
    for text in strings[:]:
        for _ in range(4):
            begin = chance.randrange(len(text))
            strings.append(text[begin:begin + chance.randint(2, 25)])
    for token in LOOK_ALIKES[:12]:
        strings += [token + "\u0338", "e" + token + "\u0301", "e\u0301" + token + "\u0301\u0323x"]
    for _ in range(100):
        strings.append("".join(chance.choice(DECOMPOSED) for _ in range(chance.randint(1, 8))))
    return strings


def normal_form_pairs():
    characters = [chr(code) for code in range(0x110000) if not 0xd800 <= code < 0xe000 and is_stable(code)]
    changing = [c for c in characters if unicodedata.normalize("NFC", c) != c]
    pairs = [unicodedata.normalize("NFD", c) for c in characters if unicodedata.normalize("NFC", unicodedata.normalize("NFD", c)) == c]
    hangul = [text for text in pairs if "\u1100" <= text[0] <= "\u1112"]
    pairs = [text for text in pairs if len(text) > 1 and text not in set(hangul)] + hangul[::97]
    marks = [c for c in characters if unicodedata.combining(c)]
    chance = random.Random(9)
    mixed = ["".join(chance.choice(chance.choice([changing, pairs, marks, marks, characters])) for _ in range(chance.randint(2, 9))) for _ in range(600)]
    return [[text, unicodedata.normalize("NFC", text)] for text in dict.fromkeys(changing + pairs + mixed)]


def is_stable(code):
    """Assigned in Unicode 14, so that all programs agree on what it is."""
    return unicodedata.category(chr(code)) != "Cn"


# --- the expected tokens

def byte_characters():
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    other = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(other)}}


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+END|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*END"
# The regular expressions of the tokenizer.json files that the models were published with, one after another.
EXPRESSIONS = {
    "qwen2": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "qwen35": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "llama-bpe": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "seed-coder": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "tekken": [CASED.replace("END", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "gpt-4o": [CASED.replace("END", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+"],
    "deepseek-llm": ["[\r\n]", "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", "[一-龥ࠀ-一가-\ud7ff]+"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"],
}


def pre_tokenizer(name):
    if name in ("gpt-2", "mpt"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in ("smollm", "command-r", "starcoder", "refact"):
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    stages = [pre_tokenizers.Split(tokenizers.Regex(expression), "isolated") for expression in EXPRESSIONS[name]]
    if name in ("deepseek-coder", "deepseek-llm"):
        stages.append(pre_tokenizers.Digits(individual_digits=True))
    return pre_tokenizers.Sequence(stages + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# Whose tokenizer.json has the normalizer NFC.
COMPOSED = {"qwen2", "qwen35", "command-r", "mpt"}
# Whose BPE has ignore_merges: a word that is an entry is that token.
WHOLE_WORDS = {"llama-bpe", "tekken", "minicpm5"}


def reference_byte_bpe(metadata):
    tokens, kinds = metadata["tokens"], metadata["token_type"]
    merges = [tuple(merge.split(" ")) for merge in metadata["merges"]]
    reference = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, merges, ignore_merges=metadata["pre"] in WHOLE_WORDS))
    reference.pre_tokenizer = pre_tokenizer(metadata["pre"])
    if metadata["pre"] in COMPOSED:
        reference.normalizer = normalizers.NFC()
    add_special(reference, tokens, kinds)
    return reference


def reference_sentencepiece(metadata, as_published=False):
    """as_published: as in the tokenizer.json that comes with Gemma, where runs of spaces are not found in the text but merged first."""
    tokens = [text.replace(" ", SPACE) if kind == USER_DEFINED else text for text, kind in zip(metadata["tokens"], metadata["token_type"])]
    kinds, scores = metadata["token_type"], metadata["scores"]
    ids = {text: i for i, text in enumerate(tokens)}
    merges = []
    for i, (text, kind, score) in enumerate(zip(tokens, kinds, scores)):
        if kind == USER_DEFINED and as_published:
            score = 0.0
        elif kind != NORMAL:
            continue
        splits = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        merges += [(score, *split) for split in sorted((s for s in splits if s[0] in ids and s[1] in ids), key=lambda s: (ids[s[0]], ids[s[1]]))]
    # The order of transformers' generate_merges.
    merges.sort(key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
    unknown = tokens[metadata["unknown_token_id"]]
    reference = tokenizers.Tokenizer(models.BPE(ids, [m[1:] for m in merges], unk_token=unknown, fuse_unk=True, byte_fallback=True))
    reference.normalizer = normalizers.Replace(" ", SPACE)
    add_special(reference, tokens, kinds, normalized=not as_published)
    return reference


def add_special(reference, tokens, kinds, normalized=False):
    reference.add_special_tokens([AddedToken(text, normalized=False, special=True) for text, kind in zip(tokens, kinds) if kind == CONTROL])
    reference.add_tokens([AddedToken(text, normalized=normalized, special=False) for text, kind in zip(tokens, kinds) if kind == USER_DEFINED])


def golden(reference, strings):
    texts = [raw.decode("utf-8", "replace") for raw in strings]  # U+FFFD per maximal subpart
    answers = {}
    for special in (False, True):
        reference.encode_special_tokens = not special
        answers[special] = [encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)]
    differing = {str(i): ids for i, ids in enumerate(answers[True]) if ids != answers[False][i]}
    return {"plain": answers[False], "special": differing}


# --- the vocabularies

def read_metadata(path):
    import gguf

    fields = gguf.GGUFReader(path).fields
    keys = ["model", "pre", "tokens", "token_type", "scores", "merges", "unknown_token_id", "add_space_prefix"]
    return {key: fields[f"tokenizer.ggml.{key}"].contents() for key in keys if f"tokenizer.ggml.{key}" in fields}


def tiny_byte_bpe(pre):
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizer(pre)
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=sorted(byte_characters().values()))
    trained.train_from_iterator(sorted(PROSE + CODE), trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    kinds = [NORMAL] * len(tokens)
    for text, kind in [("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<tool_call>", USER_DEFINED), ("[PAD151665]", UNUSED)]:
        tokens.append(text)
        kinds.append(kind)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": kinds, "merges": merges}


def tiny_sentencepiece():
    """Forty pieces to a score, so that ties count."""
    trained = tokenizers.Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", SPACE)
    trained.train_from_iterator([text[:80] for text in PROSE[:5] + CODE], trainers.BpeTrainer(vocab_size=480, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    special = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN), ("<start_of_turn>", CONTROL), ("<end_of_turn>", CONTROL)]
    special += [("\n" * n, USER_DEFINED) for n in range(1, 5)] + [(" " * n, USER_DEFINED) for n in range(2, 9)] + [("<table>", USER_DEFINED), ("</h1>", USER_DEFINED)]
    special += [(f"<0x{byte:02X}>", BYTE) for byte in range(256) if byte != 0xff]
    taken = {text.replace(" ", SPACE) for text, _ in special}
    pieces = [text for text in sorted(model["vocab"], key=model["vocab"].get) if text not in taken and "\n" not in text]
    return {
        "model": "llama",
        "unknown_token_id": 3,
        "tokens": [text for text, _ in special] + pieces,
        "token_type": [kind for _, kind in special] + [NORMAL] * len(pieces),
        "scores": [-1000.0] * len(special) + [-float(i // 40) for i in range(len(pieces))],
    }


def content(value):
    """One line for each element of each long list."""
    def text(v):
        return json.dumps(v, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, dict):
        parts = [text(k) + ":" + ("[\n" + ",\n".join(map(text, v)) + "\n]" if k == "plain" else text(v)) for k, v in value.items()]
        return ("{" + ",\n".join(parts) + "}\n").encode()
    return ("[\n" + ",\n".join(map(text, value)) + "\n]\n").encode()


def written(raw):
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"hex": raw.hex()}


def main():
    folder = pathlib.Path(sys.argv[1])
    strings = make_strings()
    files = {
        "strings.json": content([written(raw) for raw in strings]),
        "normal_form.json": content(normal_form_pairs()),
    }
    for name, file in [("smollm2", "smollm2-135m"), ("qwen2.5-coder", "qwen2.5-coder-0.5b"), ("gemma3", "gemma3-270m")]:
        metadata = read_metadata(folder / f"{file}.gguf")
        if metadata["model"] == "gpt2":
            answers = golden(reference_byte_bpe(metadata), strings)
        else:
            answers = golden(reference_sentencepiece(metadata), strings)
            published = golden(reference_sentencepiece(metadata, as_published=True), strings)
            different = [i for i, (a, b) in enumerate(zip(answers["plain"], published["plain"])) if a != b]
            print(name, "differs from the published form in", len(different), [strings[i] for i in different[:5]])
        files[f"{name}.json"] = content(answers)
    few = strings[::TINY_EVERY]
    tiny = [(name, tiny_byte_bpe(name), reference_byte_bpe) for name in ["smollm", "command-r", "gpt-2", "mpt", *EXPRESSIONS]]
    for name, metadata, reference in tiny + [("sentencepiece", tiny_sentencepiece(), reference_sentencepiece)]:
        files[f"tiny-{name}.json"] = content({"metadata": metadata, "every": TINY_EVERY, **golden(reference(metadata), few)})
    print(len(strings), "strings,", packing.pack("tokenizers", files), "bytes")


if __name__ == "__main__":
    main()
