// SPDX-License-Identifier: Apache-2.0
#include "imports.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace collwire::cupti {
namespace {

#if defined(__x86_64__)
constexpr uint32_t JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOBAL = R_X86_64_GLOB_DAT,
                   ADDRESS = R_X86_64_64;
#else
constexpr uint32_t JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOBAL = R_AARCH64_GLOB_DAT,
                   ADDRESS = R_AARCH64_ABS64;
#endif

struct Walk {
    Replacement *replacements;
    size_t count;
    bool is_restoring;
    size_t found = 0;
    bool is_all_bound_at_once = false;
};

// The parts of a file's dynamic section that name its imports.
struct Imports {
    const ElfW(Sym) *symbols = nullptr;
    const char *strings = nullptr;
    const ElfW(Rela) *jumps = nullptr;
    size_t jump_bytes = 0;
    const ElfW(Rela) *others = nullptr;
    size_t other_bytes = 0;
    bool is_bound_at_once = false;
};

template <class T> T *at(uintptr_t address) {
    // The loader gives addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<T *>(address);
}

template <class T> const T *address_of(const dl_phdr_info &object, ElfW(Addr) value) {
    // The C library has relocated these in place, but for files that it may not write (the vDSO).
    return at<const T>(value < object.dlpi_addr ? value + object.dlpi_addr : value);
}

Imports imports_of(const dl_phdr_info &object, const ElfW(Dyn) * dynamic) {
    Imports imports;
    bool is_rela = true;
    for (; dynamic->d_tag != DT_NULL; ++dynamic)
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            imports.symbols = address_of<ElfW(Sym)>(object, dynamic->d_un.d_ptr);
            break;
        case DT_STRTAB:
            imports.strings = address_of<char>(object, dynamic->d_un.d_ptr);
            break;
        case DT_JMPREL:
            imports.jumps = address_of<ElfW(Rela)>(object, dynamic->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            imports.jump_bytes = dynamic->d_un.d_val;
            break;
        case DT_RELA:
            imports.others = address_of<ElfW(Rela)>(object, dynamic->d_un.d_ptr);
            break;
        case DT_RELASZ:
            imports.other_bytes = dynamic->d_un.d_val;
            break;
        case DT_BIND_NOW:
            imports.is_bound_at_once = true;
            break;
        case DT_FLAGS:
            imports.is_bound_at_once |= (dynamic->d_un.d_val & DF_BIND_NOW) != 0;
            break;
        case DT_FLAGS_1:
            imports.is_bound_at_once |= (dynamic->d_un.d_val & DF_1_NOW) != 0;
            break;
        case DT_PLTREL:
            is_rela = dynamic->d_un.d_val == DT_RELA;
            break;
        default:
            break;
        }
    if (!is_rela)
        imports.jumps = nullptr;
    if (!imports.symbols || !imports.strings)
        return {};
    return imports;
}

// A slot of a file that was linked with -z relro is read-only: writable for the moment of the
// write.
void write_slot(const dl_phdr_info &object, std::atomic<void *> *slot, void *value) {
    const auto address = reinterpret_cast<uintptr_t>(slot);
    const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    bool is_read_only = false;
    for (int i = 0; i < object.dlpi_phnum; ++i) {
        const ElfW(Phdr) &part = object.dlpi_phdr[i];
        if (part.p_type != PT_GNU_RELRO)
            continue;
        const uintptr_t begin = object.dlpi_addr + part.p_vaddr,
                        end = (begin + part.p_memsz) & ~(page_bytes - 1);
        is_read_only = address >= (begin & ~(page_bytes - 1)) && address < end;
    }
    void *page = at<void>(address & ~(page_bytes - 1));
    if (is_read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0)
        return;
    slot->store(value, std::memory_order_release);
    if (is_read_only)
        mprotect(page, page_bytes, PROT_READ);
}

void visit_relocations(const dl_phdr_info &object, const Imports &imports,
                       const ElfW(Rela) * relocations, size_t bytes, Walk &walk) {
    for (size_t i = 0; relocations && i < bytes / sizeof(ElfW(Rela)); ++i) {
        const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocations[i].r_info));
        if (type != JUMP_SLOT && type != GLOBAL && type != ADDRESS)
            continue;
        const char *name =
            imports.strings + imports.symbols[ELF64_R_SYM(relocations[i].r_info)].st_name;
        for (size_t k = 0; k < walk.count; ++k) {
            Replacement &wanted = walk.replacements[k];
            if (name[0] != wanted.name[0] || strcmp(name, wanted.name) != 0)
                continue;
            auto *slot = at<std::atomic<void *>>(object.dlpi_addr + relocations[i].r_offset);
            void *now = slot->load(std::memory_order_acquire);
            // In the program's own data, which it may have changed.
            if (type == ADDRESS && now != wanted.ours && (!wanted.theirs || now != wanted.theirs))
                continue;
            if (!walk.is_restoring && now == wanted.theirs && type == JUMP_SLOT &&
                !imports.is_bound_at_once && !walk.is_all_bound_at_once)
                wanted.was_called = true;
            if (walk.is_restoring ? now == wanted.ours : now != wanted.ours)
                write_slot(object, slot, walk.is_restoring ? wanted.theirs : wanted.ours);
            ++walk.found;
        }
    }
}

bool holds(const dl_phdr_info &object, uintptr_t address) {
    for (int i = 0; i < object.dlpi_phnum; ++i) {
        const ElfW(Phdr) &part = object.dlpi_phdr[i];
        const uintptr_t begin = object.dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && address >= begin && address < begin + part.p_memsz)
            return true;
    }
    return false;
}

int visit(dl_phdr_info *object, size_t, void *data) {
    auto &walk = *static_cast<Walk *>(data);
    const char *name = object->dlpi_name ? object->dlpi_name : "";
    const char *slash = strrchr(name, '/');
    const char *file = slash ? slash + 1 : name;
    // The guest's own calls must reach the real functions, whatever its file's name is.
    if (strncmp(file, "libcupti.so", 11) == 0 ||
        holds(*object, reinterpret_cast<uintptr_t>(&holds)))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const Imports imports = imports_of(
            *object, at<const ElfW(Dyn)>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr));
        if (!imports.symbols)
            continue;
        visit_relocations(*object, imports, imports.jumps, imports.jump_bytes, walk);
        visit_relocations(*object, imports, imports.others, imports.other_bytes, walk);
    }
    return 0;
}

int read_loads(dl_phdr_info *object, size_t, void *data) {
    *static_cast<unsigned long long *>(data) = object->dlpi_adds;
    return 1;
}

} // namespace

size_t replace_imports(Replacement *replacements, size_t count) {
    Walk walk = {replacements, count, false};
    const char *bind_now = getenv("LD_BIND_NOW");
    walk.is_all_bound_at_once = bind_now && *bind_now;
    dl_iterate_phdr(visit, &walk);
    return walk.found;
}

void restore_imports(Replacement *replacements, size_t count) {
    Walk walk = {replacements, count, true};
    dl_iterate_phdr(visit, &walk);
}

unsigned long long loads_so_far() {
    unsigned long long loads = 0;
    dl_iterate_phdr(read_loads, &loads);
    return loads;
}

} // namespace collwire::cupti
