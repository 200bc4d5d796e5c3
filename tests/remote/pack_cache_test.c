/* The cache of remote packs: what is cached is not asked for again, and nothing that anybody does to
 * its files changes what is read. */
#include "base/test.h"
#include "remote/trial_engine.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PACK_BYTES = (5 << 20) + 12345 };

static const lig_volume_ops *const ops = &ligi_remote_volume_ops;
static const uint8_t secret[LIG_SECRET_BYTES];
static uint8_t contents[PACK_BYTES], reads[PACK_BYTES];
static char folder[64];

static void *opened(const char *place, const char *bytes)
{
    char config[256];
    void *self = NULL;

    snprintf(config, sizeof config, "%s?cache=%s&cache_bytes=%s", place, folder, bytes);
    assert_ok(ligi_remote_open(&trial_ops, config, &self));
    return self;
}

static uint64_t write_pack(void *self)
{
    void *writer;
    uint64_t id;

    for (size_t i = 0; i < PACK_BYTES; i++)
        contents[i] = (uint8_t)(i * 2654435761u >> 13);
    const lig_piece piece = {.data = contents, .bytes = PACK_BYTES};
    assert_ok(ops->pack_create(self, PACK_BYTES, secret, &writer));
    assert_ok(ops->pack_put(writer, &piece));
    assert_ok(ops->pack_seal(writer, &id));
    ops->pack_close(writer);
    return id;
}

static uint64_t requests_of(const char *place)
{
    trial_store *store = trial_find(place);

    pthread_mutex_lock(&store->lock);
    uint64_t requests = store->requests;
    pthread_mutex_unlock(&store->lock);
    return requests;
}

static void read_part(void *self, uint64_t id, uint64_t offset, uint64_t bytes)
{
    const lig_range range = {.data = reads, .offset = offset, .bytes = bytes};
    size_t bad;

    memset(reads, 0xEE, bytes);
    assert_ok(ops->pack_read(self, id, secret, &range, 1, &bad));
    assert_memory_equal(reads, contents + offset, bytes);
}

/* As a load does, which knows the hashes. */
static void read_verified(void *self, uint64_t id)
{
    uint64_t hashes[PACK_BYTES / LIG_BLOCK_BYTES + 1];
    const lig_range range = {.data = reads, .bytes = PACK_BYTES, .hashes = hashes};
    size_t bad;

    for (uint64_t at = 0; at < PACK_BYTES; at += LIG_BLOCK_BYTES) {
        uint64_t left = PACK_BYTES - at;
        hashes[at / LIG_BLOCK_BYTES] =
            lig_hash_block(secret, contents + at, left < LIG_BLOCK_BYTES ? left : LIG_BLOCK_BYTES);
    }
    memset(reads, 0xEE, PACK_BYTES);
    assert_ok(ops->pack_read(self, id, secret, &range, 1, &bad));
    assert_memory_equal(reads, contents, PACK_BYTES);
}

static int start(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ligament-cache-XXXXXX");
    return mkdtemp(folder) == NULL;
}

/* Calls `touch` for each file of the cache; returns their number and sums up their space. */
static size_t each_file(void (*touch)(int fd), uint64_t *bytes)
{
    size_t count = 0;
    struct dirent *entry;
    struct stat info;
    DIR *listed = opendir(folder);

    while ((entry = readdir(listed)) != NULL) {
        int fd = openat(dirfd(listed), entry->d_name, O_RDWR);
        if (fd < 0)
            continue;
        fstat(fd, &info);
        if (bytes != NULL)
            *bytes += (uint64_t)info.st_blocks * 512;
        if (touch != NULL)
            touch(fd);
        close(fd);
        count++;
    }
    closedir(listed);
    return count;
}

static int stop(void **state)
{
    struct dirent *entry;
    DIR *listed = opendir(folder);

    (void)state;
    while ((entry = readdir(listed)) != NULL)
        unlinkat(dirfd(listed), entry->d_name, 0);
    closedir(listed);
    trial_end();
    return rmdir(folder);
}

