// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/json_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace collwire::topology {

namespace {

using nlohmann::json;

constexpr std::string_view BYTE_ORDER_MARK = "\xef\xbb\xbf";
constexpr std::size_t DEPTH_MAX = 64;

std::string place(std::string_view text, std::size_t offset, std::size_t skipped) {
    const std::string_view before = text.substr(0, std::min(offset, text.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto line_start =
        before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return fmt::format("line {}, column {} (byte offset {})", line, before.size() - line_start + 1,
                       before.size() + skipped);
}

// Of the string that the quote at `start` opens; the text's size if nothing ends it.
std::size_t end_of_string(std::string_view text, std::size_t start) {
    for (std::size_t i = start + 1; i < text.size(); i++) {
        if (text[i] == '\\')
            i++;
        else if (text[i] == '"')
            return i;
    }
    return text.size();
}

// Of the bracket that opens a level beyond `depth`; the text up to there is valid JSON.
std::size_t offset_of_depth(std::string_view text, std::size_t depth) {
    std::size_t open = 0;
    for (std::size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '"') {
            i = end_of_string(text, i);
        } else if (c == '[' || c == '{') {
            if (open++ == depth)
                return i;
        } else if (c == ']' || c == '}') {
            open--;
        }
    }
    return text.size();
}

// A pass over the text before anything is built: depth, repeated keys, the place of a mistake. The
// library's parser with a callback is too slow for this: it searches the whole parent at the end of
// each object, which takes hours for a long list.
class Watcher {
public:
    explicit Watcher(Problems *repeated_keys) : repeated_keys_(repeated_keys) {}

    [[nodiscard]] bool too_deep() const { return too_deep_; }
    // Counts from 1 and points at the last byte read.
    [[nodiscard]] std::size_t error_position() const { return error_position_; }

    bool null() { return value(); }
    bool boolean(bool) { return value(); }
    bool number_integer(json::number_integer_t) { return value(); }
    bool number_unsigned(json::number_unsigned_t) { return value(); }
    bool number_float(json::number_float_t, const std::string &) { return value(); }
    bool string(std::string &) { return value(); }
    bool binary(json::binary_t &) { return value(); }
    bool start_object(std::size_t) { return open(false); }
    bool start_array(std::size_t) { return open(true); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(const std::string &key) {
        Frame &frame = frames_.back();
        frame.key = key;
        if (repeated_keys_ != nullptr && !frame.keys.insert(key).second)
            repeated_keys_->error(
                fmt::format("{}: key {} occurs twice. Fix: keep one of them", path(), quote(key)));
        return true;
    }
    bool parse_error(std::size_t position, const std::string &, const json::exception &) {
        error_position_ = position;
        return false;
    }

private:
    struct Frame {
        bool array;
        std::size_t index;
        std::string key;
        std::unordered_set<std::string> keys;
    };

    bool open(bool array) {
        too_deep_ = frames_.size() == DEPTH_MAX;
        frames_.push_back({array, 0, {}, {}});
        return !too_deep_;
    }
    bool close() {
        frames_.pop_back();
        return value();
    }
    bool value() {
        if (!frames_.empty())
            frames_.back().index++;
        return true;
    }

    // Of the object with the current key.
    [[nodiscard]] std::string path() const {
        std::string text;
        for (std::size_t i = 0; i + 1 < frames_.size(); i++) {
            const Frame &frame = frames_[i];
            if (frame.array)
                text += fmt::format("[{}]", frame.index);
            else
                text += (text.empty() ? "" : ".") + frame.key;
        }
        return text.empty() ? "top level" : text;
    }

    Problems *repeated_keys_;
    std::vector<Frame> frames_;
    std::size_t error_position_ = 0;
    bool too_deep_ = false;
};

} // namespace

Result<json> parse_json_text(std::string_view text, Problems *repeated_keys) {
    std::size_t skipped = 0;
    if (text.starts_with(BYTE_ORDER_MARK)) {
        skipped = BYTE_ORDER_MARK.size();
        text.remove_prefix(skipped);
    }
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        return error(ErrorKind::BadInput,
                     fmt::format("the file is empty ({} bytes, none of them JSON). Fix: give a "
                                 "JSON file",
                                 text.size() + skipped));

    Watcher watcher(repeated_keys);
    if (!json::sax_parse(text.begin(), text.end(), &watcher)) {
        if (watcher.too_deep())
            return error(ErrorKind::BadInput,
                         fmt::format("nested deeper than {} levels at {}. Fix: give the right file",
                                     DEPTH_MAX,
                                     place(text, offset_of_depth(text, DEPTH_MAX), skipped)));
        const std::size_t position = watcher.error_position();
        const std::size_t offset = position == 0 ? 0 : position - 1;
        const bool cut = offset >= text.size();
        return error(ErrorKind::BadInput,
                     fmt::format("not valid JSON at {}: {}", place(text, offset, skipped),
                                 cut ? "the file ends too early. Fix: copy the whole file again"
                                     : "unexpected text. Fix: correct it there or just before"));
    }
    json value = json::parse(text.begin(), text.end(), nullptr, false);
    if (value.is_discarded())
        return error(ErrorKind::BadInput, "not valid JSON. Fix: write the file again");
    return value;
}

std::string place_of_key(std::string_view text, std::string_view key) {
    const std::size_t skipped = text.starts_with(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.size() : 0;
    text.remove_prefix(skipped);
    std::size_t open = 0;
    bool at_key = false;
    for (std::size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '"') {
            const std::size_t end = end_of_string(text, i);
            if (open == 1 && at_key && text.substr(i + 1, end - i - 1) == key)
                return place(text, i, skipped);
            i = end;
        } else if (c == '[' || c == '{') {
            at_key = ++open == 1;
        } else if (c == ']' || c == '}') {
            open--;
        } else if (c == ',' || c == ':') {
            at_key = open == 1 && c == ',';
        }
    }
    return {};
}

} // namespace collwire::topology
