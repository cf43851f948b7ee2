// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "correlate/model/model.h"

namespace collwire::report {

// Of docs/report-schema.md. Minor: fields were added.
inline constexpr int JSON_SCHEMA_MAJOR = 1;
inline constexpr int JSON_SCHEMA_MINOR = 8;

struct JsonOptions {
    bool detail = false; // what each rank sent and received for each of NCCL's operations
};

// Writes element by element, so that the whole document never lies in memory.
void write_json(const model::Model &model, std::ostream &out, const JsonOptions &options = {});

} // namespace collwire::report
