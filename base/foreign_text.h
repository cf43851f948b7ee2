// SPDX-License-Identifier: Apache-2.0
// Text that others chose, on its way to a terminal, a log or a file: names, paths, messages.
#pragma once

#include <string>
#include <string_view>

namespace collwire {

// The text with what could act on a terminal, or show another text than there is, escaped as \xNN
// (each byte): control characters (C0, DEL, C1), marks that change the direction of text (U+200E,
// U+200F, U+202A to U+202E, U+2066 to U+2069), line separators (U+2028, U+2029), and bytes that are
// no UTF-8. All output of collwire that is not JSON passes it, once: a second time changes nothing.
std::string escaped(std::string_view text);

// The same for a text of several lines: line ends stay.
std::string escaped_lines(std::string_view text);

// A JSON document, whose strings are valid UTF-8 already: these characters as \uNNNN, which a
// reader of JSON turns back.
std::string escaped_json(std::string_view document);

} // namespace collwire
