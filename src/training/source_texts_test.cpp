#include "training/source_texts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

namespace outrider {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProse =
    "This is a paragraph of the kind that is kept, as it has the words that English uses most.";
constexpr std::string_view kMore =
    "That one goes on from the first, and it is also long enough to be what one can ask for.";

std::vector<std::string> texts(const std::vector<Paragraph>& paragraphs) {
  std::vector<std::string> found;
  for (const Paragraph& paragraph : paragraphs) found.push_back(paragraph.text);
  return found;
}

TEST(PythonFunctions, AreThoseWithADocstring) {
  const auto found = python_functions(R"python(
# def comment(): """No function, but a comment about one."""
text = """
def quoted():
    'no function, but a string about one'
"""
def plain(a, b=")", *, c: dict[str, int] = {1: 2}) -> int:  # a comment
    """Add the two numbers and return them."""
    return a

def without(a):
    return "no docstring"

class Thing:
    @property
    def method(self,
               other):
        r'''Compare with the other one.

        Details are in a
            deeper line.
        '''
        def inner(x):
            """Return x as it is now."""

    async def waits(self):
        """Wait until it is done."""

    def __len__(self):
        """Return how many there are."""

    def test_it(self):
        """Test that it does its work."""

    def short(self):
        """See above."""

def broken(a
)python");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].name, "plain");
  EXPECT_EQ(found[0].signature, "def plain(a, b=\")\", *, c: dict[str, int] = {1: 2}) -> int:");
  EXPECT_EQ(found[0].docstring, "Add the two numbers and return them.");
  EXPECT_EQ(found[1].signature, "def method(self,\n           other):");
  EXPECT_EQ(found[1].docstring,
            "Compare with the other one.\n\n    Details are in a\n        deeper line.");
  EXPECT_EQ(found[2].signature, "def inner(x):");
  EXPECT_EQ(found[3].signature, "async def waits(self):");
}

TEST(PythonFunctions, ABorderOfLength) {
  const auto with_lines = [](int n) {
    std::string source = "def long():\n    \"\"\"One two three four\n";
    for (int i = 0; i < n; ++i) source += "    line\n";
    return python_functions(source + "    \"\"\"\n").size();
  };
  EXPECT_EQ(with_lines(50), 1U);
  EXPECT_EQ(with_lines(70), 0U);
}

TEST(HtmlParagraphs, AreProseUnderItsHeading) {
  const std::string prose(kProse), more(kMore);
  const auto found = html_paragraphs(
      "<html><head><title>" + prose + "</title></head><body><script>if (a<b) " + prose +
      "</script><h2 id=x><span>3.1.</span> What is\n it?<a "
      "class=\"headerlink\">\u00B6</a></h2>\n<p>" +
      prose + "<p>" + more + "</p><pre>" + prose + "</pre><ul><li>" + more + "x</ul><!-- <p>" +
      prose +
      " --><P>A &lt;b&gt; of R&amp;D &#65;&#x42; that is <b>not</b> in "
      "the&nbsp;text<br>but on a line of its own, as everybody certainly notices.</p><h3>Too "
      "short</h3><p>No.</p>"
      "<p>Ends within a tag, and it is <");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].text, prose);
  EXPECT_EQ(found[0].heading, "What is it?");
  EXPECT_FALSE(found[0].follows);
  EXPECT_EQ(found[1].text, more);
  EXPECT_TRUE(found[1].follows);
  EXPECT_EQ(found[2].text,
            "A <b> of R&D AB that is not in the text but on a line of its own, as everybody "
            "certainly notices.");
  EXPECT_FALSE(found[2].follows);
}

TEST(TextParagraphs, AreProseUnderItsHeading) {
  const auto found = text_paragraphs(
      "1. First things\n===============\n\nThis is a **paragraph** of three lines, each of which "
      "is\nas full as it can be, with a [link](there) and a `name`\nin it.\n\n" +
      std::string(kMore) + "\r\n\n    " + std::string(kProse) + "\n\n```\n" + std::string(kProse) +
      "\n```\n## Second\n\n" + std::string(kProse) +
      "\n\nshort lines\nas a poem has them, which are\nnot a paragraph of the kind that is "
      "kept.\n");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].heading, "First things");
  EXPECT_EQ(found[0].text,
            "This is a paragraph of three lines, each of which is as full as it can be, with a "
            "link and a `name` in it.");
  EXPECT_TRUE(found[1].follows);
  EXPECT_EQ(found[2].heading, "Second");
  EXPECT_FALSE(found[2].follows);
}

TEST(TextParagraphs, WhatIsNoProseIsLeftOut) {
  const std::string cases[] = {
      "Too short to be asked for, as it is.",
      "does not begin with a capital, so that it is a part of something that was cut, as it seems.",
      "This one does not end with a stop, so it may be a list that is or was before a listing",
      "Copyright is what this is about, and the rest of it is as dull as one would expect of it.",
      "Der Absatz ist nicht in der Sprache, die erwartet wird, und hat deshalb keines der Worte.",
      "A = b + c; {d} = [e] | f & g; the = of * to / and + in - it == is ^ that % was ~ he $ for.",
      "This is what is left of a listing, which was under it and is not here, as it is the "
      "following."};
  for (const std::string& text : cases) EXPECT_EQ(texts(text_paragraphs(text)).size(), 0U) << text;
  EXPECT_EQ(text_paragraphs(kProse).size(), 1U);
}

