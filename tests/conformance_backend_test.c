/* Every built-in backend, and every kind of volume, does what backend.h promises: compared with a
 * small model in memory. */
#include "backend/registry.h"
#include "base/test.h"
#include "commit_ops.h"
#include "remote/service_credentials.h"
#include "remote/trial_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct place { /* a volume and how it is opened */
    const char *label, *scheme;
    const char *parent;  /* folder under which the place is made; NULL: the scheme needs none */
    const char *options; /* behind '?', or ""; without a parent: the config, in which a number
                            takes the place of '%' */
} place;

static const place places[] = {
    {"mem", "mem", NULL, "conformance"},
    {"file", "file", "/tmp", ""},
    {"file, always direct", "file", "/tmp", "cache=0"},
    {"file, direct without a ring", "file", "/tmp", "cache=0&uring=0"},
    {"file, buffered", "file", "/tmp", "direct=0"},
    {"file, tmpfs", "file", "/dev/shm", "cache=0"},
    {"file, tmpfs, direct", "file", "/dev/shm", "cache=0&direct=1"},
    {"file, network", "file", "/tmp", "share=network"},
    {"file, small map", "file", "/tmp", "map=128KiB&fsync=0"},
    {"service in memory", "trial", NULL, "%?grace=0"},
};
#define PLACE_COUNT (sizeof places / sizeof places[0])

typedef struct volume {
    const lig_volume_ops *ops;
    const lig_backend_ops *backend;
    void *self;
    const char *scheme;
    char folder[64], index[80], config[1024];
    uint8_t secret[LIG_SECRET_BYTES];
    uint64_t random;
} volume;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static void remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static uint64_t next_random(volume *v)
{
    v->random ^= v->random << 13;
    v->random ^= v->random >> 7;
    v->random ^= v->random << 17;
    return v->random;
}

static void fill_random(volume *v, uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = next_random(v);
        memcpy(data + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* Places that are not folders are not removed: every test has its own. */
static void number_config(const char *pattern, char *config, size_t bytes)
{
    static int number;
    const char *hole = strchr(pattern, '%');

    if (hole == NULL)
        snprintf(config, bytes, "%s", pattern);
    else
        snprintf(config, bytes, "%.*sconformance-%ld-%d%s", (int)(hole - pattern), pattern,
                 (long)getpid(), number++, hole + 1);
}

static int start(void **state)
{
    const place *where = *state;
    volume *v = calloc(1, sizeof *v);

    v->scheme = where->scheme;
    v->random = 88172645463325252u;
    fill_random(v, v->secret, sizeof v->secret);
    if (where->parent != NULL) {
        snprintf(v->folder, sizeof v->folder, "%s/ligament-XXXXXX", where->parent);
        if (mkdtemp(v->folder) == NULL)
            return -1;
        snprintf(v->index, sizeof v->index, "%s-index", v->folder);
        int shared = strstr(where->options, "share=network") != NULL;
        snprintf(v->config, sizeof v->config, "%s?%s%s%s", v->folder, where->options,
                 shared ? "&index=" : "", shared ? v->index : "");
    } else {
        number_config(where->options, v->config, sizeof v->config);
    }
    if (ligi_backend_open_raw(where->scheme, v->config, &v->backend, &v->self) != LIG_OK) {
        fprintf(stderr, "%s: %s\n", where->label, lig_error_text());
        return -1;
    }
    v->ops = v->backend->volume;
    *state = v;
    return 0;
}

static int stop(void **state)
{
    volume *v = *state;

    ligi_backend_close_raw(v->backend, v->self);
    if (v->folder[0] != '\0')
        remove_folder(v->folder);
    if (v->index[0] != '\0')
        remove_folder(v->index);
    free(v);
    return 0;
}

#define CORPUS_BYTES (UINT64_C(9) << 20)

typedef struct corpus { /* a pack and what must be in it */
    uint8_t *bytes;
    uint64_t id, size;
    struct {
        uint64_t offset, bytes;
        uint64_t *hashes;
    } pieces[600];
    size_t count;
} corpus;

static void put(volume *v, void *pack, corpus *c, const uint8_t *source, uint64_t bytes)
{
    uint64_t *hashes = calloc(bytes / LIG_BLOCK_BYTES + 1, sizeof *hashes);
    const lig_piece piece = {.data = source, .bytes = bytes, .offset = c->size, .hashes = hashes};

    assert_ok(v->ops->pack_put(pack, &piece));
    memcpy(c->bytes + c->size, source, bytes);
    c->pieces[c->count].offset = c->size;
    c->pieces[c->count].bytes = bytes;
    c->pieces[c->count].hashes = hashes;
    c->count++;
    c->size += bytes;
}

/* Small and large pieces, odd lengths, gaps, empty ones. */
static corpus *corpus_create(volume *v)
{
    corpus *c = calloc(1, sizeof *c);
    uint8_t *source = malloc(CORPUS_BYTES);
    void *pack;

    c->bytes = calloc(1, CORPUS_BYTES);
    fill_random(v, source, CORPUS_BYTES);
    assert_ok(v->ops->pack_create(v->self, CORPUS_BYTES, v->secret, &pack));
    const uint64_t sizes[] = {64,
                              1,
                              4096,
                              0,
                              4095,
                              65536,
                              LIG_BLOCK_BYTES,
                              LIG_BLOCK_BYTES + 1,
                              2 * LIG_BLOCK_BYTES + 12345,
                              3 * LIG_BLOCK_BYTES,
                              777};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        c->size = (c->size + 63) & ~UINT64_C(63);
        if (sizes[i] >= LIG_BLOCK_BYTES)
            c->size = (c->size + 4095) & ~UINT64_C(4095);
        if (i == 9)
            c->size += 100000;
        put(v, pack, c, source + c->size, sizes[i]);
    }
    for (int i = 0; i < 500; i++) {
        c->size = (c->size + 63) & ~UINT64_C(63);
        put(v, pack, c, source + c->size, 1 + next_random(v) % 1000);
    }
    assert_ok(v->ops->pack_seal(pack, &c->id));
    assert_true(c->id != 0);
    v->ops->pack_close(pack);
    free(source);
    return c;
}

static void corpus_destroy(corpus *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->pieces[i].hashes);
    free(c->bytes);
    free(c);
}

