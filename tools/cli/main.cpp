// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <iostream>

#include "tools/cli/command_line.h"

namespace {

// Where one of the standard streams is closed, the next file that is opened would get its number,
// and our messages. What is written to this one fails, as it does to a closed one.
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
