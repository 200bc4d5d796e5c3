/* Copies to and from device memory, over the fake driver of tests/cuda. The driver is loaded once
 * per process, so each test runs in a child. */
#include "tensor/staging.h"

#include "base/test.h"
#include "cuda/fake_cuda.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

#include <ligament/backend.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* For a child process: cmocka's asserts would continue with the next test there. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s; %s)\n", __FILE__, __LINE__, #condition,                \
                    lig_error_text(), fake_cuda_breach());                                         \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call) CHECK((call) == LIG_OK)

static void in_child(void (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would continue with the next test here */
        body();
        CHECK(fake_cuda_breach()[0] == '\0');
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static uint8_t *noise(size_t bytes, unsigned seed)
{
    uint8_t *data = malloc(bytes + 1);
    uint64_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[i] = (uint8_t)(state >> 56);
    }
    return data;
}

static lig_status to_device(void *data, const void *host, size_t bytes, int device)
{
    return ligi_memory_from_host(data, host, bytes, LIG_MEMORY_CUDA, device);
}

static lig_status to_host(void *host, const void *data, size_t bytes, int device)
{
    return ligi_memory_to_host(host, data, bytes, LIG_MEMORY_CUDA, device);
}

static void round_trip(size_t bytes, int device)
{
    uint8_t *host = noise(bytes, (unsigned)bytes), *back = calloc(bytes + 1, 1);
    void *data = fake_cuda_alloc(bytes, device);
    CHECK_OK(to_device(data, host, bytes, device));
    CHECK(memcmp(data, host, bytes) == 0); /* it has arrived when the call returns */
    CHECK_OK(to_host(back, data, bytes, device));
    CHECK(memcmp(back, host, bytes) == 0);
    fake_cuda_free(data);
    free(host);
    free(back);
}

static void every_slot_is_free(void)
{
    ligi_cuda_slot slots[LIGI_CUDA_SLOTS], none;
    for (int i = 0; i < LIGI_CUDA_SLOTS; i++) {
        CHECK_OK(ligi_cuda_slot_take(0, 0, &slots[i]));
        CHECK(slots[i].data != NULL);
    }
    CHECK_OK(ligi_cuda_slot_take(0, 0, &none));
    CHECK(none.data == NULL);
    for (int i = 0; i < LIGI_CUDA_SLOTS; i++)
        ligi_cuda_slot_drop(&slots[i]);
}

static void copy_sizes(void)
{
    const size_t sizes[] = {0, 1, 4095, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 15 * MIB, 100 * MIB + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        round_trip(sizes[i], (int)i % FAKE_CUDA_DEVICES);
    every_slot_is_free();
    CHECK(fake_cuda_calls("cuMemHostRegister") == 1);
    CHECK(fake_cuda_live("contexts") == FAKE_CUDA_DEVICES);
}

static void sizes_and_devices(void **state)
{
    (void)state;
    in_child(copy_sizes);
}

/* More pieces than slots, and nothing is executed before it is waited for: a slot that was refilled
 * too early would be detected. */
static void push_many(void)
{
    const size_t bytes = 3 * LIGI_CUDA_SLOTS * LIGI_STAGING_BYTES;
    uint8_t *host = noise(bytes, 1), *data = fake_cuda_alloc(bytes, 1);
    memset(data, 0, bytes);
    for (size_t at = 0; at < bytes; at += LIGI_STAGING_BYTES)
        CHECK_OK(ligi_staging_push(data + at, host + at, LIGI_STAGING_BYTES, LIG_MEMORY_CUDA, 1));
    CHECK(memcmp(data, host, bytes) != 0);
    CHECK_OK(ligi_staging_finish(LIG_MEMORY_CUDA, 1));
    CHECK(memcmp(data, host, bytes) == 0);
    every_slot_is_free();
}

static void a_slot_waits_for_its_copies(void **state)
{
    (void)state;
    in_child(push_many);
}

static void drain_and_stop(void)
{
    const size_t bytes = 40 * MIB + 7;
    uint8_t *host = noise(bytes, 2), *data = fake_cuda_alloc(bytes, 0);
    memcpy(data, host, bytes);
    for (size_t stop = 0; stop < 30 * MIB; stop += 10 * MIB) { /* 0: to the end */
        ligi_drain drain;
        const uint8_t *from;
        uint64_t part, at = 0;
        ligi_drain_begin(&drain, data, bytes, LIG_MEMORY_CUDA, 0);
        do {
            CHECK_OK(ligi_drain_next(&drain, bytes, &from, &part));
            CHECK(memcmp(from, host + at, part) == 0);
            at += part;
        } while (part != 0 && (stop == 0 || at < stop));
        CHECK(stop != 0 || at == bytes);
        ligi_drain_end(&drain);
        every_slot_is_free();
    }
}

static void a_drain_reads_ahead_and_can_stop(void **state)
{
    (void)state;
    in_child(drain_and_stop);
}

/* A reader that holds slots and asks for more must not wait for the slots that it holds. */
static void drain_with_few_slots(void)
{
    ligi_cuda_slot held[LIGI_CUDA_SLOTS - 1];
    for (int i = 0; i < LIGI_CUDA_SLOTS - 1; i++)
        CHECK_OK(ligi_cuda_slot_take(0, 1, &held[i]));
    round_trip(10 * MIB, 0);
    for (int i = 0; i < LIGI_CUDA_SLOTS - 1; i++)
        ligi_cuda_slot_drop(&held[i]);
}

static void one_free_slot_is_enough(void **state)
{
    (void)state;
    in_child(drain_with_few_slots);
}

static const char *failing; /* the call that fails in the next child */
static unsigned failing_at;

/* --- order --- */

static void follow_streams(void)
{
    uint8_t *data = fake_cuda_alloc(MIB, 0), *back = malloc(MIB);
    void *streams[] = {NULL, (void *)1, (void *)2, fake_cuda_stream()};
    for (int i = 0; i < 4; i++) {
        memset(data, 0, MIB);
        fake_cuda_fill(streams[i], data, 10 + i, MIB);
        CHECK_OK(to_host(back, data, MIB, 0));
        CHECK(back[0] == 0); /* work queued on other streams is not waited for ... */
        CHECK_OK(lig_memory_follow(LIG_MEMORY_CUDA, 0, streams[i]));
        CHECK_OK(to_host(back, data, MIB, 0));
        CHECK(back[0] == 10 + i && back[MIB - 1] == 10 + i); /* ... unless that was asked for */
        fake_cuda_fill(streams[i], data, 99, MIB);
        CHECK_OK(lig_memory_follow(LIG_MEMORY_CUDA, 0, streams[i]));
        memset(back, 7, MIB);
        CHECK_OK(to_device(data, back, MIB, 0));
        CHECK(data[0] == 7); /* written after what still used the memory */
    }
    CHECK_OK(lig_memory_follow(LIG_MEMORY_HOST, 0, NULL));
}

static void copies_follow_a_stream(void **state)
{
    (void)state;
    in_child(follow_streams);
}

static void follow_captured(void)
{
    void *stream = fake_cuda_stream();
    fake_cuda_capture(stream, 1);
    CHECK(lig_memory_follow(LIG_MEMORY_CUDA, 0, stream) == LIG_E_INVALID);
    CHECK(strstr(lig_error_text(), "captured"));
    fake_cuda_capture(stream, 0);
    CHECK_OK(lig_memory_follow(LIG_MEMORY_CUDA, 0, stream));
}

static void a_captured_stream_is_refused(void **state)
{
    (void)state;
    in_child(follow_captured);
}

/* --- hashes --- */

static void hash_blocks(void)
{
    enum { COUNT = 70000 }; /* more than one launch */
    const size_t bytes = 8 * MIB;
    uint8_t secret[LIG_SECRET_BYTES], *data = fake_cuda_alloc(bytes, 1), *host = noise(bytes, 8);
    memcpy(secret, host, sizeof secret);
    memcpy(data, host, bytes);
    ligi_memory_block *blocks = calloc(COUNT, sizeof *blocks);
    uint64_t *hashes = calloc(COUNT, sizeof *hashes);
    CHECK(ligi_memory_hash_least(LIG_MEMORY_CUDA, 1) == 241);
    for (size_t i = 0; i < COUNT; i++) {
        size_t size = i < 5 ? MIB - i : 241 + i % 1500;
        blocks[i] = (ligi_memory_block){data + i % 97 * 1000, size, &hashes[i]};
    }
    CHECK_OK(ligi_memory_hash(secret, blocks, COUNT, LIG_MEMORY_CUDA, 1));
    for (size_t i = 0; i < COUNT; i++)
        CHECK(hashes[i] == lig_hash_block(secret, host + i % 97 * 1000, blocks[i].bytes));
    CHECK_OK(ligi_memory_hash(secret, blocks, 3, LIG_MEMORY_HOST, 0));
    every_slot_is_free();
}

static void hash_refused(void)
{
    fake_cuda_fail(failing, 1, 222);
    CHECK(ligi_memory_hash_least(LIG_MEMORY_CUDA, 0) == UINT64_MAX);
    CHECK(ligi_memory_hash_least(LIG_MEMORY_CUDA, 0) == UINT64_MAX);
    CHECK(fake_cuda_live("modules") == 0);
    round_trip(MIB, 0);
}

static void hash_failed(void)
{
    uint8_t secret[LIG_SECRET_BYTES] = {0}, *data = fake_cuda_alloc(MIB, 0);
    uint64_t hash = 0;
    ligi_memory_block block = {data, MIB, &hash};
    CHECK(ligi_memory_hash_least(LIG_MEMORY_CUDA, 0) == 241);
    fake_cuda_fail(failing, 1, 719);
    CHECK(ligi_memory_hash(secret, &block, 1, LIG_MEMORY_CUDA, 0) == LIG_E_IO);
    CHECK(strstr(lig_error_text(), "cannot hash memory of CUDA device 0: fake error 719"));
    fake_cuda_fail(failing, 0, 0);
    CHECK_OK(ligi_memory_hash(secret, &block, 1, LIG_MEMORY_CUDA, 0));
    CHECK(hash == lig_hash_block(secret, data, MIB));
    every_slot_is_free();
}

static void blocks_are_hashed_on_the_device(void **state)
{
    (void)state;
    static const char *const loads[] = {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuMemAlloc"};
    static const char *const runs[] = {"cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync",
                                       "cuEventRecord", "cuEventSynchronize"};
    in_child(hash_blocks);
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        failing = loads[i];
        in_child(hash_refused);
    }
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        failing = runs[i];
        in_child(hash_failed);
    }
}

/* --- failures --- */

static lig_status use_all(void)
{
    const size_t bytes = 5 * MIB;
    static uint8_t *host, *back;
    host = host ? host : noise(bytes, 3);
    back = back ? back : malloc(bytes);
    void *data = fake_cuda_alloc(bytes, 0);
    memset(back, 0, bytes);
    lig_status status = lig_memory_follow(LIG_MEMORY_CUDA, 0, NULL);
    if (status == LIG_OK)
        status = to_device(data, host, bytes, 0);
    if (status == LIG_OK)
        status = to_host(back, data, bytes, 0);
    CHECK(status != LIG_OK || memcmp(back, host, bytes) == 0);
    fake_cuda_free(data);
    return status;
}

/* Whatever fails: the error text contains the driver's message, nothing leaks, and the next attempt
 * succeeds. */
static void fail_once(void)
{
    fake_cuda_fail(failing, failing_at, 719);
    lig_status status = use_all();
    if (status == LIG_OK)
        return; /* it is not called that often, or its outcome does not matter */
    CHECK(strstr(lig_error_text(), "CUDA"));
    CHECK(strstr(lig_error_text(), "fake error 719") || strcmp(failing, "cuDeviceGet") == 0);
    if (fake_cuda_live("pinned") == 0 && fake_cuda_live("contexts") == 0)
        CHECK(fake_cuda_live("streams") == 0 && fake_cuda_live("events") == 0);
    fake_cuda_fail(failing, 0, 0);
    if (strcmp(failing, "cuInit") != 0)
        CHECK_OK(use_all());
    else
        CHECK(use_all() == LIG_E_UNSUPPORTED);
    if (fake_cuda_live("pinned"))
        every_slot_is_free();
}

static void each_call_may_fail(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuInit",
                                        "cuDeviceGet",
                                        "cuDevicePrimaryCtxRetain",
                                        "cuCtxPushCurrent",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuStreamCreate",
                                        "cuStreamWaitEvent",
                                        "cuStreamIsCapturing",
                                        "cuStreamSynchronize",
                                        "cuEventCreate",
                                        "cuEventRecord",
                                        "cuEventSynchronize",
                                        "cuMemHostRegister",
                                        "cuMemcpyHtoDAsync",
                                        "cuMemcpyDtoHAsync"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (failing_at = 1; failing_at <= 5; failing_at++) {
            failing = calls[i];
            in_child(fail_once);
        }
}

static void pin_too_much(void)
{
    fake_cuda_fail("cuMemHostRegister", 1, 2);
    CHECK(use_all() == LIG_E_NOMEM);
    CHECK(strstr(lig_error_text(), "cannot pin"));
}

static void lose_device(void)
{
    CHECK_OK(use_all());
    fake_cuda_lose(999);
    CHECK(use_all() == LIG_E_IO);
    CHECK(strstr(lig_error_text(), "fake error 999"));
    fake_cuda_lose(0);
    every_slot_is_free();
    CHECK_OK(use_all());
}

static void memory_and_devices_may_be_gone(void **state)
{
    (void)state;
    in_child(pin_too_much);
    in_child(lose_device);
}

static void use_old_driver(void)
{
    fake_cuda_hide("cuStreamIsCapturing");
    for (int i = 0; i < 2; i++) {
        CHECK(use_all() == LIG_E_UNSUPPORTED);
        CHECK(strstr(lig_error_text(), "has no cuStreamIsCapturing: it is too old"));
    }
}

static void an_old_driver_is_named(void **state)
{
    (void)state;
    in_child(use_old_driver);
}

static void use_after_fork(void)
{
    CHECK_OK(use_all());
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        lig_status status = ligi_memory_usable(LIG_MEMORY_CUDA, 0);
        _exit(status == LIG_E_CLOSED && strstr(lig_error_text(), "fork") ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(use_all());
}

static void a_forked_child_is_refused(void **state)
{
    (void)state;
    in_child(use_after_fork);
}

static lig_status check_at(void *data, int device)
{
    const int64_t shape[] = {100};
    lig_tensor tensor = {.name = "w",
                         .data = data,
                         .bytes = 100,
                         .shape = shape,
                         .ndim = 1,
                         .dtype = LIG_UINT8,
                         .memory = LIG_MEMORY_CUDA,
                         .device = device};
    return lig_tensors_check(&tensor, 1);
}

static void check_places(void)
{
    void *data = fake_cuda_alloc(100, 1);
    CHECK_OK(check_at(data, 1));
    CHECK(check_at(data, 0) == LIG_E_INVALID);
    CHECK(strstr(lig_error_text(), "'w'") && strstr(lig_error_text(), "memory of CUDA device 1"));
    CHECK(check_at((char *)data + 1, 1) == LIG_E_INVALID);
    CHECK(check_at(data, 2) == LIG_E_UNSUPPORTED);
    CHECK(strstr(lig_error_text(), "no CUDA device 2: this process sees 2"));
    CHECK(check_at(data, -1) == LIG_E_UNSUPPORTED);
    fake_cuda_free(data);
    CHECK(check_at(data, 1) == LIG_E_INVALID);
    CHECK(strstr(lig_error_text(), "is not CUDA memory"));
}

static void wrong_places_are_refused(void **state)
{
    (void)state;
    in_child(check_places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_devices),
        cmocka_unit_test(a_slot_waits_for_its_copies),
        cmocka_unit_test(a_drain_reads_ahead_and_can_stop),
        cmocka_unit_test(one_free_slot_is_enough),
        cmocka_unit_test(copies_follow_a_stream),
        cmocka_unit_test(a_captured_stream_is_refused),
        cmocka_unit_test(blocks_are_hashed_on_the_device),
        cmocka_unit_test(each_call_may_fail),
        cmocka_unit_test(memory_and_devices_may_be_gone),
        cmocka_unit_test(an_old_driver_is_named),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(wrong_places_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