/* Reads all pieces, shifted by `shift` bytes in memory, in ascending or descending order. */
static void read_and_compare(volume *v, corpus *c, size_t shift, int backwards)
{
    lig_range *ranges = calloc(c->count, sizeof *ranges);
    uint8_t *memory = NULL;
    size_t bad;

    assert_int_equal(posix_memalign((void **)&memory, 4096, CORPUS_BYTES + 4096), 0);
    memset(memory, 0xA5, CORPUS_BYTES + 4096);
    for (size_t i = 0; i < c->count; i++) {
        size_t from = backwards ? c->count - 1 - i : i;
        ranges[i].data = memory + shift + c->pieces[from].offset;
        ranges[i].offset = c->pieces[from].offset;
        ranges[i].bytes = c->pieces[from].bytes;
        ranges[i].hashes = c->pieces[from].hashes;
    }
    assert_ok(v->ops->pack_read(v->self, c->id, v->secret, ranges, c->count, &bad));
    for (size_t i = 0; i < c->count; i++)
        assert_memory_equal(ranges[i].data, c->bytes + ranges[i].offset, ranges[i].bytes);
    /* Nothing is written between the pieces. */
    assert_int_equal(memory[shift + c->pieces[0].offset + 65], 0xA5);
    free(memory);
    free(ranges);
}

static void packs_round_trip(void **state)
{
    volume *v = *state;
    corpus *c = corpus_create(v);
    uint64_t size;

    assert_ok(v->ops->pack_size(v->self, c->id, &size));
    assert_int_equal(size, c->size);
    for (int i = 0; i < 2; i++) {
        read_and_compare(v, c, 0, i);
        read_and_compare(v, c, 64, i);
        read_and_compare(v, c, 3, i);
    }
    corpus_destroy(c);
}

