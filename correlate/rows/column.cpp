// SPDX-License-Identifier: Apache-2.0
#include "correlate/rows/column.h"

namespace collwire::rows {

std::string_view unit_name(Unit unit) {
    switch (unit) {
    case Unit::Word:
        return "word";
    case Unit::Flag:
        return "0 or 1";
    case Unit::Number:
        return "number";
    case Unit::Count:
        return "count";
    case Unit::Bytes:
        return "B";
    case Unit::Nanoseconds:
        return "ns";
    case Unit::Realtime:
    case Unit::Common:
        return "ns since 1970";
    case Unit::Microseconds:
        return "us";
    case Unit::MegabitsPerSecond:
        return "Mbit/s";
    case Unit::Text:
        break;
    }
    return "text";
}

} // namespace collwire::rows