TEST(Sentences, EndWithAStopAndABlankBeforeACapital) {
  EXPECT_EQ(sentences("One is here, e.g. That one. Version 1.5 is two! (Is it?) Yes. No"),
            (std::vector<std::string>{"One is here, e.g. That one.", "Version 1.5 is two! (Is it?)",
                                      "Yes."}));
  EXPECT_TRUE(sentences("").empty());
}

// Whatever the bytes, the scanners come to an end and stay within them.
TEST(SourceTexts, AnyBytesAreScanned) {
  const std::string_view parts[] = {"def f(", "):",         "\"\"\"",
                                    "'''",    "'",          "\n",
                                    "    ",   "#",          "\\",
                                    "<p>",    "</",         "<",
                                    ">",      "&",          "&#",
                                    ";",      "12",         "x41",
                                    "<pre>",  "[",          "](",
                                    ")",      "`",          "``",
                                    "```",    "==",         "A. ",
                                    "<h1>",   "</h1>",      "word ",
                                    "the ",   ".",          "\xE2\x80\x9D",
                                    "<!--",   "-->",        "<a class=footnote>",
                                    "<sup>",  "async def ", "r"};
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::size_t n = random() % 40; n > 0; --n) text += parts[random() % std::size(parts)];
    python_functions(text);
    html_paragraphs(text);
    text_paragraphs(text);
    sentences(text);
  }
}

// The time grows with a text's length, not with its square: this would take minutes.
TEST(SourceTexts, LongTextsWithoutAnEndAreScanned) {
  for (const char* part : {"&", "<pre>", "<sup>", "[", "[a](", "def f(\n", "'''\n", "A. ", "word ",
                           "**", "<a footnote>", "<!-- ", "&#12"}) {
    SCOPED_TRACE(part);
    std::string text;
    while (text.size() < 256 << 10) text += part;
    EXPECT_TRUE(python_functions(text).empty());
    EXPECT_TRUE(html_paragraphs(text).empty());
    EXPECT_TRUE(text_paragraphs(text).empty());
  }
}

class Sources : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = fs::temp_directory_path() / "outrider_sources_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, std::string_view text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string function(const std::string& name) {
    return "def " + name + "(a):\n    \"\"\"Return what one gives it.\"\"\"\n";
  }

  fs::path folder_;
};

TEST_F(Sources, AreReadInTheOrderOfNames) {
  for (const char* name : {"z", "b", "m", "a", "k"}) {
    write("python/" + std::string(name) + ".py", function(name));
  }
  write("python/c/d.py", function("d"));
  write("python/test/t.py", function("t"));
  write("python/site-packages/s.py", function("s"));
  write("python/x.txt", function("x"));
  write("python/twice.py", function("a"));
  fs::create_directory_symlink(folder_ / "python", folder_ / "python/c/loop");
  fs::create_directory_symlink(folder_ / "python", folder_ / "same");
  const SourceTexts found = read_sources({{folder_ / "python", folder_ / "same"}, {}});
  std::string names;
  for (const PythonFunction& function : found.functions) names += function.name;
  EXPECT_EQ(names, "abdkmz");
  EXPECT_EQ(found.n_python_files, 6U);
  EXPECT_EQ(found.n_documents, 0U);
}

TEST_F(Sources, WhatCannotBeUsedIsLeftOut) {
  const std::string prose(kProse);
  write("doc/a/README", prose + "\n\n" + std::string(kMore));
  write("doc/a/same.txt", prose);
  write("doc/b/page.html", "<p>This one is on a page, and it is the only one of it that is kept.");
  write("doc/b/changelog.txt", "Changes are what this is about, and it is not what one would ask.");
  write("doc/b/NEWS.html", "<p>News are what this is about, and it is not what one would ask for.");
  write("doc/b/latin.txt", "This is not in UTF-8, as one can see by the \xE9, and it is left out.");
  write("doc/b/zero.txt",
        std::string("This has a byte that no text has, and it is left out.\0", 54));
  write("doc/b/large.txt",
        std::string(3 << 20, ' ') + "This is a file that is more than one wants to read.");
  write("doc/b/README.gz", "This is what one would see if it were not compressed, as it is.");
  ASSERT_EQ(::mkfifo((folder_ / "doc/b/pipe.txt").c_str(), 0600), 0);
  fs::create_symlink(folder_ / "nowhere", folder_ / "doc/b/broken.txt");
  const SourceTexts found = read_sources({{folder_ / "none"}, {folder_ / "doc", folder_ / "none"}});
  EXPECT_EQ(found.functions.size(), 0U);
  EXPECT_EQ(found.paragraphs.size(), 3U);
  EXPECT_EQ(found.n_documents, 2U);
}

TEST_F(Sources, ModulesSayWhatTheyAre) {
  write("python/a.py", "#!/usr/bin/python3\n# -*- coding -*-\n\"\"\"Heading\n\n" +
                           std::string(kProse) + "\n\"\"\"\nimport os\n");
  const SourceTexts found = read_sources({{folder_ / "python"}, {}});
  EXPECT_EQ(texts(found.paragraphs), std::vector<std::string>{std::string(kProse)});
}

}  // namespace
}  // namespace outrider