static void evict(volume *v, uint64_t id)
{
    char path[128];

    if (v->folder[0] == '\0')
        return;
    snprintf(path, sizeof path, "%s/packs/%016llx.pack", v->folder, (unsigned long long)id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void packs_are_read_cold(void **state)
{
    volume *v = *state;
    corpus *c = corpus_create(v);

    for (size_t shift = 0; shift < 3; shift++) {
        evict(v, c->id);
        read_and_compare(v, c, shift * 32, shift == 1);
    }
    corpus_destroy(c);
}

static void random_ranges(void **state)
{
    volume *v = *state;
    corpus *c = corpus_create(v);
    uint8_t *memory = malloc(2 * CORPUS_BYTES);
    size_t bad;

    for (int round = 0; round < 30; round++) {
        lig_range ranges[40] = {{0}};
        size_t used = 0, count = 1 + next_random(v) % 40;
        for (size_t i = 0; i < count; i++) {
            uint64_t limit = next_random(v) % 4 == 0 ? 400000 : 3000;
            ranges[i].offset = next_random(v) % c->size;
            ranges[i].bytes = next_random(v) % limit;
            if (ranges[i].bytes > c->size - ranges[i].offset)
                ranges[i].bytes = c->size - ranges[i].offset;
            ranges[i].data = memory + used;
            used += ranges[i].bytes;
        }
        if (round % 3 == 0)
            evict(v, c->id);
        assert_ok(v->ops->pack_read(v->self, c->id, v->secret, ranges, count, &bad));
        for (size_t i = 0; i < count; i++)
            assert_memory_equal(ranges[i].data, c->bytes + ranges[i].offset, ranges[i].bytes);
    }
    free(memory);
    corpus_destroy(c);
}

static void bad_ranges_are_named(void **state)
{
    volume *v = *state;
    corpus *c = corpus_create(v);
    uint8_t *memory = malloc(CORPUS_BYTES);
    lig_range ranges[12] = {{0}};
    size_t bad = 99;

    for (size_t i = 0; i < 11; i++) {
        ranges[i].data = memory + c->pieces[i].offset;
        ranges[i].offset = c->pieces[i].offset;
        ranges[i].bytes = c->pieces[i].bytes;
        ranges[i].hashes = c->pieces[i].hashes;
    }
    c->pieces[9].hashes[1] ^= 1;
    assert_status(v->ops->pack_read(v->self, c->id, v->secret, ranges, 11, &bad), LIG_E_CORRUPT);
    assert_int_equal(bad, 9);
    assert_says("checksum");
    ranges[4].bytes = c->size;
    assert_status(v->ops->pack_read(v->self, c->id, v->secret, ranges, 9, &bad), LIG_E_CORRUPT);
    assert_int_equal(bad, 4);
    assert_status(v->ops->pack_read(v->self, 12345, v->secret, ranges, 1, &bad), LIG_E_NOTFOUND);
    free(memory);
    corpus_destroy(c);
}

static void packs_are_listed_and_removed(void **state)
{
    volume *v = *state;
    uint64_t ids[5], id, seen = 0;
    const lig_piece piece = {.data = "abc", .bytes = 3};
    void *pack;

    assert_status(v->ops->pack_next(v->self, 0, &id), LIG_E_NOTFOUND);
    for (int i = 0; i < 5; i++) {
        assert_ok(v->ops->pack_create(v->self, 3, v->secret, &pack));
        assert_ok(v->ops->pack_put(pack, &piece));
        assert_ok(v->ops->pack_seal(pack, &ids[i]));
        v->ops->pack_close(pack);
    }
    id = 0;
    for (uint64_t last = 0; v->ops->pack_next(v->self, last, &id) == LIG_OK; last = id) {
        assert_true(id > last);
        seen++;
    }
    assert_int_equal(seen, 5);
    assert_ok(v->ops->pack_remove(v->self, ids[2]));
    assert_status(v->ops->pack_remove(v->self, ids[2]), LIG_E_NOTFOUND);
    assert_status(v->ops->pack_size(v->self, ids[2], &id), LIG_E_NOTFOUND);
    seen = 0;
    for (uint64_t last = 0; v->ops->pack_next(v->self, last, &id) == LIG_OK; last = id) {
        assert_true(id != ids[2]);
        seen++;
    }
    assert_int_equal(seen, 4);
    assert_status(v->ops->pack_next(v->self, UINT64_MAX, &id), LIG_E_NOTFOUND);
}

static void unsealed_packs_are_gone(void **state)
{
    volume *v = *state;
    const lig_piece piece = {.data = "abc", .bytes = 3, .offset = 10};
    const lig_piece before = {.data = "abc", .bytes = 3, .offset = 12};
    void *pack;
    uint64_t id;

    assert_ok(v->ops->pack_create(v->self, 3, v->secret, &pack));
    assert_ok(v->ops->pack_put(pack, &piece));
    assert_status(v->ops->pack_put(pack, &before), LIG_E_INVALID);
    assert_status(v->ops->pack_next(v->self, 0, &id), LIG_E_NOTFOUND);
    v->ops->pack_close(pack);
    v->ops->pack_close(NULL);
    assert_status(v->ops->pack_next(v->self, 0, &id), LIG_E_NOTFOUND);
}

static void writers_hold_their_packs(void **state)
{
    volume *v = *state;
    const lig_piece piece = {.data = "abc", .bytes = 3};
    void *pack, *claim = NULL, *second = NULL;
    uint64_t id;

    assert_ok(v->ops->pack_create(v->self, 3, v->secret, &pack));
    assert_ok(v->ops->pack_put(pack, &piece));
    assert_ok(v->ops->pack_seal(pack, &id));
    assert_status(v->ops->pack_put(pack, &piece), LIG_E_INVALID);
    assert_status(v->ops->pack_claim(v->self, id, &claim), LIG_E_BUSY);
    v->ops->pack_close(pack);
    assert_ok(v->ops->pack_claim(v->self, id, &claim));
    assert_status(v->ops->pack_claim(v->self, id, &second), LIG_E_BUSY);
    v->ops->pack_close(claim);
    assert_ok(v->ops->pack_claim(v->self, id, &claim));
    assert_ok(v->ops->pack_remove(v->self, id));
    v->ops->pack_close(claim);
    assert_status(v->ops->pack_claim(v->self, id, &claim), LIG_E_NOTFOUND);
}

/* A pinned pack cannot be removed, through whichever handle, until the pin ends or expires. */
static void pins_keep_packs(void **state)
{
    volume *v = *state;
    const lig_piece piece = {.data = "abc", .bytes = 3};
    void *pack, *pins[3];
    const int64_t far = INT64_MAX, past = 1;
    uint64_t id;

    assert_ok(v->ops->pack_create(v->self, 3, v->secret, &pack));
    assert_ok(v->ops->pack_put(pack, &piece));
    assert_ok(v->ops->pack_seal(pack, &id));
    v->ops->pack_close(pack);
    assert_ok(v->ops->pin(v->self, &id, 1, far, &pins[0]));
    assert_ok(v->ops->pin(v->self, &id, 1, far, &pins[1]));
    assert_ok(v->ops->pin(v->self, &id, 1, past, &pins[2]));
    assert_status(v->ops->pack_remove(v->self, id), LIG_E_BUSY);
    v->ops->unpin(pins[0]);
    assert_status(v->ops->pack_remove(v->self, id), LIG_E_BUSY);
    v->ops->unpin(pins[1]);
    v->ops->unpin(NULL);
    assert_ok(v->ops->pack_remove(v->self, id));
    v->ops->unpin(pins[2]);
}

static void names_are_locked(void **state)
{
    volume *v = *state;
    void *locks[3];

    lig_status status = v->ops->lock(v->self, "run", &locks[0]);
    if (status == LIG_E_UNSUPPORTED)
        skip(); /* the service has no locks */
    assert_ok(status);
    assert_ok(v->ops->lock(v->self, "other run", &locks[1]));
    assert_ok(v->ops->lock(v->self, "run", &locks[2])); /* the same process */
    for (int i = 0; i < 3; i++)
        v->ops->unlock(locks[i]);
    v->ops->unlock(NULL);
    assert_ok(v->ops->lock(v->self, "run", &locks[0]));
    v->ops->unlock(locks[0]);
}

static void maps_outlive_their_packs(void **state)
{
    volume *v = *state;
    corpus *c = corpus_create(v);
    lig_mapping shared, private;

    assert_ok(v->ops->pack_map(v->self, c->id, 0, &shared));
    assert_ok(v->ops->pack_map(v->self, c->id, LIG_MAP_PRIVATE, &private));
    assert_int_equal((uintptr_t)shared.base % 4096, 0);
    assert_int_equal((uintptr_t)private.base % 4096, 0);
    assert_int_equal(shared.bytes, c->size);
    assert_ok(v->ops->pack_remove(v->self, c->id));
    assert_memory_equal(shared.base, c->bytes, c->size);
    assert_memory_equal(private.base, c->bytes, c->size);
    memset(private.base, 0x77, private.bytes);
    assert_memory_equal(shared.base, c->bytes, c->size);
    v->ops->pack_unmap(v->self, &shared);
    v->ops->pack_unmap(NULL, &private);
    corpus_destroy(c);
}

#define KEY_COUNT 300

typedef struct model { /* the catalog as it must be: index to value */
    uint8_t there[KEY_COUNT];
    uint32_t value_bytes[KEY_COUNT];
    uint32_t seed[KEY_COUNT];
} model;

/* Keys of 1 to 64 bytes, in ascending order of their index. */
static size_t make_key(size_t index, uint8_t key[64])
{
    memset(key, 0xEE, 64);
    key[0] = (uint8_t)(index / 16);
    key[1] = (uint8_t)(index % 16);
    return 2 + index % 63;
}

static void make_value(uint32_t seed, uint8_t *value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        value[i] = (uint8_t)(seed + i * 7);
}

static void assert_item(const model *m, size_t index, const lig_catalog_item *item)
{
    uint8_t key[64], *value = malloc(100000);
    size_t key_bytes = make_key(index, key);

    assert_int_equal(item->key_bytes, key_bytes);
    assert_memory_equal(item->key, key, key_bytes);
    assert_int_equal(item->value_bytes, m->value_bytes[index]);
    make_value(m->seed[index], value, m->value_bytes[index]);
    assert_memory_equal(item->value, value, m->value_bytes[index]);
    free(value);
}

static void compare_catalog(volume *v, void *snapshot, const model *m)
{
    uint8_t key[64];
    lig_catalog_item item;

    for (size_t i = 0; i < KEY_COUNT; i++) {
        size_t bytes = make_key(i, key);
        lig_status status = v->ops->catalog_get(snapshot, key, bytes, &item);
        assert_status(status, m->there[i] ? LIG_OK : LIG_E_NOTFOUND);
        if (m->there[i])
            assert_item(m, i, &item);
        size_t next = i;
        while (next < KEY_COUNT && !m->there[next])
            next++;
        status = v->ops->catalog_seek(snapshot, key, bytes, &item);
        assert_status(status, next < KEY_COUNT ? LIG_OK : LIG_E_NOTFOUND);
        if (next < KEY_COUNT)
            assert_item(m, next, &item);
    }
}

/* One random commit, in the volume and in the model. */
static void change(volume *v, model *m, uint64_t version)
{
    lig_catalog_op ops[20];
    uint8_t keys[20][64], *values[20];
    size_t count = 1 + next_random(v) % 20;

    for (size_t i = 0; i < count; i++) {
        size_t index = next_random(v) % KEY_COUNT;
        ops[i].key = keys[i];
        ops[i].key_bytes = make_key(index, keys[i]);
        m->there[index] = next_random(v) % 3 != 0;
        m->value_bytes[index] =
            (uint32_t)(next_random(v) % (next_random(v) % 8 == 0 ? 70000 : 300));
        m->seed[index] = (uint32_t)next_random(v);
        values[i] = malloc(m->value_bytes[index] + 1);
        make_value(m->seed[index], values[i], m->value_bytes[index]);
        ops[i].value = m->there[index] ? values[i] : NULL;
        ops[i].value_bytes = m->there[index] ? m->value_bytes[index] : 0;
    }
    assert_ok(commit_ops(v->ops, v->self, version, ops, count));
    for (size_t i = 0; i < count; i++)
        free(values[i]);
}

static void catalogs_follow_a_model(void **state)
{
    volume *v = *state;
    model *now = calloc(1, sizeof *now);
    void *snapshot;
    uint64_t version;

    for (uint64_t i = 0; i < 60; i++) {
        assert_ok(v->ops->catalog_begin(v->self, &snapshot, &version));
        assert_int_equal(version, i);
        if (i % 5 == 0)
            compare_catalog(v, snapshot, now);
        v->ops->catalog_end(snapshot);
        change(v, now, version);
    }
    assert_ok(v->ops->catalog_begin(v->self, &snapshot, &version));
    compare_catalog(v, snapshot, now);
    v->ops->catalog_end(snapshot);
    free(now);
}

static void commits_fail_after_others(void **state)
{
    volume *v = *state;
    const lig_catalog_op put = {"k", 1, "v", 1}, long_key = {v->secret, 65, "v", 1},
                         no_key = {"", 0, "v", 1};
    lig_catalog_item item;
    uint64_t version;
    void *snapshot;

    assert_ok(commit_ops(v->ops, v->self, 0, &put, 1));
    const lig_catalog_op other = {"other", 5, "w", 1};
    assert_status(commit_ops(v->ops, v->self, 0, &other, 1), LIG_E_BUSY);
    assert_status(commit_ops(v->ops, v->self, 2, &other, 1), LIG_E_BUSY);
    assert_says("version");
    assert_status(commit_ops(v->ops, v->self, 1, &long_key, 1), LIG_E_INVALID);
    assert_status(commit_ops(v->ops, v->self, 1, &no_key, 1), LIG_E_INVALID);
    assert_ok(v->ops->catalog_begin(v->self, &snapshot, &version));
    assert_int_equal(version, 1);
    assert_status(v->ops->catalog_get(snapshot, "other", 5, &item), LIG_E_NOTFOUND);
    assert_ok(v->ops->catalog_get(snapshot, "k", 1, &item));
    assert_memory_equal(item.value, "v", 1);
    v->ops->catalog_end(snapshot);
    const lig_catalog_op twice[] = {
        {"k", 1, "1", 1}, {"k", 1, NULL, 0}, {"k", 1, "22", 2}, {"e", 1, "", 0}};
    assert_ok(commit_ops(v->ops, v->self, 1, twice, 4));
    assert_ok(v->ops->catalog_settle(v->self));
    assert_ok(v->ops->catalog_begin(v->self, &snapshot, &version));
    assert_ok(v->ops->catalog_get(snapshot, "k", 1, &item));
    assert_int_equal(item.value_bytes, 2);
    assert_ok(v->ops->catalog_get(snapshot, "e", 1, &item));
    assert_int_equal(item.value_bytes, 0);
    v->ops->catalog_end(snapshot);
}

static void many_keys(void **state)
{
    volume *v = *state;
    enum { COUNT = 10000 };
    uint32_t (*keys)[2] = calloc(COUNT, sizeof *keys);
    lig_catalog_op *ops = calloc(COUNT, sizeof *ops);
    lig_catalog_item item = {0};
    uint64_t version;
    void *snapshot;

    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i][0] = __builtin_bswap32(i * 2654435761u);
        keys[i][1] = i;
        ops[i] = (lig_catalog_op){keys[i], 8, keys[i], 8};
    }
    assert_ok(commit_ops(v->ops, v->self, 0, ops, COUNT));
    assert_ok(v->ops->catalog_begin(v->self, &snapshot, &version));
    uint8_t key[9] = {0};
    size_t seen = 0, key_bytes = 1;
    while (v->ops->catalog_seek(snapshot, key, key_bytes, &item) == LIG_OK) {
        assert_memory_equal(item.key, item.value, 8);
        memcpy(key, item.key, 8); /* the smallest key after this one: itself and a zero */
        key[8] = 0;
        key_bytes = 9;
        seen++;
    }
    assert_int_equal(seen, COUNT);
    v->ops->catalog_end(snapshot);
    free(ops);
    free(keys);
}

