/* The layout is LMDB's data format 1 on a 64-bit machine. A page: number (8), pad (2), flags (2),
 * then either lower (2) and upper (2) or the count of an overflow run (4). Node offsets of 2 bytes
 * follow up to `lower`; a node is size or child (2 + 2 and in branches 2 more), flags (2), key
 * bytes (2), key, data. */
#include "backend/file/catalog/catalog_check.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0xBEEFC0DEu
#define DATA_FORMAT 1u
#define PAGE_BRANCH 0x01
#define PAGE_LEAF 0x02
#define PAGE_OVERFLOW 0x04
#define PAGE_META 0x08
#define PAGE_KINDS 0x7F
#define NODE_OVERFLOW 0x01
#define PAGE_HEADER 16
#define NODE_HEADER 8
#define DEPTH_MAX 32
#define KEY_BYTES_MAX 511
#define NO_ROOT UINT64_MAX
#define WALK_BYTES_MAX (UINT64_C(256) << 20)
#define ATTEMPTS_MAX 10
#define AT_MAGIC 16
#define AT_VERSION 20
#define AT_DATABASES 40
#define DATABASE_BYTES 48
#define AT_LAST_PAGE 136
#define AT_TXNID 144

typedef struct walk {
    int fd;
    const ligi_file_catalog_meta *meta;
    uint64_t pages;   /* in the file */
    uint64_t visited; /* a tree has no more pages than its file */
    uint8_t *stack;   /* a page for each level */
    int free_list;    /* which of the two trees */
    const char *what; /* is wrong */
} walk;

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static int read_exact(int fd, void *data, size_t bytes, uint64_t offset)
{
    ssize_t done;
    do
        done = pread(fd, data, bytes, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done == (ssize_t)bytes;
}

static int meta_sound(const uint8_t *raw)
{
    return get(raw + AT_MAGIC, 4) == MAGIC && get(raw + AT_VERSION, 4) == DATA_FORMAT &&
           (get(raw + 10, 2) & PAGE_META) != 0;
}

/* LMDB keeps the size of a page in the record of its first database. */
static int read_metas(int fd, ligi_file_catalog_meta *meta)
{
    if (!read_exact(fd, meta->raw[0], LIGI_META_BYTES, 0) || !meta_sound(meta->raw[0]))
        return 0;
    uint64_t page = get(meta->raw[0] + AT_DATABASES, 4);
    if (page < 512 || page > 65536 || (page & (page - 1)) != 0)
        return 0;
    meta->page_bytes = (uint32_t)page;
    return read_exact(fd, meta->raw[1], LIGI_META_BYTES, page) && meta_sound(meta->raw[1]) &&
           get(meta->raw[1] + AT_DATABASES, 4) == page;
}

/* A record may be written while it is read: it is valid if two reads agree. */
static int read_stable(int fd, ligi_file_catalog_meta *meta)
{
    ligi_file_catalog_meta again;

    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        memset(&again, 0, sizeof again);
        memset(meta, 0, sizeof *meta);
        int sound = read_metas(fd, meta);
        if (sound == read_metas(fd, &again) && memcmp(meta->raw, again.raw, sizeof meta->raw) == 0)
            return sound;
    }
    return 0;
}

static void choose(ligi_file_catalog_meta *meta)
{
    int newer = get(meta->raw[1] + AT_TXNID, 8) > get(meta->raw[0] + AT_TXNID, 8);
    const uint8_t *raw = meta->raw[newer];

    meta->txnid = get(raw + AT_TXNID, 8);
    meta->last_page = get(raw + AT_LAST_PAGE, 8);
    for (int i = 0; i < 2; i++)
        meta->roots[i] = get(raw + AT_DATABASES + (i + 1) * DATABASE_BYTES - 8, 8);
}

lig_status ligi_file_catalog_meta_read(int fd, const char *place, ligi_file_catalog_meta *meta)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return ligi_fail_errno(errno, "%s: fstat of the catalog failed", place);
    if (info.st_size == 0)
        return LIG_E_NOTFOUND;
    if (!read_stable(fd, meta))
        return lig_fail(
            LIG_E_CORRUPT,
            "%s: catalog.mdb is damaged or not a catalog (move it away; a check then rebuilds it)",
            place);
    choose(meta);
    meta->file_bytes = (uint64_t)info.st_size;
    meta->modified_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    /* Flags of the items' database other than none would make LMDB read its nodes in another way.
     */
    const uint8_t *newest = meta->raw[get(meta->raw[1] + AT_TXNID, 8) == meta->txnid];
    if (meta->last_page < 1 || meta->last_page > (UINT64_C(1) << 48) / meta->page_bytes ||
        get(newest + AT_DATABASES + DATABASE_BYTES + 4, 2) != 0)
        return lig_fail(
            LIG_E_CORRUPT,
            "%s: the header of catalog.mdb is damaged (move it away; a check then rebuilds it)",
            place);
    return LIG_OK;
}

static int wrong(walk *self, const char *what)
{
    self->what = what;
    return 0;
}

static int check_overflow(walk *self, uint64_t page, uint64_t bytes)
{
    uint8_t head[PAGE_HEADER];
    uint64_t need = (PAGE_HEADER + bytes + self->meta->page_bytes - 1) / self->meta->page_bytes;

    if (page < 2 || page >= self->pages || need > self->pages - page)
        return wrong(self, "a value is past its end");
    if (!read_exact(self->fd, head, sizeof head, page * self->meta->page_bytes))
        return wrong(self, "a page cannot be read");
    if (get(head, 8) != page || (get(head + 10, 2) & PAGE_KINDS) != PAGE_OVERFLOW ||
        get(head + 12, 4) < need)
        return wrong(self, "a value refers to a page of another kind");
    self->visited += need;
    return 1;
}

