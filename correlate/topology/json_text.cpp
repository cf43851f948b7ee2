// SPDX-License-Identifier: Apache-2.0
#include "correlate/topology/json_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_set>

namespace collwire::topology {

namespace {

using nlohmann::json;

constexpr std::string_view BYTE_ORDER_MARK = "\xef\xbb\xbf";
constexpr int DEPTH_MAX = 64;

std::string place(std::string_view text, std::size_t offset, std::size_t skipped) {
    const std::string_view before = text.substr(0, std::min(offset, text.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto line_start =
        before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return fmt::format("line {}, column {} (byte offset {})", line, before.size() - line_start + 1,
                       before.size() + skipped);
}

// Follows the parser to know where it is.
class Watcher {
public:
    explicit Watcher(Problems *repeated_keys) : repeated_keys_(repeated_keys) {}

    [[nodiscard]] bool too_deep() const { return too_deep_; }

    // False: the part is not kept, so a hostile depth costs no memory.
    bool on_event(int depth, json::parse_event_t event, json &parsed) {
        too_deep_ = too_deep_ || depth > DEPTH_MAX;
        if (too_deep_)
            return false;
        switch (event) {
        case json::parse_event_t::object_start:
        case json::parse_event_t::array_start:
            frames_.push_back({event == json::parse_event_t::array_start, 0, {}, {}});
            break;
        case json::parse_event_t::key:
            on_key(parsed.get_ref<const std::string &>());
            break;
        case json::parse_event_t::object_end:
        case json::parse_event_t::array_end:
            if (!frames_.empty())
                frames_.pop_back();
            [[fallthrough]];
        case json::parse_event_t::value:
            if (!frames_.empty())
                frames_.back().index++;
            break;
        }
        return true;
    }

private:
    struct Frame {
        bool array;
        std::size_t index;
        std::string key;
        std::unordered_set<std::string> keys;
    };

    void on_key(const std::string &key) {
        if (frames_.empty())
            return;
        Frame &frame = frames_.back();
        frame.key = key;
        if (repeated_keys_ != nullptr && !frame.keys.insert(key).second)
            repeated_keys_->error(
                fmt::format("{}: key {} occurs twice. Fix: keep one of them", path(), quote(key)));
    }

    // Of the object that holds the present key.
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
        return error(ErrorKind::BadInput, "the file is empty. Fix: give a JSON file");

    Watcher watcher(repeated_keys);
    const auto watch = [&](int depth, json::parse_event_t event, json &parsed) {
        return watcher.on_event(depth, event, parsed);
    };
    try {
        json value = json::parse(text.begin(), text.end(), watch);
        if (watcher.too_deep())
            return error(
                ErrorKind::BadInput,
                fmt::format("nested deeper than {} levels. Fix: this is not the file it should be",
                            DEPTH_MAX));
        return value;
    } catch (const json::parse_error &failure) {
        // "byte" counts from 1 and points at the last byte read.
        const std::size_t offset = failure.byte == 0 ? 0 : failure.byte - 1;
        const bool cut = offset >= text.size();
        return error(ErrorKind::BadInput,
                     fmt::format("not valid JSON at {}: {}", place(text, offset, skipped),
                                 cut ? "the file ends too early. Fix: it is truncated, get it whole"
                                     : "unexpected text. Fix: correct it there, or just before"));
    } catch (const json::exception &failure) {
        return error(ErrorKind::BadInput, fmt::format("not usable JSON: {}", failure.what()));
    }
}

} // namespace collwire::topology