typedef struct worker {
    volume *v;
    int done, conflicts;
} worker;

/* Counts up under one key; a snapshot never shows two keys that differ. */
static void *count_up(void *opaque)
{
    worker *self = opaque;
    const lig_volume_ops *ops = self->v->ops;

    while (self->done < 40) {
        uint64_t version, number = 0;
        lig_catalog_item first, second;
        void *snapshot;
        if (ops->catalog_begin(self->v->self, &snapshot, &version) != LIG_OK)
            return (void *)"begin";
        int there = ops->catalog_get(snapshot, "first", 5, &first) == LIG_OK;
        if (there && (ops->catalog_get(snapshot, "second", 6, &second) != LIG_OK ||
                      memcmp(first.value, second.value, sizeof number) != 0))
            return (void *)"torn";
        if (there)
            memcpy(&number, first.value, sizeof number);
        ops->catalog_end(snapshot);
        number++;
        const lig_catalog_op change_both[] = {{"first", 5, &number, sizeof number},
                                              {"second", 6, &number, sizeof number}};
        lig_status status = commit_ops(ops, self->v->self, version, change_both, 2);
        if (status == LIG_OK)
            self->done++;
        else if (status == LIG_E_BUSY)
            self->conflicts++;
        else
            return (void *)"commit";
    }
    return NULL;
}

