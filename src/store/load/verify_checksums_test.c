#include "store/load/verify_checksums.h"

#include "base/hash.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { TENSORS = 12, BLOCKS_MAX = 4, TENSOR_BYTES_MAX = BLOCKS_MAX << 20 };

typedef struct scene {
    ligi_model model;
    lig_stored_tensor tensors[TENSORS];
    const uint64_t *hashes[TENSORS];
    uint64_t pool[TENSORS][BLOCKS_MAX];
    char names[TENSORS][16];
    uint8_t secret[LIG_SECRET_BYTES];
} scene;

static uint64_t random_bytes(int round)
{
    const uint64_t sizes[] = {0, 1, 4096, LIG_BLOCK_BYTES, LIG_BLOCK_BYTES + 1, TENSOR_BYTES_MAX};
    return round % 2 ? sizes[(size_t)rand() % 6] : (uint64_t)rand() % 5000;
}

/* Half of the cases are small enough for one thread, the others use two. */
static void make(scene *self, int round)
{
    for (int i = 0; i < TENSORS; i++) {
        lig_stored_tensor *stored = &self->tensors[i];
        snprintf(self->names[i], sizeof self->names[i], "t%d.", i);
        *stored = (lig_stored_tensor){.tied = i % 5 == 4 ? i - 1 : -1};
        stored->tensor.name = self->names[i];
        stored->tensor.bytes = random_bytes(round);
        stored->tensor.data = malloc(stored->tensor.bytes + 1);
        self->hashes[i] = self->pool[i];
        uint8_t *data = stored->tensor.data;
        for (uint64_t at = 0; at < stored->tensor.bytes; at++)
            data[at] = (uint8_t)(at * 31 + (uint64_t)i);
        for (uint64_t at = 0; at < stored->tensor.bytes; at += LIG_BLOCK_BYTES) {
            uint64_t left = stored->tensor.bytes - at;
            self->pool[i][at / LIG_BLOCK_BYTES] = ligi_hash64(
                self->secret, data + at, left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES);
        }
    }
    self->model.manifest.tensors = self->tensors;
    self->model.manifest.hashes = self->hashes;
    self->model.manifest.tensor_count = TENSORS;
}

static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    scene *self = calloc(1, sizeof *self);
    srand(3);
    for (int round = 0; round < 10; round++) {
        make(self, round);
        assert_ok(ligi_verify_placed(&self->model, self->secret));
        for (int i = 0; i < TENSORS; i++) {
            lig_stored_tensor *stored = &self->tensors[i];
            if (stored->tensor.bytes == 0)
                continue;
            uint8_t *hit = (uint8_t *)stored->tensor.data + (size_t)rand() % stored->tensor.bytes;
            *hit ^= 4;
            lig_status status = ligi_verify_placed(&self->model, self->secret);
            assert_int_equal(status, stored->tied >= 0 ? LIG_OK : LIG_E_CORRUPT);
            if (status != LIG_OK)
                assert_says(self->names[i]);
            *hit ^= 4;
        }
        for (int i = 0; i < TENSORS; i++)
            free(self->tensors[i].tensor.data);
    }
    free(self);
}

static void nothing_fits(void **state)
{
    (void)state;
    ligi_model empty = {0};
    assert_ok(ligi_verify_placed(&empty, "unused"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(nothing_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
