/* Makes a store of format 1, as older versions wrote it, from one that no process has open. */
#ifndef LIGI_FORMAT_1_H
#define LIGI_FORMAT_1_H

#include "backend/registry.h"

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const lig_backend_ops ligi_backend_file;

/* Puts every item under 0x01 and its key, and the version (unless 0) as 8 bytes; an LMDB number. */
static inline int format_1_fill(MDB_txn *txn, MDB_dbi dbi, void *snapshot, uint64_t version)
{
    uint8_t stored[65] = {1}, key[66] = {0}, text[8];
    size_t key_bytes = 1;
    lig_catalog_item item;
    int number = MDB_SUCCESS;

    while (number == MDB_SUCCESS &&
           ligi_backend_file.volume->catalog_seek(snapshot, key, key_bytes, &item) == LIG_OK) {
        memcpy(stored + 1, item.key, item.key_bytes);
        MDB_val name = {item.key_bytes + 1, stored}, value = {item.value_bytes, (void *)item.value};
        number = mdb_put(txn, dbi, &name, &value, 0);
        memcpy(key, item.key, item.key_bytes);
        key_bytes = item.key_bytes + (item.key_bytes < 64);
        key[item.key_bytes] = 0;
        for (size_t i = item.key_bytes; item.key_bytes == 64 && i-- > 0 && ++key[i] == 0;)
            ;
    }
    for (int i = 0; i < 8; i++)
        text[i] = (uint8_t)(version >> (8 * i));
    MDB_val name = {8, "\0version"}, value = {8, text};
    if (number == MDB_SUCCESS && version > 0)
        number = mdb_put(txn, dbi, &name, &value, 0);
    return number;
}

static inline int format_1_catalog(const char *path, void *snapshot, uint64_t version)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;

    int number = mdb_env_create(&env);
    if (number == MDB_SUCCESS)
        number = mdb_env_set_mapsize(env, UINT64_C(1) << 34);
    if (number == MDB_SUCCESS)
        number = mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOTLS | MDB_NOSYNC, 0666);
    if (number == MDB_SUCCESS)
        number = mdb_txn_begin(env, NULL, 0, &txn);
    if (number == MDB_SUCCESS) {
        number = mdb_dbi_open(txn, NULL, 0, &dbi);
        if (number == MDB_SUCCESS)
            number = format_1_fill(txn, dbi, snapshot, version);
        if (number == MDB_SUCCESS)
            number = mdb_txn_commit(txn);
        else
            mdb_txn_abort(txn);
    }
    mdb_env_close(env);
    return number;
}

/* 0, or what went wrong. */
static inline int format_1_make(const char *folder)
{
    const lig_volume_ops *ops = ligi_backend_file.volume;
    char text[512];
    void *volume, *snapshot;
    uint64_t version;

    snprintf(text, sizeof text, "%s?mode=r", folder);
    if (ligi_backend_file.open(&volume, text) != LIG_OK)
        return 1;
    if (ops->catalog_begin(volume, &snapshot, &version) != LIG_OK)
        return 2;
    snprintf(text, sizeof text, "%s/catalog.mdb", folder);
    int number = format_1_catalog(text, snapshot, version);
    ops->catalog_end(snapshot);
    ligi_backend_file.close(volume);
    if (number != MDB_SUCCESS)
        return number;
    snprintf(text, sizeof text,
             "cd '%s' && rm -r log index.mdb* && rm catalog.mdb-lock && "
             "echo 'ligament store, format 1' > ligament",
             folder);
    return system(text);
}

#endif