static void threads_share_a_volume(void **state)
{
    volume *v = *state;
    worker workers[3] = {{v, 0, 0}, {v, 0, 0}, {v, 0, 0}};
    pthread_t threads[3];
    lig_catalog_item item;
    uint64_t version, number;
    void *snapshot, *failed;

    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, &workers[i]), 0);
    corpus *c = corpus_create(v);
    read_and_compare(v, c, 0, 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &failed);
        if (failed != NULL)
            fail_msg("a thread failed at %s", (const char *)failed);
    }
    assert_ok(v->ops->catalog_begin(v->self, &snapshot, &version));
    assert_ok(v->ops->catalog_get(snapshot, "first", 5, &item));
    memcpy(&number, item.value, sizeof number);
    assert_int_equal(number, 120);
    assert_int_equal(version, 120);
    v->ops->catalog_end(snapshot);
    corpus_destroy(c);
}

static void second_open_sees_the_first(void **state)
{
    volume *v = *state;
    const lig_catalog_op put_one = {"k", 1, "v", 1};
    lig_catalog_item item;
    uint64_t version;
    void *second, *snapshot;
    const lig_backend_ops *backend;

    assert_ok(ligi_backend_open_raw(v->scheme, v->config, &backend, &second));
    assert_ok(commit_ops(v->ops, second, 0, &put_one, 1));
    assert_ok(v->ops->catalog_settle(second));
    ligi_backend_close_raw(backend, second);
    assert_ok(v->ops->catalog_settle(v->self));
    assert_ok(v->ops->catalog_begin(v->self, &snapshot, &version));
    assert_ok(v->ops->catalog_get(snapshot, "k", 1, &item));
    v->ops->catalog_end(snapshot);
    assert_ok(commit_ops(v->ops, v->self, 1, &put_one, 1));
}

