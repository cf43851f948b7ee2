// SPDX-License-Identifier: Apache-2.0
// What diagnose is given: any text is refused, or read, diagnosed and written again.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "correlate/diagnose/diagnosis.h"
#include "correlate/diagnose/render.h"
#include "correlate/inspect/json.h"
#include "correlate/inspect/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace collwire;
    auto read = inspect::parse_inspection({reinterpret_cast<const char *>(data), size});
    if (!read)
        return 0;
    const std::string written = inspect::render_json(*read);
    const auto again = inspect::parse_inspection(written);
    if (!again || inspect::render_json(*again) != written)
        std::abort();
    (void)inspect::render_text(*read, {});
    const std::vector<inspect::Inspection> witnesses{*read, *again};
    const diagnose::Diagnosis diagnosis = diagnose::diagnose(witnesses);
    (void)diagnose::render_text(diagnosis);
    (void)diagnose::render_json(diagnosis, "");
    return 0;
}
