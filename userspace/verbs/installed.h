// SPDX-License-Identifier: Apache-2.0
// The RDMA driver libraries installed on this machine, in use or not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace collwire::verbs {

// Paths in this mount namespace, each file once: the folders in which the distributions' libibverbs
// searches its drivers. Sorted.
std::vector<std::string> installed_providers();

// The name that driver, library and device class share: "/usr/lib/librxe-rdmav34.so" -> "rxe".
std::string_view stem_of_library(std::string_view path);
// "rdma_rxe" -> "rxe", "mlx5_core" -> "mlx5"
std::string_view stem_of_driver(std::string_view driver);

} // namespace collwire::verbs
