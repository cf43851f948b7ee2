// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "tools/cli/command_line.h"

int main(int argc, char **argv) {
    return collwire::cli::run_command_line(argc, argv, std::cout, std::cerr);
}
