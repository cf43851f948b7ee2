// SPDX-License-Identifier: Apache-2.0
// Reads the captures that are named on the command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "correlate/capture/reader.h"
#include "correlate/capture/window_filter.h"
#include "correlate/model/ingest.h"
#include "correlate/model/model.h"
#include "correlate/model/segment_order.h"
#include "tools/cli/options.h"
#include "tools/cli/read_file.h"

namespace collwire::cli {

struct Selected;

// By its first bytes.
[[nodiscard]] bool is_capture(const std::string &path);

enum class Part {
    Selected, // all of it
    Windowed, // likewise, as a window also where no time is given
    Tail,     // the end of it, which shows where each rank stood
};

struct ChosenCapture {
    std::string path;
    model::SegmentOrder order;
};

struct ChosenCaptures {
    std::vector<ChosenCapture> captures; // to read, in the order that Ingest needs
    std::vector<ChosenCapture> all;      // and those that the window does not need
    std::vector<NamedCaptures::Refused> refused;
    std::shared_ptr<const Selected> selected; // null: everything
    bool is_tail = false;                     // the window begins with the tail
};

// Files, or directories of them. `margin_ns`: of a tail, as TailFinder::from_ns has it. Errors: a
// window that is malformed (Usage), or that holds nothing (BadInput).
[[nodiscard]] Result<ChosenCaptures> choose_captures(const std::vector<std::string> &paths,
                                                     const Selection &selection,
                                                     Part part = Part::Selected,
                                                     std::uint64_t margin_ns = 0);

// Of windowed ones.
[[nodiscard]] ChosenCaptures narrowed(const ChosenCaptures &chosen, const capture::Window &part);

struct IngestedCaptures {
    bool all_used = false; // false: some file was refused, which is said on standard error
    std::size_t used = 0;
    std::optional<model::WindowFacts> window;
};

// Messages are in the name of `verb`. BadInput: nothing is in the window.
[[nodiscard]] Result<IngestedCaptures> ingest(std::string_view verb, const ChosenCaptures &chosen,
                                              model::Ingest &ingest);

// Gets messages, without "collwire VERB: ", and the capture that each is about.
using Complain = std::function<void(const std::string &path, const std::string &message)>;
// Likewise, without a warning of too little memory.
[[nodiscard]] Result<IngestedCaptures> ingest(const Complain &complain,
                                              const ChosenCaptures &chosen, model::Ingest &ingest);

// Both.
[[nodiscard]] Result<IngestedCaptures> ingest_all(std::string_view verb,
                                                  const std::vector<std::string> &paths,
                                                  const Selection &selection,
                                                  model::Ingest &ingest);

// Counts of what was read of windows.
struct WindowCounts {
    std::uint64_t blocks = 0, blocks_left_out = 0, records_inside = 0;
    std::uint64_t counters_without_start = 0;
    void add(const capture::ReadSummary &summary, const capture::WindowFilter &filter);
    void add(const WindowCounts &others);
    void put(model::WindowFacts &facts) const;
};

// How a capture ends, where it is not whole, and whether it was used.
[[nodiscard]] std::string how_used(const capture::ReadSummary &summary, bool is_used);

// Reads what `window` needs of a capture, or, if it is null, everything. Errors: as
// capture::read_capture.
[[nodiscard]] Result<capture::ReadSummary> read_part(FileInParts &file,
                                                     const capture::Window *window,
                                                     WindowCounts &counts,
                                                     const capture::RecordVisitor &visit);

} // namespace collwire::cli
