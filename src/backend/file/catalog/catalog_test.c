#include "backend/file/catalog/catalog_check.h"
#include "backend/file/log/file_log.h"
#include "backend/file/log/log_start.h"
#include "base/hash.h"
#include "file_volume.h"

#include <sched.h>
#include <sys/resource.h>

static void two_opens_and_one_close(void **state)
{
    void *first, *second, *snapshot;
    lig_catalog_item item;
    uint64_t version;

    assert_ok(open_at(*state, "", &first));
    assert_ok(open_at(*state, "", &second));
    assert_ok(commit_text(first, 0, "k", "v"));
    assert_ok(OPS->catalog_begin(first, &snapshot, &version));
    close_at(second);
    assert_ok(OPS->catalog_get(snapshot, "k", 1, &item));
    OPS->catalog_end(snapshot);
    assert_ok(commit_text(first, 1, "k", "w"));
    close_at(first);
}

static lig_status pass(void *context, const uint8_t *record, const ligi_clog_header *header,
                       const ligi_clog_position *at)
{
    (void)context, (void)record, (void)header, (void)at;
    return LIG_OK;
}

/* Writes a record behind the last one: what a process leaves that was killed before it had put its
 * commit into the index. */
static void append_unseen(const char *folder, const char *value)
{
    ligi_file_log log = {.head.fd = -1};
    const lig_catalog_op op = {"k", 1, value, strlen(value)};
    const lig_catalog_edit edit = {.ops = &op, .op_count = 1};
    ligi_writer record = {0};
    ligi_clog_position at;
    ligi_clog_end end;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_ok(ligi_clog_folder_open(&log.folder, fd, folder, 0, 0));
    assert_ok(ligi_file_log_first(&log, &at));
    assert_ok(ligi_file_log_read(&log, &at, pass, NULL, &end));
    ligi_clog_header header = {.version = at.version + 1, .previous = at.chain};
    assert_ok(ligi_clog_record_put(&record, &edit, &header));
    assert_ok(ligi_file_log_append(&log, &at, record.data, &header));
    ligi_writer_fini(&record);
    ligi_clog_folder_close(&log.folder);
    close(fd);
}