/* A list of free pages: how many, then their numbers. */
static int check_free_list(walk *self, uint64_t bytes, uint64_t at)
{
    uint8_t number[8];

    if (bytes < 8 || !read_exact(self->fd, number, sizeof number, at))
        return wrong(self, "a list of free pages is truncated");
    if (get(number, 8) > bytes / 8 - 1)
        return wrong(self, "a list of free pages is too long");
    return 1;
}

static int check_leaf_node(walk *self, const uint8_t *page, uint64_t at)
{
    uint64_t page_bytes = self->meta->page_bytes;
    uint64_t bytes = get(page + at, 4), flags = get(page + at + 4, 2), key = get(page + at + 6, 2);
    uint64_t data = at + NODE_HEADER + key;
    int overflow = flags == NODE_OVERFLOW;

    if (key == 0 || key > KEY_BYTES_MAX || (flags != 0 && !overflow) ||
        (self->free_list && key != 8))
        return wrong(self, "a key is damaged");
    if (data + (overflow ? 8 : bytes) > page_bytes)
        return wrong(self, "an item extends beyond its page");
    uint64_t run = overflow ? get(page + data, 8) : 0;
    if (overflow && !check_overflow(self, run, bytes))
        return 0;
    if (!self->free_list)
        return 1;
    return check_free_list(
        self, bytes, overflow ? run * page_bytes + PAGE_HEADER : get(page, 8) * page_bytes + data);
}

/* Where node i of the page starts; 0 when it is not within the page. */
static uint64_t node_at(const walk *self, const uint8_t *page, uint64_t i)
{
    uint64_t at = get(page + PAGE_HEADER + 2 * i, 2), upper = get(page + 14, 2);

    if (at < upper || at + NODE_HEADER > self->meta->page_bytes || (at & 1) != 0 ||
        at + NODE_HEADER + get(page + at + 6, 2) > self->meta->page_bytes)
        return 0;
    return at;
}

static int load_page(walk *self, uint64_t number, uint8_t *page)
{
    uint64_t page_bytes = self->meta->page_bytes;

    if (number < 2 || number >= self->pages || number > self->meta->last_page)
        return wrong(self, "a page is past its end");
    if (++self->visited > self->pages)
        return wrong(self, "its pages form a cycle");
    if (!read_exact(self->fd, page, page_bytes, number * page_bytes))
        return wrong(self, "a page cannot be read");
    uint64_t kind = get(page + 10, 2) & PAGE_KINDS, lower = get(page + 12, 2),
             upper = get(page + 14, 2);
    if (get(page, 8) != number || (kind != PAGE_BRANCH && kind != PAGE_LEAF) ||
        lower < PAGE_HEADER + 2 || (lower & 1) != 0 || upper < lower || upper > page_bytes)
        return wrong(self, "a page is damaged");
    if (kind == PAGE_BRANCH && !self->free_list && lower < PAGE_HEADER + 4)
        return wrong(self, "a branch has one child");
    return 1;
}

static int walk_tree(walk *self, uint64_t number, int depth)
{
    if (depth == DEPTH_MAX)
        return wrong(self, "its tree is too deep");
    uint8_t *page = self->stack + (uint64_t)depth * self->meta->page_bytes;
    if (!load_page(self, number, page))
        return 0;
    int branch = (get(page + 10, 2) & PAGE_BRANCH) != 0;
    uint64_t count = (get(page + 12, 2) - PAGE_HEADER) / 2;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = node_at(self, page, i);
        if (at == 0)
            return wrong(self, "an item is outside its page");
        if (!branch && !check_leaf_node(self, page, at))
            return 0;
        if (branch && !walk_tree(self, get(page + at, 6), depth + 1))
            return 0;
    }
    return 1;
}

static int walk_both(int fd, const ligi_file_catalog_meta *meta, uint8_t *stack, const char **what)
{
    walk self = {
        .fd = fd, .meta = meta, .stack = stack, .pages = meta->file_bytes / meta->page_bytes};

    for (int i = 0; i < 2; i++) {
        self.free_list = i == 0;
        self.visited = 0;
        if (meta->roots[i] != NO_ROOT && !walk_tree(&self, meta->roots[i], 0)) {
            *what = self.what;
            return 0;
        }
    }
    return 1;
}

/* A catalog above `limit` bytes is checked only if it is shorter than its header says. */
static lig_status check(int fd, const char *place, uint64_t limit)
{
    ligi_file_catalog_meta meta;
    const char *what = "";
    uint64_t txnid = 0;
    uint8_t *stack;

    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        lig_status status = ligi_file_catalog_meta_read(fd, place, &meta);
        if (status == LIG_E_NOTFOUND)
            return LIG_OK;
        LIG_TRY(status);
        /* Nothing was written since the last check: the finding is final. */
        if (i > 0 && meta.txnid == txnid)
            return lig_fail(
                LIG_E_CORRUPT,
                "%s: catalog.mdb is damaged: %s (move it away; a check then rebuilds it)", place,
                what);
        txnid = meta.txnid;
        if (meta.file_bytes > limit && meta.file_bytes / meta.page_bytes > meta.last_page)
            return LIG_OK;
        LIG_TRY(
            ligi_alloc(&stack, (size_t)DEPTH_MAX * meta.page_bytes, "the check of the catalog"));
        int sound = walk_both(fd, &meta, stack, &what);
        free(stack);
        if (sound)
            return LIG_OK;
    }
    return LIG_OK;
}

lig_status ligi_file_catalog_check(int fd, const char *place)
{
    return check(fd, place, WALK_BYTES_MAX);
}

lig_status ligi_file_catalog_check_whole(int fd, const char *place)
{
    return check(fd, place, UINT64_MAX);
}
