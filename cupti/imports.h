// SPDX-License-Identifier: Apache-2.0
// The places where the program's files keep the addresses of functions that they import (the global
// offset table).
#pragma once

#include <cstddef>

namespace collwire::cupti {

struct Replacement {
    const char *name;
    void *ours;
    void *theirs; // what the import is set back to
    // Found by replace_imports: an import that is bound at its first call was bound already.
    bool was_called = false;
};

// In every loaded file but the guest itself and libcupti: sets the imports of these functions to
// `ours`. The number of imports that are set to `ours` now. Files that were loaded since the last
// call are found, too. Holds the loader's lock while it walks.
size_t replace_imports(Replacement *replacements, size_t count);

// Sets them back.
void restore_imports(Replacement *replacements, size_t count);

// How often files were loaded, to notice new ones cheaply.
unsigned long long loads_so_far();

} // namespace collwire::cupti
