// SPDX-License-Identifier: Apache-2.0
// Functions that hand their names to a log where a result is bad, as NCCL's do.
#define FAKE_API extern "C" __attribute__((visibility("default")))
#define CHECKED(call)                                                                              \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            return fake_log(__func__, __LINE__);                                                   \
    } while (false)

struct State {
    long unused[3];
    void *operations;
};
struct Comm {
    long unused[5];
    State *state;
};
struct Plan {
    int works, done;
};
struct Marked {
    long begin, unused[7], other, end;
};
constexpr long MARK = 0x0280028002800280, OTHER_MARK = 0x7310573105731057;

namespace {

__attribute__((noinline)) int fake_log(const char *function, int line) {
    asm volatile("" : : "r"(function) : "memory");
    return line;
}
// As of another unit: it is not known which registers it preserves.
__attribute__((noinline)) int opaque(const int *value) {
    asm volatile(""
                 :
                 : "r"(value)
                 : "memory", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11");
    return *value;
}

} // namespace

// Of more than this unit: the compiler leaves its arguments as they are.
int logsNothing(const Comm *comm);
__attribute__((noinline)) int logsNothing(const Comm *comm) {
    if (comm->state->operations == nullptr)
        return 0;
    return opaque(static_cast<int *>(comm->state->operations));
}

namespace {

// What is called between has the plan nowhere but in a register that is left alone.
__attribute__((noinline)) int startsWork(const Comm *comm, Plan *plan) {
    CHECKED(opaque(&plan->works));
    CHECKED(logsNothing(comm));
    plan->done = 1;
    return 0;
}

__attribute__((always_inline)) inline int inlinedTwice(const int *value) {
    CHECKED(opaque(value));
    return 0;
}
__attribute__((noinline)) int firstUser(const int *value) {
    CHECKED(inlinedTwice(value));
    CHECKED(opaque(value + 1));
    return 0;
}
__attribute__((noinline)) int secondUser(const int *value) {
    CHECKED(inlinedTwice(value + 2));
    CHECKED(opaque(value + 3));
    return 0;
}

// A function of its own, and inlined into one that has a name of its own.
__attribute__((always_inline)) inline int bodyOfBoth(const int *value, const char *function) {
    return opaque(value) != 0 ? fake_log(function, __LINE__) : 0;
}
constexpr char NAME_OF_BOTH[] = "ownAndInlined";
__attribute__((noinline)) int ownAndInlined(const int *value) {
    return bodyOfBoth(value, NAME_OF_BOTH) + 1;
}
__attribute__((noinline)) int hasItInlined(const int *value) {
    CHECKED(bodyOfBoth(value + 1, NAME_OF_BOTH));
    CHECKED(opaque(value + 2));
    return 0;
}

__attribute__((noinline)) int checksEnds(const Marked *value) {
    CHECKED(value->begin == MARK && value->end == MARK && value->other != OTHER_MARK ? 0 : 1);
    return 0;
}

int handedOn(void *value) {
    CHECKED(opaque(static_cast<int *>(value)));
    return 0;
}

} // namespace

using Work = int (*)(void *);
FAKE_API Work fake_work() {
    return handedOn;
}
FAKE_API int fake_all(const int *value, void *comm, void *plan) {
    return firstUser(value) + secondUser(value) + ownAndInlined(value) + hasItInlined(value) +
           startsWork(static_cast<Comm *>(comm), static_cast<Plan *>(plan)) +
           checksEnds(static_cast<Marked *>(comm));
}
FAKE_API char *fake_text() {
    static char text[64];
    asm volatile("" : : "r"(text) : "memory");
    return text;
}
