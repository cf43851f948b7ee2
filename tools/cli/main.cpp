// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <iostream>

#include "tools/cli/command_line.h"

namespace {

// With a closed standard stream the next opened file would get its number and our messages. Writes
// to this read-only descriptor fail, as they do on a closed one.
void fill_standard_streams() {
    int fd = 0;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

} // namespace

int main(int argc, char **argv) {
    fill_standard_streams();
    return collwire::cli::run_command_line(argc, argv, std::cout, std::cerr);
}
