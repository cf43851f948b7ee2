/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* No program: creates the maps that the other objects share. */
#include "shared_maps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
