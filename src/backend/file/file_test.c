#include "file_volume.h"

#include <sys/mount.h>

static void modes(void **state)
{
    const char *folder = *state;
    void *volume = NULL, *second = NULL;
    char path[128];

    assert_status(open_at(folder, "mode=r", &volume), LIG_E_NOTFOUND);
    assert_null(volume);
    assert_ok(open_at(folder, "mode=w", &volume));
    assert_status(open_at(folder, "mode=w", &second), LIG_E_EXISTS);
    assert_ok(open_at(folder, "mode=a", &second));
    close_at(second);
    assert_ok(open_at(folder, "mode=r", &second));
    assert_int_equal(OPS->flags(second) & LIG_VOLUME_READ_ONLY, LIG_VOLUME_READ_ONLY);
    assert_status(OPS->pack_create(second, 1, test_secret, &volume), LIG_E_DENIED);
    assert_status(commit_text(second, 0, "k", "v"), LIG_E_DENIED);
    close_at(second);
    close_at(volume);
    snprintf(path, sizeof path, "%s/ligament", folder);
    FILE *marker = fopen(path, "r");
    char line[64] = "";
    assert_non_null(fgets(line, sizeof line, marker));
    fclose(marker);
    assert_string_equal(line, "ligament store, format 2\n");
    assert_int_equal(count_entries(folder, "ligament"), 1);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void folders_that_are_no_stores(void **state)
{
    const char *folder = *state;
    void *volume = NULL;

    assert_int_equal(mkdir(folder, 0777), 0);
    write_text(folder, "thesis.tex", "important");
    assert_status(open_at(folder, "", &volume), LIG_E_EXISTS);
    assert_says("thesis.tex");
    assert_status(open_at(folder, "mode=r", &volume), LIG_E_NOTFOUND);
    assert_int_equal(count_entries(folder, ""), 1);
    write_text(folder, "ligament", "ligament store, format 3\n");
    assert_status(open_at(folder, "", &volume), LIG_E_UNSUPPORTED);
    assert_says("format 3");
    write_text(folder, "ligament", "GIF89a");
    assert_status(open_at(folder, "", &volume), LIG_E_CORRUPT);
    char path[128];
    snprintf(path, sizeof path, "%s/thesis.tex", folder);
    assert_status(open_at(path, "", &volume), LIG_E_INVALID);
    assert_null(volume);
}

static void options_are_checked(void **state)
{
    const char *folder = *state;
    const char *const wrong[] = {"mode=x", "direct=2", "uring=no",   "share=mine",
                                 "map=1",  "lease=0",  "cache=much", "colour=red"};
    void *volume = NULL;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_status(open_at(folder, wrong[i], &volume), LIG_E_INVALID);
    assert_says("cache");
    assert_status(ligi_backend_file.open(&volume, ""), LIG_E_INVALID);
    assert_int_equal(access(folder, F_OK), -1);
}

static void parents_are_made(void **state)
{
    char path[128];
    void *volume;

    snprintf(path, sizeof path, "%s/a/b", (const char *)*state);
    assert_ok(open_at(path, "", &volume));
    close_at(volume);
}

static void lost_marker_is_made_again(void **state)
{
    const char *folder = *state;
    char path[128];
    void *volume;

    assert_ok(open_at(folder, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    close_at(volume);
    snprintf(path, sizeof path, "%s/ligament", folder);
    assert_int_equal(unlink(path), 0);
    assert_ok(open_at(folder, "", &volume));
    assert_int_equal(version_of(volume), 1);
    close_at(volume);
}

typedef struct holder {
    const char *folder, *options;
    void *volume, *pack;
    uint64_t id;
    int id_pipe[2];
} holder;

static void leave_half_a_pack(void *context)
{
    holder *self = context;
    const lig_piece piece = {.data = self, .bytes = sizeof *self};

    if (open_at(self->folder, self->options, &self->volume) != LIG_OK ||
        OPS->pack_create(self->volume, 1, test_secret, &self->pack) != LIG_OK ||
        OPS->pack_put(self->pack, &piece) != LIG_OK)
        _exit(3);
}

static void dead_writers_leave_nothing(void **state)
{
    const char *folder = *state;
    holder self = {.folder = folder, .options = ""};
    char packs[128];
    void *volume;

    snprintf(packs, sizeof packs, "%s/packs", folder);
    pid_t child = child_start(leave_half_a_pack, &self);
    assert_ok(open_at(folder, "", &volume));
    assert_int_equal(count_entries(packs, "tmp-"), 1);
    close_at(volume);
    child_kill(child);
    assert_ok(open_at(folder, "mode=r", &volume));
    close_at(volume);
    assert_int_equal(count_entries(packs, "tmp-"), 1);
    assert_ok(open_at(folder, "", &volume));
    assert_int_equal(count_entries(packs, "tmp-"), 0);
    close_at(volume);
}

static void seal_and_hold(void *context)
{
    holder *self = context;

    leave_half_a_pack(self);
    if (OPS->pack_seal(self->pack, &self->id) != LIG_OK ||
        write(self->id_pipe[1], &self->id, sizeof self->id) != sizeof self->id)
        _exit(4);
}

static void packs_of_the_living_are_held(void **state)
{
    const char *folder = *state;
    holder self = {.folder = folder, .options = ""};
    void *volume, *claim = NULL;
    uint64_t id;

    assert_int_equal(pipe2(self.id_pipe, O_CLOEXEC), 0);
    assert_ok(open_at(folder, "", &volume));
    pid_t child = child_start(seal_and_hold, &self);
    assert_int_equal(read(self.id_pipe[0], &id, sizeof id), sizeof id);
    assert_status(OPS->pack_claim(volume, id, &claim), LIG_E_BUSY);
    child_kill(child);
    assert_ok(OPS->pack_claim(volume, id, &claim));
    assert_ok(OPS->pack_remove(volume, id));
    OPS->pack_close(claim);
    close_at(volume);
    close(self.id_pipe[0]);
    close(self.id_pipe[1]);
}

#define PACK_BYTES (5 * LIG_BLOCK_BYTES / 2)

static lig_status read_three(void *volume, uint64_t id, const uint64_t *hashes, size_t *bad)
{
    static uint8_t data[PACK_BYTES];
    const lig_range ranges[] = {
        {.data = data, .bytes = LIG_BLOCK_BYTES, .offset = 0, .hashes = hashes},
        {.data = data + LIG_BLOCK_BYTES,
         .bytes = LIG_BLOCK_BYTES,
         .offset = LIG_BLOCK_BYTES,
         .hashes = hashes + 1},
        {.data = data + 2 * LIG_BLOCK_BYTES,
         .bytes = PACK_BYTES - 2 * LIG_BLOCK_BYTES,
         .offset = 2 * LIG_BLOCK_BYTES,
         .hashes = hashes + 2},
    };
    return OPS->pack_read(volume, id, test_secret, ranges, 3, bad);
}

static void damaged_packs(void **state)
{
    const char *folder = *state, *const options[] = {"", "cache=0", "direct=0", "uring=0"};
    uint64_t hashes[3];
    char path[128];
    void *volume;

    for (size_t i = 0; i < 4; i++) {
        size_t bad = 99;
        assert_ok(open_at(folder, options[i], &volume));
        uint64_t id = seal_pack(volume, PACK_BYTES, hashes);
        assert_ok(read_three(volume, id, hashes, &bad));
        pack_path(path, sizeof path, folder, id);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, LIG_BLOCK_BYTES + 4711), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, LIG_BLOCK_BYTES + 4711), 1);
        assert_status(read_three(volume, id, hashes, &bad), LIG_E_CORRUPT);
        assert_int_equal(bad, 1);
        assert_int_equal(fsync(fd), 0);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        bad = 99;
        assert_status(read_three(volume, id, hashes, &bad), LIG_E_CORRUPT);
        assert_int_equal(bad, 1);
        assert_int_equal(ftruncate(fd, 2 * LIG_BLOCK_BYTES + 100), 0);
        assert_status(read_three(volume, id, hashes, &bad), LIG_E_CORRUPT);
        assert_int_equal(bad, 2);
        assert_int_equal(ftruncate(fd, 0), 0);
        lig_mapping mapping;
        assert_status(OPS->pack_map(volume, id, 0, &mapping), LIG_E_CORRUPT);
        close(fd);
        close_at(volume);
    }
}

