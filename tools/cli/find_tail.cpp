// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/find_tail.h"

#include "correlate/stream/tail_finder.h"
#include "tools/cli/read_file.h"

namespace collwire::cli {

std::uint64_t find_tail(const std::vector<std::string> &files, std::uint64_t to_ns,
                        std::uint64_t margin_ns) {
    stream::TailFinder finder(to_ns);
    const auto look = [&](std::size_t number, bool is_deeper) {
        auto file = FileInParts::open(files[number]);
        if (!file)
            return;
        const capture::ReadAt read = [&](std::uint64_t offset, std::size_t length) {
            return file->read(offset, length);
        };
        if (is_deeper)
            finder.look_deeper(number, file->size_bytes(), read);
        else
            finder.look(number, file->size_bytes(), read);
    };
    for (std::size_t number = files.size(); number-- > 0;)
        look(number, false);
    for (const std::size_t number : finder.deeper())
        look(number, true);
    return finder.from_ns(margin_ns);
}

} // namespace collwire::cli