/* --- events --- */

typedef struct seen_event {
    uint64_t version;
    int64_t date_ns;
    char text[32];
} seen_event;

typedef struct seen_events {
    seen_event events[600];
    size_t count, limit; /* the visit ends with number `limit`; 0: never */
} seen_events;

static int note_event(void *context, uint64_t version, int64_t date_ns, const void *data,
                      size_t bytes)
{
    seen_events *seen = context;
    seen_event *event = &seen->events[seen->count++];

    event->version = version;
    event->date_ns = date_ns;
    snprintf(event->text, sizeof event->text, "%.*s", (int)bytes, (const char *)data);
    return seen->count == seen->limit;
}

/* A volume without a log of commits says so. */
static void need_events(volume *v)
{
    seen_events seen = {.limit = 1};
    if (v->ops->catalog_events(v->self, 0, note_event, &seen) == LIG_E_UNSUPPORTED)
        skip();
}

static lig_status commit_event(volume *v, uint64_t version, const char *first, const char *second)
{
    const lig_catalog_op op = {"k", 1, &version, sizeof version};
    const lig_catalog_event events[] = {{first, first ? strlen(first) : 0},
                                        {second, second ? strlen(second) : 0}};
    const lig_catalog_edit edit = {.version = version,
                                   .ops = &op,
                                   .op_count = 1,
                                   .events = events,
                                   .event_count = (size_t)(first != NULL) + (second != NULL)};
    return v->ops->catalog_commit(v->self, &edit);
}

static void events_are_kept_in_order(void **state)
{
    volume *v = *state;
    seen_events seen = {.count = 0};

    need_events(v);
    assert_ok(v->ops->catalog_events(v->self, 0, note_event, &seen));
    assert_int_equal(seen.count, 0);
    assert_ok(commit_event(v, 0, "one", "two"));
    assert_ok(commit_event(v, 1, NULL, NULL));
    assert_ok(commit_event(v, 2, "", NULL));
    assert_ok(commit_event(v, 3, "four", "five"));
    assert_status(commit_event(v, 3, "refused", NULL), LIG_E_BUSY);
    assert_ok(v->ops->catalog_events(v->self, 0, note_event, &seen));
    const char *const texts[] = {"one", "two", "", "four", "five"};
    const uint64_t versions[] = {1, 1, 3, 4, 4};
    assert_int_equal(seen.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(seen.events[i].text, texts[i]);
        assert_int_equal(seen.events[i].version, versions[i]);
        assert_true(seen.events[i].date_ns > INT64_C(1500000000) * 1000000000);
        assert_true(i == 0 || seen.events[i].version != seen.events[i - 1].version ||
                    seen.events[i].date_ns == seen.events[i - 1].date_ns);
    }
    for (uint64_t since = 0; since <= 4; since++) {
        const size_t left[] = {5, 3, 3, 2, 0};
        seen.count = 0;
        assert_ok(v->ops->catalog_events(v->self, since, note_event, &seen));
        assert_int_equal(seen.count, left[since]);
    }
    seen = (seen_events){.limit = 2};
    assert_ok(v->ops->catalog_events(v->self, 0, note_event, &seen));
    assert_int_equal(seen.count, 2);
    assert_status(v->ops->catalog_events(v->self, 5, note_event, &seen), LIG_E_NOTFOUND);
    assert_says("5");
}