static int use_in_child(void *context)
{
    holder *self = context;
    lig_catalog_item item;
    uint64_t number;
    lig_piece piece = {.data = "x", .bytes = 1, .offset = 4096};
    char text[128];
    void *out = NULL;
    size_t bad;

    int wrong = 0;
    wrong += OPS->pack_create(self->volume, 1, test_secret, &out) != LIG_E_CLOSED;
    wrong += strstr(lig_error_text(), "fork") == NULL;
    wrong += OPS->pack_put(self->pack, &piece) != LIG_E_CLOSED;
    wrong += OPS->pack_seal(self->pack, &number) != LIG_E_CLOSED;
    wrong += OPS->pack_size(self->volume, 1, &number) != LIG_E_CLOSED;
    wrong += OPS->pack_next(self->volume, 0, &number) != LIG_E_CLOSED;
    wrong += OPS->pack_read(self->volume, self->id, test_secret, NULL, 0, &bad) != LIG_E_CLOSED;
    wrong += OPS->pack_claim(self->volume, self->id, &out) != LIG_E_CLOSED;
    wrong += OPS->catalog_begin(self->volume, &out, &number) != LIG_E_CLOSED;
    wrong += OPS->catalog_get(*(void **)self->folder, "k", 1, &item) != LIG_E_CLOSED;
    wrong += commit_text(self->volume, 1, "k", "child") != LIG_E_CLOSED;
    OPS->describe(self->volume, text, sizeof text);
    OPS->catalog_end(*(void **)self->folder);
    OPS->pack_close(self->pack);
    close_at(self->volume);
    return wrong;
}

