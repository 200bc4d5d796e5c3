/* Any bytes as a catalog file: they are rejected, or accepted and LMDB can walk them. */
#include "backend/file/catalog/catalog_check.h"

#include <lmdb.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const char *path)
{
    MDB_val key, value;
    MDB_cursor *cursor;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;

    if (mdb_env_create(&env) != MDB_SUCCESS)
        return;
    if (mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK, 0) == MDB_SUCCESS &&
        mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) == MDB_SUCCESS) {
        if (mdb_dbi_open(txn, NULL, 0, &dbi) == MDB_SUCCESS &&
            mdb_cursor_open(txn, dbi, &cursor) == MDB_SUCCESS) {
            volatile uint8_t seen = 0;
            for (int i = 0;
                 i < 10000 && mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == MDB_SUCCESS; i++)
                if (value.mv_size > 0)
                    seen ^= ((const uint8_t *)value.mv_data)[value.mv_size - 1];
            mdb_cursor_close(cursor);
        }
        mdb_txn_abort(txn);
    }
    mdb_env_close(env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];

    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ligi_file_catalog_check(fd, "fuzz") == LIG_OK && size > 0)
        walk(path);
    close(fd);
    return 0;
}
