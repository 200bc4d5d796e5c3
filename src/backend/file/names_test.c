#include "backend/file/names.h"

#include "base/test.h"

#define ID "0123456789abcdef"

static void own_names_are_known(void **state)
{
    static const struct {
        ligi_name_folder folder;
        const char *name;
        ligi_name_kind kind;
        uint64_t id;
    } rows[] = {
        {LIGI_FOLDER_STORE, "ligament", LIGI_NAME_IN_STORE, 0},
        {LIGI_FOLDER_STORE, "ligament." ID, LIGI_NAME_IN_STORE, UINT64_C(0x0123456789abcdef)},
        {LIGI_FOLDER_STORE, "catalog.mdb-lock", LIGI_NAME_IN_STORE, 0},
        {LIGI_FOLDER_STORE, "writer." ID, LIGI_NAME_IN_STORE, UINT64_C(0x0123456789abcdef)},
        {LIGI_FOLDER_PACKS, ID ".pack", LIGI_NAME_PACK, UINT64_C(0x0123456789abcdef)},
        {LIGI_FOLDER_PACKS, "tmp-" ID, LIGI_NAME_PACK_TEMPORARY, UINT64_C(0x0123456789abcdef)},
        {LIGI_FOLDER_LOG, "numbered", LIGI_NAME_IN_LOG, 0},
        {LIGI_FOLDER_LEASES, ID, LIGI_NAME_LEASE, UINT64_C(0x0123456789abcdef)},
        {LIGI_FOLDER_LEASES, "run-" ID, LIGI_NAME_LOCK, UINT64_C(0x0123456789abcdef)},
        {LIGI_FOLDER_LEASES, "tmp-" ID, LIGI_NAME_LEASE_TEMPORARY, UINT64_C(0x0123456789abcdef)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t id = 1;
        assert_int_equal(ligi_name_read(rows[i].folder, rows[i].name, &id), rows[i].kind);
        assert_true(id == rows[i].id);
    }
}

static void other_names_are_foreign(void **state)
{
    static const struct {
        ligi_name_folder folder;
        const char *name;
    } rows[] = {
        {LIGI_FOLDER_STORE, ""},
        {LIGI_FOLDER_STORE, "ligament.txt"},
        {LIGI_FOLDER_STORE, "writers"},
        {LIGI_FOLDER_STORE, "writer." ID "0"},
        {LIGI_FOLDER_STORE, ID ".pack"},
        {LIGI_FOLDER_PACKS, "0000000000000000.pack"},
        {LIGI_FOLDER_PACKS, "0123456789ABCDEF.pack"},
        {LIGI_FOLDER_PACKS, "123456789abcdef.pack"},
        {LIGI_FOLDER_PACKS, ID ".pack.bak"},
        {LIGI_FOLDER_PACKS, ID},
        {LIGI_FOLDER_PACKS, "tmp-" ID "\n"},
        {LIGI_FOLDER_PACKS, "tmp-notes"},
        {LIGI_FOLDER_PACKS, "catalog.mdb"},
        {LIGI_FOLDER_LEASES, "."},
        {LIGI_FOLDER_LEASES, ".."},
        {LIGI_FOLDER_LEASES, "notes"},
        {LIGI_FOLDER_LEASES, "tmp-" ID ".old"},
        {LIGI_FOLDER_LEASES, ID ".pack"},
        {LIGI_FOLDER_LEASES, "run-notes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(ligi_name_read(rows[i].folder, rows[i].name, NULL), LIGI_NAME_FOREIGN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_names_are_known),
        cmocka_unit_test(other_names_are_foreign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