/* A child finds everything closed, closes it, may open the place anew, and the parent does not
 * notice. */
static void forks(void **state)
{
    const char *folder = *state;
    holder self = {0};
    void *snapshot;
    uint64_t version;
    lig_catalog_item item;

    assert_ok(open_at(folder, "cache=0", &self.volume));
    assert_ok(commit_text(self.volume, 0, "k", "v"));
    self.id = seal_pack(self.volume, PACK_BYTES, NULL);
    assert_ok(OPS->catalog_begin(self.volume, &snapshot, &version));
    assert_ok(OPS->pack_create(self.volume, 1 << 20, test_secret, &self.pack));
    const lig_piece piece = {.data = folder, .bytes = 8};
    assert_ok(OPS->pack_put(self.pack, &piece));
    self.folder = (const char *)&snapshot;
    assert_int_equal(child_run(use_in_child, &self), 0);
    assert_ok(OPS->catalog_get(snapshot, "k", 1, &item));
    assert_memory_equal(item.value, "v", 1);
    OPS->catalog_end(snapshot);
    assert_ok(OPS->pack_seal(self.pack, &self.id));
    OPS->pack_close(self.pack);
    assert_ok(commit_text(self.volume, 1, "k", "w"));
    close_at(self.volume);
}

static int open_in_child(void *context)
{
    void *volume;

    if (open_at(context, "", &volume) != LIG_OK || commit_text(volume, 1, "k", "child") != LIG_OK)
        return 1;
    close_at(volume);
    return 0;
}

static void children_open_anew(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    assert_int_equal(child_run(open_in_child, *state), 0);
    assert_int_equal(version_of(volume), 2);
    assert_ok(commit_text(volume, 2, "k", "w"));
    close_at(volume);
}

/* Fills a file system of 24 MiB. */
static void full_disks(void **state)
{
    const char *folder = *state;
    const char *const options[] = {"cache=0&direct=1", "direct=0", "cache=0&uring=0&direct=1"};
    uint64_t hashes[3];
    size_t bad;

    assert_int_equal(mkdir(folder, 0777), 0);
    if (mount("none", folder, "tmpfs", 0, "size=24m") != 0) {
        printf("    skipped: mounting a small file system needs root\n");
        skip();
    }
    for (size_t i = 0; i < 3; i++) {
        uint8_t *data = calloc(1, LIG_BLOCK_BYTES);
        lig_status status = LIG_OK;
        void *volume, *pack;
        uint64_t id;

        assert_ok(open_at(folder, options[i], &volume));
        uint64_t kept = seal_pack(volume, PACK_BYTES, hashes);
        assert_ok(OPS->pack_create(volume, 64 << 20, test_secret, &pack));
        for (uint64_t at = 0; at < 64 && status == LIG_OK; at++) {
            const lig_piece piece = {
                .data = data, .bytes = LIG_BLOCK_BYTES, .offset = at * LIG_BLOCK_BYTES};
            status = OPS->pack_put(pack, &piece);
        }
        if (status == LIG_OK)
            status = OPS->pack_seal(pack, &id);
        assert_status(status, LIG_E_IO);
        assert_int_equal(lig_error_number(), ENOSPC);
        assert_says(folder);
        assert_status(OPS->pack_seal(pack, &id), LIG_E_IO);
        OPS->pack_close(pack);
        assert_ok(read_three(volume, kept, hashes, &bad));
        assert_ok(OPS->pack_remove(volume, kept));
        assert_ok(commit_text(volume, i, "k", "v"));
        close_at(volume);
        free(data);
    }
    umount2(folder, MNT_DETACH);
}

