#include "store/format/tensor_references.h"

#include "store_scene.h"

enum { MODELS = 40, TENSORS = 12, PACKS = 5, PLACES = 30 };

/* Which tensors a model has, by number: the place of number n is pack n % PACKS + 1. */
typedef struct composition {
    lig_stored_tensor tensors[TENSORS];
    ligi_manifest manifest;
    int numbers[TENSORS];
} composition;

static uint64_t bytes_of(int number)
{
    return (uint64_t)number * 10;
}

static void make(composition *model, uint64_t *seed)
{
    memset(model, 0, sizeof *model);
    for (int i = 0; i < TENSORS; i++) {
        int number = (int)(scene_random(seed) % PLACES);
        for (int j = 0; j < i; j++) /* a model names a place once; the rest lies inline */
            number = model->numbers[j] == number ? -1 : number;
        int tied = number >= 0 && i && scene_random(seed) % 8 == 0;
        model->numbers[i] = tied ? -1 : number;
        model->tensors[i] = (lig_stored_tensor){.tied = tied ? 0 : -1};
        if (number >= 0) {
            model->tensors[i].pack = (uint64_t)(number % PACKS) + 1;
            model->tensors[i].offset = 64 * (uint64_t)number;
            model->tensors[i].tensor.bytes = bytes_of(number);
        }
    }
    model->manifest.tensors = model->tensors;
    model->manifest.tensor_count = TENSORS;
}

static uint64_t slow_count(const composition *models, int number)
{
    uint64_t count = 0;
    for (int m = 0; m < MODELS; m++)
        for (int t = 0; t < TENSORS; t++)
            count += models[m].numbers[t] == number;
    return count;
}

static void test_against_slow(void **state)
{
    (void)state;
    static composition models[MODELS];
    uint64_t seed = 3;
    for (int round = 0; round < 200; round++) {
        ligi_ownership ownership = {0};
        uint64_t live[PACKS + 1] = {0};
        for (int m = 0; m < MODELS; m++) {
            make(&models[m], &seed);
            if (round % 3 == 0 && m > 2) /* few models: some places are dead */
                memset(models[m].numbers, 0xff, sizeof models[m].numbers);
            else
                assert_ok(ligi_ownership_add(&ownership, &models[m].manifest));
        }
        ligi_ownership_sum(&ownership);
        for (int number = 0; number < PLACES; number++) {
            uint64_t pack = (uint64_t)(number % PACKS) + 1, count = slow_count(models, number);
            const ligi_naming *found = ligi_ownership_find(&ownership, pack, 64 * (uint64_t)number);
            if (number == 0) /* no bytes, no need for a place */
                count = 0;
            assert_int_equal(found ? found->count : 0, count);
            live[pack] += count ? bytes_of(number) : 0;
        }
        for (uint64_t pack = 1; pack <= PACKS; pack++)
            assert_int_equal(ligi_ownership_live(&ownership, pack), live[pack]);
        assert_null(ligi_ownership_find(&ownership, PACKS + 1, 0));
        assert_int_equal(ligi_ownership_live(&ownership, PACKS + 1), 0);
        ligi_ownership_fini(&ownership);
    }
}

static void test_empty(void **state)
{
    (void)state;
    ligi_ownership ownership = {0};
    ligi_ownership_sum(&ownership);
    assert_null(ligi_ownership_find(&ownership, 1, 64));
    assert_int_equal(ligi_ownership_live(&ownership, 1), 0);
    ligi_ownership_fini(&ownership);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_slow),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
