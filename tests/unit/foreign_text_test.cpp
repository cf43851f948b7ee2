// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "base/foreign_text.h"

namespace collwire {
namespace {

TEST(ForeignText, PlainTextOfAnyLanguageStays) {
    for (const std::string text : {"/opt/nccl/libnccl.so.2", "größe", "数据", "🙂", ""})
        EXPECT_EQ(escaped(text), text);
}

TEST(ForeignText, ControlCharactersAreEscaped) {
    EXPECT_EQ(escaped("a\x1b[31m\n\t\x7f"), "a\\x1b[31m\\x0a\\x09\\x7f");
    EXPECT_EQ(escaped("\xc2\x9b"
                      "31m"),
              "\\xc2\\x9b31m"); // U+009B, a control sequence introducer
    EXPECT_EQ(escaped("\xc2\xa0"), "\xc2\xa0");
}

TEST(ForeignText, MarksThatChangeTheDirectionAreEscaped) {
    EXPECT_EQ(escaped("\xe2\x80\xae"
                      "fdp.exe"),
              "\\xe2\\x80\\xaefdp.exe"); // U+202E
    EXPECT_EQ(escaped("\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8e"),
              "\\xe2\\x81\\xa6\\xe2\\x81\\xa9\\xe2\\x80\\x8e");
    EXPECT_EQ(escaped("\xe2\x80\x93"), "\xe2\x80\x93"); // a dash
}

TEST(ForeignText, BytesThatAreNoUtf8AreEscaped) {
    EXPECT_EQ(escaped("a\xff\xc0\xaf"), "a\\xff\\xc0\\xaf");
    EXPECT_EQ(escaped("\xe2\x80"), "\\xe2\\x80");
}

TEST(ForeignText, EscapingTwiceChangesNothing) {
    const std::string once = escaped("\x1b\xff\xe2\x80\xae");
    EXPECT_EQ(escaped(once), once);
}

TEST(ForeignText, LineEndsOfATextOfSeveralLinesStay) {
    EXPECT_EQ(escaped_lines("a\nb\r\n"), "a\nb\\x0d\n");
}

TEST(ForeignText, JsonKeepsItsMeaning) {
    EXPECT_EQ(escaped_json("{\n \"a\": \"\x7f\xc2\x9b\xe2\x80\xae\"\n}\n"),
              "{\n \"a\": \"\\u007f\\u009b\\u202e\"\n}\n");
}

} // namespace
} // namespace collwire