static void waits_end_with_a_commit(void **state)
{
    volume *v = *state;

    need_events(v);
    assert_status(v->ops->catalog_wait(v->self, 0, 0), LIG_E_TIMEOUT);
    assert_status(v->ops->catalog_wait(v->self, 0, 1000000), LIG_E_TIMEOUT);
    assert_ok(commit_event(v, 0, NULL, NULL));
    assert_ok(v->ops->catalog_wait(v->self, 0, 0));
    assert_ok(v->ops->catalog_wait(v->self, 0, INT64_C(60000000000)));
    assert_status(v->ops->catalog_wait(v->self, 1, 0), LIG_E_TIMEOUT);
}

enum { EVENT_WRITERS = 3, EVENT_COMMITS = 50 };

typedef struct event_writer {
    volume *v;
    int number;
} event_writer;

static void *write_events(void *opaque)
{
    event_writer *self = opaque;
    const lig_volume_ops *ops = self->v->ops;

    for (int done = 0; done < EVENT_COMMITS;) {
        uint64_t version;
        void *snapshot;
        char first[32], second[32];
        if (ops->catalog_begin(self->v->self, &snapshot, &version) != LIG_OK)
            return (void *)"begin";
        ops->catalog_end(snapshot);
        snprintf(first, sizeof first, "%d %d", self->number, done);
        snprintf(second, sizeof second, "%d %d again", self->number, done);
        lig_status status = commit_event(self->v, version, first, second);
        if (status == LIG_OK)
            done++;
        else if (status != LIG_E_BUSY)
            return (void *)"commit";
    }
    return NULL;
}

/* Who waits and reads while others commit misses nothing and sees nothing twice. */
static void events_reach_a_watcher(void **state)
{
    volume *v = *state;
    event_writer writers[EVENT_WRITERS];
    pthread_t threads[EVENT_WRITERS];
    seen_events seen = {.count = 0};
    uint64_t since = 0;
    void *failed;

    need_events(v);
    for (int i = 0; i < EVENT_WRITERS; i++) {
        writers[i] = (event_writer){v, i};
        assert_int_equal(pthread_create(&threads[i], NULL, write_events, &writers[i]), 0);
    }
    while (since < (uint64_t)EVENT_WRITERS * EVENT_COMMITS) {
        assert_ok(v->ops->catalog_wait(v->self, since, INT64_C(60000000000)));
        assert_ok(v->ops->catalog_events(v->self, since, note_event, &seen));
        assert_true(seen.events[seen.count - 1].version > since);
        since = seen.events[seen.count - 1].version;
    }
    for (int i = 0; i < EVENT_WRITERS; i++) {
        pthread_join(threads[i], &failed);
        if (failed != NULL)
            fail_msg("a writer failed at %s", (const char *)failed);
    }
    int next[EVENT_WRITERS] = {0};
    assert_int_equal(seen.count, 2 * EVENT_WRITERS * EVENT_COMMITS);
    for (size_t i = 0; i < seen.count; i += 2) {
        char wanted[32];
        int writer = seen.events[i].text[0] - '0';
        assert_int_equal(seen.events[i].version, i / 2 + 1);
        assert_int_equal(seen.events[i + 1].version, i / 2 + 1);
        snprintf(wanted, sizeof wanted, "%d %d", writer, next[writer]);
        assert_string_equal(seen.events[i].text, wanted);
        snprintf(wanted, sizeof wanted, "%d %d again", writer, next[writer]++);
        assert_string_equal(seen.events[i + 1].text, wanted);
    }
}

static void volumes_describe_themselves(void **state)
{
    volume *v = *state;
    char text[256] = "";

    v->ops->describe(v->self, text, sizeof text);
    assert_true(strlen(text) > 5);
    printf("    %s\n", text);
    assert_int_equal(v->ops->flags(v->self) & LIG_VOLUME_READ_ONLY, 0);
}

static void backends_are_known(void **state)
{
    const char *name;
    size_t count = 0;

    (void)state;
    for (; (name = lig_backend_name(count)) != NULL; count++) {
        const lig_backend_ops *ops = lig_backend_find(name);
        assert_non_null(ops);
        assert_true(ops->volume != NULL || (ops->save != NULL && ops->load != NULL));
        assert_true(ops->volume == NULL || ops->options != NULL);
    }
    assert_true(count >= 4);
    lig_backend *backend = NULL;
    assert_status(lig_backend_open(&backend, "nowhere", ""), LIG_E_NOTFOUND);
    assert_says("file, mem, null, print");
    assert_null(backend);
}

