// SPDX-License-Identifier: Apache-2.0
// What libstdc++, libgcc and the C library's headers of newer systems want of a newer glibc, so
// that the binary starts on glibc 2.34 (RHEL 9; Ubuntu 22.04 has 2.35) wherever it was built. They
// are hidden: only the binary's own references take them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/random.h>

#define HIDDEN __attribute__((visibility("hidden"), used))

// glibc 2.36; libstdc++ makes std::random_device of it.
HIDDEN uint32_t arc4random(void) {
    uint32_t value;
    while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value))
        if (errno != EINTR)
            abort();
    return value;
}

// glibc 2.35; libgcc finds a frame's unwind table with it.
#ifdef DLFO_STRUCT_HAS_EH_DBASE
struct search {
    uintptr_t address;
    struct dl_find_object *result;
    int is_found;
};

static int look_into(struct dl_phdr_info *info, size_t size, void *data) {
    struct search *search = data;
    const ElfW(Phdr) *const end = info->dlpi_phdr + info->dlpi_phnum;
    uintptr_t first = UINTPTR_MAX, last = 0, eh_frame = 0;
    int is_here = 0;

    (void)size;
    for (const ElfW(Phdr) *part = info->dlpi_phdr; part < end; ++part) {
        const uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_GNU_EH_FRAME)
            eh_frame = start;
        if (part->p_type != PT_LOAD)
            continue;
        first = start < first ? start : first;
        last = start + part->p_memsz > last ? start + part->p_memsz : last;
        is_here |= search->address - start < part->p_memsz;
    }
    if (!is_here || eh_frame == 0)
        return is_here;
    memset(search->result, 0, sizeof(*search->result));
    search->result->dlfo_map_start = (void *)first;
    search->result->dlfo_map_end = (void *)last;
    search->result->dlfo_eh_frame = (void *)eh_frame;
    search->is_found = 1;
    return 1;
}

HIDDEN int _dl_find_object(void *address, struct dl_find_object *result) {
    struct search search = {(uintptr_t)address, result, 0};
    dl_iterate_phdr(look_into, &search);
    return search.is_found ? 0 : -1;
}
#endif

// glibc 2.38: its headers turn strtol() and the like into these, which also read "0b101". The
// declarations below are those of C11, so that this file calls the functions that every glibc has.
#define OLD(result, name, ...) result collwire_old_##name(__VA_ARGS__) __asm__(#name)
OLD(long, strtol, const char *, char **, int);
OLD(unsigned long, strtoul, const char *, char **, int);
OLD(long long, strtoll, const char *, char **, int);
OLD(unsigned long long, strtoull, const char *, char **, int);
OLD(int, vsscanf, const char *, const char *, va_list);
OLD(int, vfscanf, FILE *, const char *, va_list);

HIDDEN long __isoc23_strtol(const char *text, char **end, int base) {
    return collwire_old_strtol(text, end, base);
}

HIDDEN unsigned long __isoc23_strtoul(const char *text, char **end, int base) {
    return collwire_old_strtoul(text, end, base);
}

HIDDEN long long __isoc23_strtoll(const char *text, char **end, int base) {
    return collwire_old_strtoll(text, end, base);
}

HIDDEN unsigned long long __isoc23_strtoull(const char *text, char **end, int base) {
    return collwire_old_strtoull(text, end, base);
}

HIDDEN intmax_t __isoc23_strtoimax(const char *text, char **end, int base) {
    return collwire_old_strtoll(text, end, base);
}

HIDDEN uintmax_t __isoc23_strtoumax(const char *text, char **end, int base) {
    return collwire_old_strtoull(text, end, base);
}

HIDDEN int __isoc23_sscanf(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = collwire_old_vsscanf(text, format, arguments);
    va_end(arguments);
    return n;
}

HIDDEN int __isoc23_vsscanf(const char *text, const char *format, va_list arguments) {
    return collwire_old_vsscanf(text, format, arguments);
}

HIDDEN int __isoc23_fscanf(FILE *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = collwire_old_vfscanf(file, format, arguments);
    va_end(arguments);
    return n;
}
