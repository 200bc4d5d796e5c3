/* What the tests of the file volume have in common: a folder that comes and goes, and short names
 * for long calls. */
#ifndef LIGI_FILE_VOLUME_H
#define LIGI_FILE_VOLUME_H

#include "backend/registry.h"
#include "base/test.h"
#include "commit_ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern const lig_backend_ops ligi_backend_file;

#define OPS (ligi_backend_file.volume)
#define FOLDER_BYTES 64

static const uint8_t test_secret[LIG_SECRET_BYTES] = {1, 2, 3};

static inline int remove_entry(const char *path, const struct stat *info, int kind,
                               struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

/* The state of a test is the path of a fresh folder that does not exist yet. */
static inline int folder_setup(void **state)
{
    char *folder = malloc(FOLDER_BYTES);

    snprintf(folder, FOLDER_BYTES, "/tmp/ligament-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    strncat(folder, "/store", FOLDER_BYTES - strlen(folder) - 1);
    *state = folder;
    return 0;
}

static inline int folder_teardown(void **state)
{
    char *folder = *state;

    *strrchr(folder, '/') = '\0';
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
    return 0;
}

#define folder_test(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

static inline lig_status open_at(const char *folder, const char *options, void **volume)
{
    char config[512];

    snprintf(config, sizeof config, "%s?%s", folder, options);
    return ligi_backend_file.open(volume, config);
}

static inline void close_at(void *volume)
{
    ligi_backend_file.close(volume);
}

static inline lig_status commit_text(void *volume, uint64_t version, const char *key,
                                     const char *value)
{
    const lig_catalog_op op = {key, strlen(key), value, strlen(value)};
    return commit_ops(OPS, volume, version, &op, 1);
}

static inline uint64_t version_of(void *volume)
{
    uint64_t version = UINT64_MAX;
    void *snapshot;

    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    OPS->catalog_end(snapshot);
    return version;
}

/* A sealed pack of `bytes` bytes 0, 1, 2, ..., with the hashes of its blocks. */
static inline uint64_t seal_pack(void *volume, uint64_t bytes, uint64_t *hashes)
{
    uint8_t *data = malloc(bytes);
    lig_piece piece = {.data = data, .bytes = bytes, .hashes = hashes};
    uint64_t id = 0;
    void *pack;

    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i + (i >> 8) * 3);
    assert_ok(OPS->pack_create(volume, bytes, test_secret, &pack));
    assert_ok(OPS->pack_put(pack, &piece));
    assert_ok(OPS->pack_seal(pack, &id));
    OPS->pack_close(pack);
    free(data);
    return id;
}

static inline void pack_path(char *path, size_t path_bytes, const char *folder, uint64_t id)
{
    snprintf(path, path_bytes, "%s/packs/%016llx.pack", folder, (unsigned long long)id);
}

/* How many entries of the folder start so. */
static inline int count_entries(const char *folder, const char *start)
{
    DIR *listing = opendir(folder);
    int count = 0;

    for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 strncmp(entry->d_name, start, strlen(start)) == 0;
    if (listing != NULL)
        closedir(listing);
    return count;
}

/* A child that does not outlive a test that fails. */
static inline pid_t child_fork(void)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

/* A child that runs `body` and then waits to be killed; returns when the child says that it is
 * ready. */
static inline pid_t child_start(void (*body)(void *context), void *context)
{
    int ready[2];
    char byte = 0;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = child_fork();
    if (child == 0) {
        body(context);
        if (write(ready[1], &byte, 1) != 1)
            _exit(9);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static inline void child_kill(pid_t child)
{
    int status;

    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
}

/* Runs `body` in a child and returns what it returns. */
static inline int child_run(int (*body)(void *context), void *context)
{
    int status;

    pid_t child = child_fork();
    if (child == 0)
        _exit(body(context));
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
