// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_nccl/fake_nccl.h"

void fake_lock();
FAKE_API std::uint64_t fake_posts;
std::uint64_t fake_posts;

__attribute__((noinline)) void fake_lock() {
    asm volatile("" : : : "memory");
}

int ncclProxyPost(ncclProxyArgs *args);
int ncclProxyPost(ncclProxyArgs *args) {
    fake_lock();
    fake_posts += args->opCount;
    fake_lock();
    return 0;
}

// It has a copy of ncclProxyPost.
int ncclLocalOpAppend(ncclProxyArgs *args);
__attribute__((noinline, flatten)) int ncclLocalOpAppend(ncclProxyArgs *args) {
    args->opCount++;
    if (args->opCount % 1024 == 0)
        return ncclProxyPost(args);
    return 1;
}

__attribute__((noinline)) int fakeFinish(ncclProxyArgs *args);
__attribute__((noinline)) int fakeFinish(ncclProxyArgs *args) {
    fake_posts = args->next;
    return 0;
}

FAKE_API int fake_append(ncclProxyArgs *args) {
    const int result = ncclLocalOpAppend(args);
    return fakeFinish(args) + result;
}