/* A commit that finds no room changes nothing, and the next one works when there is room again. */
static void full_disks_and_catalogs(void **state)
{
    const char *folder = *state;
    uint8_t *value = calloc(1, 3 << 20);
    const lig_catalog_op op = {"large", 5, value, 3 << 20};
    char filler[128];
    void *volume;

    assert_int_equal(mkdir(folder, 0777), 0);
    if (mount("none", folder, "tmpfs", 0, "size=8m") != 0) {
        printf("    skipped: mounting a small file system needs root\n");
        free(value);
        skip();
    }
    assert_ok(open_at(folder, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    snprintf(filler, sizeof filler, "%s/packs/filler", folder);
    int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    off_t filled = 0;
    for (ssize_t got; (got = write(fd, value, 65536)) > 0; filled += got) {
    }
    /* No room at all, and room for a part of it. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ftruncate(fd, filled - i * (1 << 20)), 0);
        assert_status(commit_ops(OPS, volume, 1, &op, 1), LIG_E_IO);
        assert_int_equal(lig_error_number(), ENOSPC);
        assert_int_equal(version_of(volume), 1);
    }
    while (write(fd, value, 4096) > 0) {
    }
    close(fd);
    char other[128];
    void *none;
    snprintf(other, sizeof other, "%s/packs/other", folder);
    assert_status(open_at(other, "", &none), LIG_E_IO);
    assert_int_equal(lig_error_number(), ENOSPC);
    assert_says(other);
    unlink(filler);
    assert_ok(commit_ops(OPS, volume, 1, &op, 1));
    assert_int_equal(version_of(volume), 2);
    close_at(volume);
    umount2(folder, MNT_DETACH);
    free(value);
}

/* What was made before the file system became read-only can be read, and only read. */
static void read_only_file_systems(void **state)
{
    const char *folder = *state;
    uint64_t hashes[3], version;
    void *volume = NULL, *snapshot;
    size_t bad;

    assert_int_equal(mkdir(folder, 0777), 0);
    if (mount("none", folder, "tmpfs", 0, "size=24m") != 0) {
        printf("    skipped: mounting a file system needs root\n");
        skip();
    }
    assert_ok(open_at(folder, "", &volume));
    uint64_t id = seal_pack(volume, PACK_BYTES, hashes);
    assert_ok(commit_text(volume, 0, "k", "v"));
    close_at(volume);
    assert_int_equal(mount("none", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=24m"), 0);
    assert_status(open_at(folder, "", &volume), LIG_E_DENIED);
    assert_says("mode=r");
    assert_ok(open_at(folder, "mode=r", &volume));
    assert_ok(read_three(volume, id, hashes, &bad));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_int_equal(version, 1);
    OPS->catalog_end(snapshot);
    close_at(volume);
    char path[128];
    snprintf(path, sizeof path, "%s/new/store", folder);
    assert_status(open_at(path, "", &volume), LIG_E_DENIED);
    umount2(folder, MNT_DETACH);
}

/* Opening the place again does not take the temporaries of this process for those of the dead. */
static void own_temporaries_stay(void **state)
{
    char shared[FOLDER_BYTES + 32];
    const char *const options[] = {"", shared};

    snprintf(shared, sizeof shared, "share=network&index=%s-index", (const char *)*state);
    for (size_t i = 0; i < 2; i++) {
        void *first, *second, *pack;
        uint64_t id;

        assert_ok(open_at(*state, options[i], &first));
        assert_ok(OPS->pack_create(first, 10, test_secret, &pack));
        assert_ok(open_at(*state, options[i], &second));
        close_at(second);
        assert_ok(OPS->pack_seal(pack, &id));
        OPS->pack_close(pack);
        close_at(first);
    }
}

static void open_for_ever(const char *folder)
{
    void *volume;

    while (open_at(folder, "fsync=0", &volume) == LIG_OK)
        close_at(volume);
}

/* Every open looks for temporaries of the dead; those of the living come through. */
static void cleaners_spare_the_living(void **state)
{
    void *volume;
    uint64_t bytes;

    assert_ok(open_at(*state, "fsync=0", &volume));
    pid_t child = child_fork();
    if (child == 0) {
        open_for_ever(*state);
        _exit(1);
    }
    for (int i = 0; i < 400; i++) {
        uint64_t id = seal_pack(volume, 100, NULL);
        assert_ok(OPS->pack_size(volume, id, &bytes));
        assert_int_equal(bytes, 100);
    }
    child_kill(child);
    close_at(volume);
}

static void do_nothing(void *context)
{
    (void)context;
}

/* A child that is forked during a save has a copy of the lock, and must not keep it. */
static void forks_do_not_keep_locks(void **state)
{
    const char *folder = *state;
    void *volume, *pack, *claim;
    uint64_t id;

    assert_ok(open_at(folder, "", &volume));
    assert_ok(OPS->pack_create(volume, 10, test_secret, &pack));
    pid_t child = child_start(do_nothing, NULL);
    assert_ok(OPS->pack_seal(pack, &id));
    OPS->pack_close(pack);
    assert_ok(OPS->pack_claim(volume, id, &claim));
    OPS->pack_close(claim);
    child_kill(child);
    close_at(volume);
}

/* A reader leaves no trace, follows the writer, and its views stay as they were. */
static void readers_write_nothing(void **state)
{
    const char *folder = *state;
    void *writer, *reader, *before, *after;
    lig_catalog_item item;
    uint64_t version;
    char lock[128], log[128];

    assert_ok(open_at(folder, "", &writer));
    assert_ok(commit_text(writer, 0, "k", "old"));
    close_at(writer);
    snprintf(lock, sizeof lock, "%s/index.mdb-lock", folder);
    assert_int_equal(unlink(lock), 0);
    assert_ok(open_at(folder, "mode=r", &reader));
    assert_ok(OPS->catalog_begin(reader, &before, &version));
    assert_int_equal(version, 1);
    assert_int_equal(access(lock, F_OK), -1);
    assert_int_equal(count_entries(folder, ""), 4); /* ligament, index.mdb, log, packs */
    snprintf(log, sizeof log, "%s/log", folder);
    assert_int_equal(count_entries(log, ""), 2);
    assert_ok(open_at(folder, "", &writer));
    for (uint64_t i = 1; i < 20; i++)
        assert_ok(commit_text(writer, i, "k", "new"));
    assert_ok(OPS->catalog_begin(reader, &after, &version));
    assert_int_equal(version, 20);
    assert_ok(OPS->catalog_get(before, "k", 1, &item));
    assert_memory_equal(item.value, "old", 3);
    assert_ok(OPS->catalog_get(after, "k", 1, &item));
    assert_memory_equal(item.value, "new", 3);
    OPS->catalog_end(before);
    OPS->catalog_end(after);
    close_at(reader);
    close_at(writer);
}

static void readers_without_a_catalog(void **state)
{
    const char *folder = *state;
    void *volume, *snapshot;
    uint64_t version, id;
    char command[256];

    assert_ok(open_at(folder, "", &volume));
    seal_pack(volume, 100, NULL);
    assert_ok(commit_text(volume, 0, "k", "v"));
    close_at(volume);
    snprintf(command, sizeof command, "rm -r '%s/log' '%s/index.mdb'", folder, folder);
    assert_int_equal(system(command), 0);
    assert_ok(open_at(folder, "mode=r", &volume));
    assert_true(OPS->flags(volume) & LIG_VOLUME_NO_CATALOG);
    assert_status(OPS->catalog_begin(volume, &snapshot, &version), LIG_E_UNSUPPORTED);
    assert_ok(OPS->pack_next(volume, 0, &id));
    close_at(volume);
    assert_ok(open_at(folder, "", &volume));
    assert_int_equal(version_of(volume), 0);
    assert_ok(OPS->pack_next(volume, 0, &id));
    close_at(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(modes),
        folder_test(folders_that_are_no_stores),
        folder_test(options_are_checked),
        folder_test(parents_are_made),
        folder_test(lost_marker_is_made_again),
        folder_test(dead_writers_leave_nothing),
        folder_test(packs_of_the_living_are_held),
        folder_test(damaged_packs),
        folder_test(forks),
        folder_test(children_open_anew),
        folder_test(full_disks),
        folder_test(full_disks_and_catalogs),
        folder_test(read_only_file_systems),
        folder_test(own_temporaries_stay),
        folder_test(cleaners_spare_the_living),
        folder_test(forks_do_not_keep_locks),
        folder_test(readers_write_nothing),
        folder_test(readers_without_a_catalog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