static void commits_of_the_killed_are_adopted(void **state)
{
    void *volume, *reader, *snapshot;
    lig_catalog_item item;
    uint64_t version;

    assert_ok(open_at(*state, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    append_unseen(*state, "w");
    assert_ok(open_at(*state, "mode=r", &reader));
    assert_int_equal(version_of(reader), 2);
    assert_int_equal(version_of(volume), 1);
    assert_ok(OPS->catalog_settle(volume));
    assert_int_equal(version_of(volume), 2);
    append_unseen(*state, "x");
    assert_status(commit_text(volume, 2, "k", "y"), LIG_E_BUSY);
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_ok(OPS->catalog_get(snapshot, "k", 1, &item));
    assert_memory_equal(item.value, "x", 1);
    OPS->catalog_end(snapshot);
    assert_ok(commit_text(volume, 3, "k", "y"));
    assert_int_equal(version_of(reader), 4);
    close_at(reader);
    close_at(volume);
}

/* No other process commits: the waiting one polls. */
static void waits_end_with_commits_of_the_killed(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    assert_int_equal(OPS->catalog_wait(volume, 1, 0), LIG_E_TIMEOUT);
    append_unseen(*state, "w");
    assert_ok(OPS->catalog_wait(volume, 1, INT64_C(20000000000)));
    assert_int_equal(version_of(volume), 2);
    close_at(volume);
}

#define COUNTS 60

/* Adds one, COUNTS times, under the version it has seen. */
static int count_up(void *context)
{
    void *volume, *snapshot;
    int done = 0;

    if (open_at(context, "fsync=0", &volume) != LIG_OK)
        return 1;
    while (done < COUNTS) {
        uint64_t version, number = 0;
        lig_catalog_item item;
        if (OPS->catalog_begin(volume, &snapshot, &version) != LIG_OK)
            return 2;
        if (OPS->catalog_get(snapshot, "n", 1, &item) == LIG_OK)
            memcpy(&number, item.value, sizeof number);
        OPS->catalog_end(snapshot);
        number++;
        const lig_catalog_op op = {"n", 1, &number, sizeof number};
        lig_status status = commit_ops(OPS, volume, version, &op, 1);
        if (status != LIG_OK && status != LIG_E_BUSY)
            return 3;
        done += status == LIG_OK;
    }
    close_at(volume);
    return 0;
}

static void processes_count_together(void **state)
{
    pid_t children[3];
    void *volume, *snapshot;
    lig_catalog_item item;
    uint64_t version, number;
    int status;

    for (int i = 0; i < 3; i++) {
        children[i] = child_fork();
        if (children[i] == 0)
            _exit(count_up(*state));
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_ok(open_at(*state, "", &volume));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_ok(OPS->catalog_get(snapshot, "n", 1, &item));
    memcpy(&number, item.value, sizeof number);
    assert_int_equal(number, 3 * COUNTS);
    assert_int_equal(version, 3 * COUNTS);
    OPS->catalog_end(snapshot);
    close_at(volume);
}

static int count_for_ever(void *context)
{
    while (count_up(context) == 0) {
    }
    return 1;
}

/* Processes are killed while they open the store and anywhere in a commit; the next one
 * continues. */
static void killed_writers_leave_no_lock(void **state)
{
    void *volume;

    assert_ok(open_at(*state, "", &volume));
    for (unsigned i = 0; i < 12; i++) {
        pid_t child = child_fork();
        if (child == 0)
            _exit(count_for_ever(*state));
        for (uint64_t before = version_of(volume); i % 2 == 1 && version_of(volume) == before;)
            sched_yield();
        struct timespec moment = {0, 10000000 + 1700000 * (long)i};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
        child_kill(child);
        /* A commit that was cut off between its write and its announcement shows at the next
         * commit. */
        lig_status status = commit_text(volume, version_of(volume), "k", "v");
        if (status == LIG_E_BUSY)
            status = commit_text(volume, version_of(volume), "k", "v");
        assert_ok(status);
    }
    assert_true(version_of(volume) > 12);
    close_at(volume);
}

static lig_status commit_large(void *volume, uint64_t version, uint8_t name)
{
    uint8_t *value = calloc(1, 200000);
    const lig_catalog_op op = {&name, 1, value, 200000};
    lig_status status = commit_ops(OPS, volume, version, &op, 1);

    free(value);
    return status;
}

static int grow_it(void *context)
{
    void *volume;

    if (open_at(context, "map=64KiB", &volume) != LIG_OK)
        return 1;
    for (uint8_t i = 0; i < 30; i++)
        if (commit_large(volume, i, i) != LIG_OK)
            return 2;
    close_at(volume);
    return 0;
}

/* This process grows its map, then follows another that has grown the file. */
static void maps_grow(void **state)
{
    void *volume, *snapshot;
    uint64_t version;
    lig_catalog_item item;

    assert_ok(open_at(*state, "map=64KiB", &volume));
    assert_int_equal(child_run(grow_it, *state), 0);
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    assert_int_equal(version, 30);
    assert_ok(OPS->catalog_get(snapshot, "\7", 1, &item));
    assert_int_equal(item.value_bytes, 200000);
    OPS->catalog_end(snapshot);
    for (uint8_t i = 30; i < 100; i++)
        assert_ok(commit_large(volume, i, i));
    assert_int_equal(version_of(volume), 100);
    close_at(volume);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static int open_rationed(void *context)
{
    struct rlimit limit = {UINT64_C(2) << 30, UINT64_C(2) << 30};
    void *volume;

    if (setrlimit(RLIMIT_AS, &limit) != 0 || open_at(context, "", &volume) != LIG_OK)
        return 1;
    for (uint8_t i = 0; i < 30; i++)
        if (commit_large(volume, i, i) != LIG_OK)
            return 2;
    close_at(volume);
    return 0;
}

static void rationed_address_space(void **state)
{
    assert_int_equal(child_run(open_rationed, *state), 0);
}
#else
static void rationed_address_space(void **state)
{
    (void)state; /* a sanitizer needs more of it than there is */
    skip();
}
#endif

static char *index_path(const char *folder)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/index.mdb", folder);
    return path;
}

/* Commits of many sizes, in several segments and checkpoints. */
static void make_catalog(const char *folder)
{
    void *volume;

    assert_ok(open_at(folder, "log=40KiB", &volume));
    for (uint64_t version = 0; version < 12; version++) {
        lig_catalog_op ops[40];
        uint32_t keys[40][8];
        static const uint8_t value[9000];
        for (uint32_t i = 0; i < 40; i++) {
            memset(keys[i], (int)i, sizeof keys[i]);
            keys[i][1] = (uint32_t)version % 7;
            ops[i] = (lig_catalog_op){keys[i], sizeof keys[i], value, i % 9 == 0 ? 9000 : 10 * i};
            if (version > 8 && i % 3 == 0)
                ops[i].value = NULL;
        }
        assert_ok(commit_ops(OPS, volume, version, ops, 40));
    }
    close_at(volume);
}

/* Mixes all items into *sum, in order. */
static lig_status sum_items(void *snapshot, uint64_t *sum)
{
    uint8_t key[66] = {0};
    size_t key_bytes = 1;
    lig_catalog_item item = {0};

    for (int i = 0; i < 2000; i++) {
        LIG_TRY(OPS->catalog_seek(snapshot, key, key_bytes, &item));
        *sum = (*sum * 31 + ligi_hash64_plain(item.key, item.key_bytes)) * 31 +
               ligi_hash64_plain(item.value, item.value_bytes);
        memcpy(key, item.key, item.key_bytes);
        key_bytes = item.key_bytes + 1 <= 64 ? item.key_bytes + 1 : 64;
        key[key_bytes - 1] = item.key_bytes + 1 <= 64 ? 0 : 0xFF;
    }
    return LIG_E_LIMIT;
}

/* Opens, walks through everything, commits. Whatever happens, it must not end the process. LIG_OK
 * with the version before the commit, and a sum of all items. */
static lig_status use_catalog(const char *folder, const char *options, uint64_t *version,
                              uint64_t *sum)
{
    void *volume, *snapshot;

    *sum = 0;
    LIG_TRY(open_at(folder, options, &volume));
    lig_status status = OPS->catalog_begin(volume, &snapshot, version);
    if (status == LIG_OK) {
        status = sum_items(snapshot, sum);
        OPS->catalog_end(snapshot);
        if (status == LIG_E_NOTFOUND)
            status = options[0] == '\0' ? commit_text(volume, *version, "k", "v") : LIG_OK;
    }
    close_at(volume);
    return status;
}

static void restore(const char *folder)
{
    char command[256];

    snprintf(command, sizeof command, "rm -r '%s' && cp -r '%s.kept' '%s'", folder, folder, folder);
    assert_int_equal(system(command), 0);
}

typedef struct damage { /* to one file of the catalog, then somebody uses it */
    const char *folder;
    char file[64], path[160];
    uint64_t version, sum; /* when it is whole */
    uint32_t seed;
    int reads;
} damage;

static void hear(void *context, lig_log_level level, const char *text)
{
    (void)level;
    *(int *)context |= strstr(text, "damaged") != NULL || strstr(text, "lacks") != NULL;
}

/* 0 when it is all there, or is said to be damaged. What is left of a damaged log can be read, with
 * a warning, and not be written to. */
static int use_damaged(const damage *self)
{
    uint64_t version, sum;
    int told = 0;

    lig_log_set(hear, &told);
    lig_status status = use_catalog(self->folder, self->reads ? "mode=r" : "", &version, &sum);
    if (status == LIG_OK)
        return (version == self->version && sum == self->sum) || (told && self->reads) ? 0 : 80;
    if (status != LIG_E_CORRUPT && status != LIG_E_UNSUPPORTED)
        fprintf(stderr, "%s: %s\n", lig_status_name(status), lig_error_text());
    return status == LIG_E_CORRUPT || status == LIG_E_UNSUPPORTED ? 0 : 81;
}

/* The files of the store in turn. */
static int choose_file(damage *self, unsigned number)
{
    char folder[160];
    snprintf(folder, sizeof folder, "%s/log", self->folder);
    DIR *list = opendir(folder);
    unsigned count = 0;

    snprintf(self->file, sizeof self->file, "index.mdb");
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.' && ++count == number)
            snprintf(self->file, sizeof self->file, "log/%.40s", entry->d_name);
    if (list != NULL)
        closedir(list);
    snprintf(self->path, sizeof self->path, "%s/%s", self->folder, self->file);
    return number <= count;
}

static void prepare(damage *self)
{
    char command[256];

    make_catalog(self->folder);
    assert_ok(use_catalog(self->folder, "mode=r", &self->version, &self->sum));
    snprintf(command, sizeof command, "cp -r '%s' '%s.kept'", self->folder, self->folder);
    assert_int_equal(system(command), 0);
}

static int cut_and_use(void *context)
{
    const damage *self = context;
    struct stat info;

    if (stat(self->path, &info) != 0 ||
        truncate(self->path, (off_t)((uint64_t)info.st_size * self->seed / 8)) != 0)
        return 90;
    return use_damaged(self);
}

static void cut_files_lose_nothing_in_silence(void **state)
{
    damage self = {.folder = *state};

    prepare(&self);
    for (unsigned file = 0; choose_file(&self, file); file++)
        for (self.seed = 0; self.seed < 8; self.seed += 1 + (file > 0))
            for (self.reads = 0; self.reads < 2; self.reads++) {
                int code = child_run(cut_and_use, &self);
                if (code != 0)
                    fail_msg("%s cut at %u/8, %s: %d", self.file, self.seed,
                             self.reads ? "read" : "written", code);
                restore(self.folder);
            }
}

static int flip_and_use(void *context)
{
    const damage *self = context;
    uint32_t random = self->seed * 2654435761u + 12345;
    struct stat info;

    int fd = open(self->path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        return 90;
    for (int i = 0; i < 3; i++) {
        random = random * 1664525u + 1013904223u;
        /* Mostly the first bytes of a page, where the structure is. */
        off_t at = (off_t)(random >> 6) % info.st_size;
        if (i < 2)
            at = (at & ~(off_t)4095) + at % 64;
        uint8_t byte = 0;
        if (pread(fd, &byte, 1, at) != 1)
            return 91;
        byte ^= (uint8_t)(random >> 24 | 1);
        if (pwrite(fd, &byte, 1, at) != 1)
            return 92;
    }
    close(fd);
    return use_damaged(self);
}

/* Each in a separate process: LMDB aborts the process if it detects corruption, which the test
 * notices. */
static void flipped_bits_do_no_harm(void **state)
{
    damage self = {.folder = *state};

    prepare(&self);
    for (self.seed = 0; self.seed < 150; self.seed++) {
        unsigned files = 0;
        while (choose_file(&self, files))
            files++;
        choose_file(&self, self.seed % files);
        self.reads = self.seed / files % 2;
        int code = child_run(flip_and_use, &self);
        if (code != 0)
            fail_msg("flip %u in %s, %s: %d", self.seed, self.file, self.reads ? "read" : "written",
                     code);
        restore(self.folder);
    }
}

/* Commits that add little find room; the file is sound and has everything afterwards. */
static void files_grow_ahead(void **state)
{
    enum { COMMITS = 150 };
    static const char text[6000];
    void *volume, *snapshot;
    lig_catalog_item item;
    struct stat before = {0}, after;
    uint64_t version;
    int grown = 0;

    assert_ok(open_at(*state, "", &volume));
    assert_ok(commit_large(volume, 0, 0));
    assert_ok(commit_large(volume, 1, 1));
    for (uint64_t i = 2; i < COMMITS; i++) {
        const lig_catalog_op op = {&i, sizeof i, text, sizeof text};
        assert_ok(commit_ops(OPS, volume, i, &op, 1));
        assert_int_equal(stat(index_path(*state), &after), 0);
        grown += after.st_size != before.st_size;
        before = after;
    }
    assert_in_range(grown, 1, COMMITS / 4);
    close_at(volume);
    assert_ok(open_at(*state, "", &volume));
    assert_ok(OPS->catalog_begin(volume, &snapshot, &version));
    for (uint64_t i = 2; i < COMMITS; i++) {
        assert_ok(OPS->catalog_get(snapshot, &i, sizeof i, &item));
        assert_int_equal(item.value_bytes, sizeof text);
    }
    OPS->catalog_end(snapshot);
    close_at(volume);
}

static void sound_catalogs_pass(void **state)
{
    const char *folder = *state;
    void *volume;

    assert_ok(open_at(folder, "fsync=0", &volume));
    for (uint64_t i = 0; i < 300; i++) {
        char key[16];
        snprintf(key, sizeof key, "%llu", (unsigned long long)(i * 7919 % 101));
        static uint8_t value[20000];
        const lig_catalog_op op = {key, strlen(key), i % 5 == 4 ? NULL : value,
                                   i % 5 == 4 ? 0 : (i * 331) % 20000};
        assert_ok(commit_ops(OPS, volume, i, &op, 1));
        int fd = open(index_path(folder), O_RDONLY | O_CLOEXEC);
        assert_ok(ligi_file_catalog_check(fd, folder));
        close(fd);
    }
    close_at(volume);
}

static void snapshot_and_wait(void *context)
{
    void *volume, *snapshot;
    uint64_t version;

    if (open_at(context, "", &volume) != LIG_OK ||
        OPS->catalog_begin(volume, &snapshot, &version) != LIG_OK)
        _exit(5);
}

/* A dead reader does not keep pages from being reused. */
static void dead_readers_are_cleared(void **state)
{
    void *volume;
    struct stat info;

    assert_ok(open_at(*state, "fsync=0", &volume));
    assert_ok(commit_large(volume, 0, 1));
    close_at(volume);
    child_kill(child_start(snapshot_and_wait, *state));
    assert_ok(open_at(*state, "fsync=0", &volume));
    for (uint64_t i = 1; i < 200; i++)
        assert_ok(commit_large(volume, i, 1));
    close_at(volume);
    assert_int_equal(stat(index_path(*state), &info), 0);
    assert_true(info.st_size < 5 << 20);
}

static lig_status count_problem(void *context, const char *text, const void *event, size_t bytes)
{
    (void)text, (void)event, (void)bytes;
    ++*(int *)context;
    return LIG_OK;
}

/* A repair leaves a checkpoint and a segment that are synced, and says so. */
static void a_repair_is_durable(void **state)
{
    char path[128];
    void *volume;
    int problems = 0;

    assert_ok(open_at(*state, "", &volume));
    assert_ok(commit_text(volume, 0, "k", "v"));
    assert_ok(commit_text(volume, 1, "k", "w"));
    snprintf(path, sizeof path, "%s/log/segment-%016d", (const char *)*state, 1);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "?", 1, LIGI_SEGMENT_HEADER_BYTES + 20), 1);
    close(fd);
    assert_ok(OPS->catalog_verify(volume, 1, count_problem, &problems));
    assert_true(problems > 0);
    snprintf(path, sizeof path, "%s/log/head", (const char *)*state);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t durable = ligi_head_witness(fd);
    close(fd);
    assert_int_equal(durable, version_of(volume));
    close_at(volume);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(two_opens_and_one_close),
        folder_test(commits_of_the_killed_are_adopted),
        folder_test(waits_end_with_commits_of_the_killed),
        folder_test(processes_count_together),
        folder_test(killed_writers_leave_no_lock),
        folder_test(maps_grow),
        folder_test(rationed_address_space),
        folder_test(cut_files_lose_nothing_in_silence),
        folder_test(flipped_bits_do_no_harm),
        folder_test(files_grow_ahead),
        folder_test(sound_catalogs_pass),
        folder_test(dead_readers_are_cleared),
        folder_test(a_repair_is_durable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