static void second_reads_stay_here(void **state)
{
    void *self = opened("second", "1G");
    uint64_t id = write_pack(self);

    (void)state;
    read_part(self, id, 0, PACK_BYTES);
    uint64_t before = requests_of("second");
    read_part(self, id, 0, PACK_BYTES);
    read_part(self, id, 1000, 3000000);
    read_part(self, id, PACK_BYTES - 7, 7);
    assert_int_equal(requests_of("second"), before);
    ligi_remote_close(self);
    self = opened("second", "2G"); /* as another process */
    before = requests_of("second");
    read_part(self, id, 77, PACK_BYTES - 77);
    assert_int_equal(requests_of("second"), before);
    ligi_remote_close(self);
}

static void damage(int fd)
{
    uint8_t byte = 0;

    assert_int_equal(pread(fd, &byte, 1, 20), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 20), 1);
}

static void cut(int fd)
{
    assert_int_equal(ftruncate(fd, 20), 0);
}

static void damage_is_read_again(void **state)
{
    void *self = opened("damage", "1G");
    uint64_t id = write_pack(self);
    void (*const harms[])(int) = {damage, cut};

    (void)state;
    for (int i = 0; i < 2; i++) {
        read_part(self, id, 0, PACK_BYTES);
        assert_true(each_file(harms[i], NULL) == 2);
        uint64_t before = requests_of("damage");
        read_part(self, id, 0, PACK_BYTES);
        assert_true(requests_of("damage") > before);
        before = requests_of("damage");
        read_part(self, id, 0, PACK_BYTES); /* it has healed */
        assert_int_equal(requests_of("damage"), before);
    }
    ligi_remote_close(self);
}

/* Only one of the two: `sums` or `data`. */
static void damage_kind(const char *kind)
{
    struct dirent *entry;
    DIR *listed = opendir(folder);

    while ((entry = readdir(listed)) != NULL) {
        if (strstr(entry->d_name, kind) == NULL)
            continue;
        int fd = openat(dirfd(listed), entry->d_name, O_RDWR);
        damage(fd);
        close(fd);
    }
    closedir(listed);
}

/* The check of a block is only for those who have no hashes. */
static void hashes_replace_checks(void **state)
{
    void *self = opened("hashes", "1G");
    uint64_t id = write_pack(self);

    (void)state;
    read_verified(self, id);
    uint64_t before = requests_of("hashes");
    damage_kind(".sums");
    read_verified(self, id);
    assert_int_equal(requests_of("hashes"), before);
    damage_kind(".data");
    read_verified(self, id);
    assert_true(requests_of("hashes") > before);
    before = requests_of("hashes");
    read_verified(self, id); /* it has healed */
    assert_int_equal(requests_of("hashes"), before);
    assert_true(each_file(cut, NULL) == 2);
    read_verified(self, id);
    assert_true(requests_of("hashes") > before);
    ligi_remote_close(self);
}

static void old_packs_are_evicted(void **state)
{
    void *self = opened("evict", "12M");
    uint64_t ids[6], bytes = 0;

    (void)state;
    int foreign = open(folder, O_RDONLY);
    close(openat(foreign, "notes.txt", O_CREAT | O_RDWR, 0600));
    for (int i = 0; i < 6; i++) {
        ids[i] = write_pack(self);
        read_part(self, ids[i], 0, PACK_BYTES);
    }
    each_file(NULL, &bytes);
    assert_true(bytes <= 12 << 20);
    assert_int_equal(faccessat(foreign, "notes.txt", F_OK, 0), 0);
    close(foreign);
    for (int i = 0; i < 6; i++)
        read_part(self, ids[i], 0, PACK_BYTES);
    ligi_remote_close(self);
}

static void unsafe_folders_are_refused(void **state)
{
    char config[256];
    void *self;

    (void)state;
    assert_int_equal(chmod(folder, 0777), 0);
    snprintf(config, sizeof config, "unsafe?cache=%s", folder);
    assert_status(ligi_remote_open(&trial_ops, config, &self), LIG_E_DENIED);
    assert_says("chmod 700");
    assert_int_equal(chmod(folder, 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(second_reads_stay_here, start, stop),
        cmocka_unit_test_setup_teardown(damage_is_read_again, start, stop),
        cmocka_unit_test_setup_teardown(hashes_replace_checks, start, stop),
        cmocka_unit_test_setup_teardown(old_packs_are_evicted, start, stop),
        cmocka_unit_test_setup_teardown(unsafe_folders_are_refused, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