/* Contiguous, strided and empty tensors through every backend that saves by itself. */
static void backends_save_and_load(void **state)
{
    float data[12] = {0}, strided[12] = {0};
    int64_t shape[] = {3, 4}, strides[] = {1, 3}, nothing[] = {0};
    const lig_tensor tensors[] = {
        {.name = "a",
         .data = data,
         .bytes = sizeof data,
         .shape = shape,
         .ndim = 2,
         .dtype = LIG_FLOAT32},
        {.name = "b",
         .data = strided,
         .bytes = sizeof strided,
         .shape = shape,
         .strides = strides,
         .ndim = 2,
         .dtype = LIG_FLOAT32},
        {.name = "c", .shape = nothing, .ndim = 1, .dtype = LIG_INT8},
    };
    const char *name;

    (void)state;
    for (int i = 0; i < 12; i++)
        data[i] = strided[i] = (float)i;
    for (size_t i = 0; (name = lig_backend_name(i)) != NULL; i++) {
        lig_backend *backend;
        if (lig_backend_find(name)->save == NULL)
            continue;
        assert_ok(lig_backend_open(&backend, name, NULL));
        assert_ok(lig_backend_save(backend, "set", tensors, 3));
        assert_ok(lig_backend_load(backend, "set", tensors, 3));
        assert_status(lig_backend_save(backend, "", tensors, 3), LIG_E_INVALID);
        lig_backend_close(backend);
        for (int j = 0; j < 12; j++)
            assert_true(data[j] == (float)j && strided[j] == (float)j);
    }
}

static void volumes_refuse_to_save_alone(void **state)
{
    lig_backend *backend;

    (void)state;
    assert_ok(lig_backend_open(&backend, "mem", NULL));
    assert_status(lig_backend_save(backend, "set", NULL, 0), LIG_E_UNSUPPORTED);
    assert_says("lig_store");
    assert_status(lig_backend_drop(backend, "set"), LIG_E_UNSUPPORTED);
    lig_backend_close(backend);
    lig_backend_close(NULL);
    assert_status(lig_backend_open(&backend, "mem", "?modus=r"), LIG_E_INVALID);
    assert_status(lig_backend_open(&backend, "mem", "absent?mode=r"), LIG_E_NOTFOUND);
    assert_status(lig_backend_open(&backend, "mem", "?mode=x"), LIG_E_INVALID);
}

static const struct {
    const char *name;
    void (*run)(void **state);
} volume_tests[] = {
    {"packs_round_trip", packs_round_trip},
    {"packs_are_read_cold", packs_are_read_cold},
    {"random_ranges", random_ranges},
    {"bad_ranges_are_named", bad_ranges_are_named},
    {"packs_are_listed_and_removed", packs_are_listed_and_removed},
    {"unsealed_packs_are_gone", unsealed_packs_are_gone},
    {"writers_hold_their_packs", writers_hold_their_packs},
    {"pins_keep_packs", pins_keep_packs},
    {"names_are_locked", names_are_locked},
    {"maps_outlive_their_packs", maps_outlive_their_packs},
    {"catalogs_follow_a_model", catalogs_follow_a_model},
    {"commits_fail_after_others", commits_fail_after_others},
    {"many_keys", many_keys},
    {"threads_share_a_volume", threads_share_a_volume},
    {"second_open_sees_the_first", second_open_sees_the_first},
    {"events_are_kept_in_order", events_are_kept_in_order},
    {"waits_end_with_a_commit", waits_end_with_a_commit},
    {"events_reach_a_watcher", events_reach_a_watcher},
    {"volumes_describe_themselves", volumes_describe_themselves},
};
#define VOLUME_TEST_COUNT (sizeof volume_tests / sizeof volume_tests[0])

static int run_volume_tests(const place *where)
{
    struct CMUnitTest tests[VOLUME_TEST_COUNT];

    for (size_t j = 0; j < VOLUME_TEST_COUNT; j++)
        tests[j] = (struct CMUnitTest){volume_tests[j].name, volume_tests[j].run, start, stop,
                                       (void *)where};
    printf("--- %s\n", where->label);
    return _cmocka_run_group_tests(where->label, tests, VOLUME_TEST_COUNT, NULL, NULL);
}

/* With arguments: URIs of places, in which a number takes the place of '%'. */
static int run_places(int count, char **uris)
{
    int failed = 0;

    for (int i = 0; i < count; i++) {
        char *colon = strchr(uris[i], ':');
        if (colon == NULL)
            return 1;
        *colon = '\0';
        const place where = {uris[i], uris[i], NULL, colon + 1};
        failed += run_volume_tests(&where);
    }
    return failed != 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(backends_are_known),
        cmocka_unit_test(backends_save_and_load),
        cmocka_unit_test(volumes_refuse_to_save_alone),
    };

    assert_ok(trial_register());
    assert_ok(set_service_credentials());
    if (argc > 1)
        return run_places(argc - 1, argv + 1);
    int failed = cmocka_run_group_tests(plain, NULL, NULL);
    for (size_t i = 0; i < PLACE_COUNT; i++)
        failed += run_volume_tests(&places[i]);
    trial_end();
    return failed != 0;
}
