/* Records how a process changes a folder: a journal of sectors, sizes, names and syncs, by watching
 * its system calls (trace_kill.h) and comparing the folder with what it was. Memory that is mapped
 * from files is compared as well, so that no write escapes.
 *
 * A sync settles what was written before it began. One that is made to fail settles nothing, nor does
 * a later one for the same writes: the kernel takes those pages for clean. */
#ifndef TRACE_WRITES_H
#define TRACE_WRITES_H

#include "trace_kill.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __x86_64__
#include <sys/user.h>
#endif

enum {
    WRITES_SECTOR = 512,
    WRITES_NODES = 256,
    WRITES_NAMES = 128, /* in the whole folder at a time */
    WRITES_ENTRIES = 1 << 17,
    WRITES_NAME = 64,
};

typedef struct writes_node { /* a file or folder; number 0 is the store's folder */
    ino_t inode;             /* 0: it has no name any more */
    int folder;
    uint8_t *now, *base; /* its content, and that at the beginning */
    size_t bytes, base_bytes;
} writes_node;

typedef struct writes_name {
    int folder, node; /* numbers of nodes */
    char name[WRITES_NAME];
} writes_name;

typedef enum writes_kind { WRITES_DATA, WRITES_SIZE, WRITES_NAMED, WRITES_SYNC } writes_kind;

typedef struct writes_entry {
    writes_kind kind;
    int node; /* of a name: its folder */
    int target,
        before;    /* of a name: what it stands for, -1 nothing; of a sync: entries before it */
    size_t at;     /* the sector, or the size */
    unsigned step; /* names that change in one step change together */
    union {
        uint8_t *data;
        char *name;
    } content;
    int lost;    /* a sync of it failed */
    int durable; /* by itself: O_DSYNC */
} writes_entry;

typedef enum writes_call { WRITES_SYNCS, WRITES_READS, WRITES_WRITES, WRITES_CALLS } writes_call;

typedef struct writes {
    char folder[128];
    writes_node nodes[WRITES_NODES];
    int node_count;
    writes_name names[WRITES_NAMES], names_base[WRITES_NAMES];
    int name_count, name_base_count;
    writes_entry *entries;
    int count;
    unsigned step;
    writes_call fails;            /* what is to fail, */
    unsigned calls[WRITES_CALLS]; /* how many there were */
    unsigned fail_at;             /* and the one that does; UINT_MAX: none */
    int number;                   /* its errno */
    int drop;                     /* the kernel drops the pages of a failed sync */
    int failed;                   /* it did */
    int full;                     /* some limit was too small */
} writes;

/* --- the journal --- */

static inline writes_entry *writes_add(writes *self, writes_kind kind, int node)
{
    if (self->count == WRITES_ENTRIES) {
        self->full = 1;
        self->count--;
    }
    writes_entry *entry = &self->entries[self->count++];
    *entry = (writes_entry){.kind = kind, .node = node, .step = self->step};
    return entry;
}

static inline int writes_find(writes *self, const struct stat *info)
{
    for (int i = 0; i < self->node_count; i++)
        if (self->nodes[i].inode == info->st_ino)
            return i;
    if (self->node_count == WRITES_NODES) {
        self->full = 1;
        return WRITES_NODES - 1;
    }
    self->nodes[self->node_count] =
        (writes_node){.inode = info->st_ino, .folder = S_ISDIR(info->st_mode)};
    return self->node_count++;
}

static inline void writes_sector(writes *self, int number, const uint8_t *data, size_t sector)
{
    writes_entry *entry = writes_add(self, WRITES_DATA, number);
    entry->at = sector;
    entry->content.data = malloc(WRITES_SECTOR);
    memcpy(entry->content.data, data, WRITES_SECTOR);
}

/* Compares a file with what it was; sectors [from, to) count as written in any case. */
static inline void writes_compare(writes *self, int number, const char *path, size_t from,
                                  size_t to)
{
    writes_node *node = &self->nodes[number];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0)
        return;
    size_t bytes = (size_t)info.st_size;
    size_t most = bytes > node->bytes ? bytes : node->bytes;
    size_t sectors = (most + WRITES_SECTOR - 1) / WRITES_SECTOR;
    uint8_t *now = calloc(sectors + 1, WRITES_SECTOR), *was = calloc(sectors + 1, WRITES_SECTOR);
    if (node->bytes)
        memcpy(was, node->now, node->bytes);
    ssize_t got = pread(fd, now, bytes, 0);
    bytes = got < 0 ? 0 : (size_t)got;
    close(fd);
    if (bytes != node->bytes)
        writes_add(self, WRITES_SIZE, number)->at = bytes;
    for (size_t i = 0; i * WRITES_SECTOR < bytes; i++)
        if ((i >= from && i < to) ||
            memcmp(now + i * WRITES_SECTOR, was + i * WRITES_SECTOR, WRITES_SECTOR) != 0)
            writes_sector(self, number, now + i * WRITES_SECTOR, i);
    free(was);
    free(node->now);
    node->now = now;
    node->bytes = bytes;
}

/* --- names --- */

static inline void writes_list(writes *self, int folder, const char *path, writes_name *names,
                               int *count)
{
    DIR *listing = opendir(path);
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
        char inner[PATH_MAX];
        struct stat info;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            lstat(inner, &info) != 0)
            continue;
        if (*count == WRITES_NAMES) {
            self->full = 1;
            break;
        }
        writes_name *one = &names[(*count)++];
        memset(one, 0, sizeof *one);
        one->folder = folder;
        one->node = writes_find(self, &info);
        snprintf(one->name, sizeof one->name, "%.63s", entry->d_name);
        if (S_ISDIR(info.st_mode))
            writes_list(self, one->node, inner, names, count);
    }
    if (listing)
        closedir(listing);
}

static inline const writes_name *writes_lookup(const writes_name *names, int count, int folder,
                                               const char *name)
{
    for (int i = 0; i < count; i++)
        if (names[i].folder == folder && strcmp(names[i].name, name) == 0)
            return &names[i];
    return NULL;
}

static inline void writes_named(writes *self, const writes_name *name, int target)
{
    writes_entry *entry = writes_add(self, WRITES_NAMED, name->folder);
    entry->target = target;
    entry->content.name = strdup(name->name);
}

static inline void writes_compare_names(writes *self, writes_name *names, int count)
{
    for (int i = 0; i < count; i++) {
        const writes_name *was =
            writes_lookup(self->names, self->name_count, names[i].folder, names[i].name);
        if (was == NULL || was->node != names[i].node)
            writes_named(self, &names[i], names[i].node);
    }
    for (int i = 0; i < self->name_count; i++)
        if (writes_lookup(names, count, self->names[i].folder, self->names[i].name) == NULL)
            writes_named(self, &self->names[i], -1);
    for (int i = 1; i < self->node_count; i++) {
        int there = 0;
        for (int k = 0; k < count; k++)
            there |= names[k].node == i;
        if (!there)
            self->nodes[i].inode = 0; /* the number may be given to another file */
    }
    memcpy(self->names, names, sizeof *names * (size_t)count);
    self->name_count = count;
}

static inline void writes_path(const writes *self, const writes_name *name, char *path,
                               size_t bytes)
{
    char above[512];
    snprintf(above, sizeof above, "%s", self->folder);
    for (int i = 0; i < self->name_count && name->folder != 0; i++)
        if (self->names[i].node == name->folder)
            writes_path(self, &self->names[i], above, sizeof above);
    snprintf(path, bytes, "%.500s/%s", above, name->name);
}

/* Takes in what has changed. `touched`: the file that was written to, -1 for none. */
static inline void writes_look(writes *self, int touched, size_t from, size_t to)
{
    static writes_name names[WRITES_NAMES];
    int count = 0;
    self->step++;
    writes_list(self, 0, self->folder, names, &count);
    writes_compare_names(self, names, count);
    for (int i = 0; i < self->name_count; i++) {
        char path[PATH_MAX];
        const writes_name *one = &self->names[i];
        writes_node *node = &self->nodes[one->node];
        if (node->folder)
            continue;
        writes_path(self, one, path, sizeof path);
        /* Packs are large, and are never mapped for writing. */
        if (one->node == touched)
            writes_compare(self, one->node, path, from, to);
        else if (node->now == NULL || strstr(path, "/packs/") == NULL)
            writes_compare(self, one->node, path, 0, 0);
    }
}

/* --- watching --- */

/* The node behind a descriptor of the process, or -1. */
static inline int writes_node_of(writes *self, pid_t process, uint64_t fd)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)process, (int)fd);
    if (stat(path, &info) != 0)
        return -1;
    for (int i = 0; i < self->node_count; i++)
        if (self->nodes[i].inode == info.st_ino)
            return i;
    return -1;
}

/* A line of what the kernel says of a descriptor. */
static inline uint64_t writes_descriptor(pid_t process, uint64_t fd, const char *word, int base)
{
    char path[64], line[128];
    uint64_t value = 0;
    snprintf(path, sizeof path, "/proc/%ld/fdinfo/%d", (long)process, (int)fd);
    FILE *stream = fopen(path, "re");
    while (stream != NULL && fgets(line, sizeof line, stream) != NULL)
        if (strncmp(line, word, strlen(word)) == 0)
            value = strtoull(line + strlen(word), NULL, base);
    if (stream != NULL)
        fclose(stream);
    return value;
}

/* How many entries of a node (-1: of any) the syncs among the first `cut` entries have settled. */
static inline int writes_settled(const writes *self, int node, int cut)
{
    int settled = 0;
    for (int i = 0; i < cut; i++) {
        const writes_entry *entry = &self->entries[i];
        if (entry->kind == WRITES_SYNC && (entry->node == node || node < 0) &&
            entry->before > settled)
            settled = entry->before;
    }
    return settled;
}

/* The disk's content comes back into the page cache: what was not synced is gone. */
static inline void writes_drop(writes *self, int number)
{
    writes_node *node = &self->nodes[number];
    char path[PATH_MAX] = "";
    int settled = writes_settled(self, number, self->count);
    for (int i = 0; i < self->name_count; i++)
        if (self->names[i].node == number)
            writes_path(self, &self->names[i], path, sizeof path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    for (int i = self->count - 1; fd >= 0 && i >= settled; i--) {
        const writes_entry *entry = &self->entries[i];
        if (entry->kind != WRITES_DATA || entry->node != number)
            continue;
        uint8_t old[WRITES_SECTOR] = {0};
        size_t at = entry->at * WRITES_SECTOR;
        if (at < node->base_bytes)
            memcpy(old, node->base + at,
                   node->base_bytes - at < sizeof old ? node->base_bytes - at : sizeof old);
        for (int k = 0; k < settled; k++)
            if (self->entries[k].kind == WRITES_DATA && self->entries[k].node == number &&
                self->entries[k].at == entry->at)
                memcpy(old, self->entries[k].content.data, sizeof old);
        size_t left = node->bytes - at < sizeof old ? node->bytes - at : sizeof old;
        if (at < node->bytes && pwrite(fd, old, left, (off_t)at) != (ssize_t)left)
            self->full = 1;
    }
    if (fd >= 0)
        close(fd);
}

static inline void writes_fail_sync(writes *self, int number)
{
    for (int i = writes_settled(self, number, self->count); i < self->count; i++)
        if (self->entries[i].node == number && self->entries[i].kind == WRITES_DATA)
            self->entries[i].lost = !self->entries[i].durable;
    if (self->drop && !self->nodes[number].folder) {
        writes_drop(self, number);
        int before = self->count;
        writes_look(self, -1, 0, 0);
        for (int i = before; i < self->count; i++)
            self->entries[i].lost = 1; /* that is what the disk holds, not a write */
    }
}

static inline void writes_see_sync(writes *self, trace_thread *thread, int number, int ended)
{
    if (!ended) {
        writes_look(self, -1, 0, 0);
        thread->arguments[5] = (uint64_t)self->count;
    } else if (thread->refused)
        writes_fail_sync(self, number);
    else
        writes_add(self, WRITES_SYNC, number)->before = (int)thread->arguments[5];
}

static inline void writes_see_write(writes *self, trace_thread *thread, int number, uint64_t bytes)
{
    uint64_t fd = thread->arguments[0], from = thread->arguments[3];
    if (thread->call == SYS_write || thread->call == SYS_writev)
        from = writes_descriptor(thread->id, fd, "pos:", 10) - bytes;
    int before = self->count;
    writes_look(self, number, from / WRITES_SECTOR,
                (from + bytes + WRITES_SECTOR - 1) / WRITES_SECTOR);
    int durable = (writes_descriptor(thread->id, fd, "flags:", 8) & O_DSYNC) != 0;
    for (int i = before; i < self->count; i++)
        self->entries[i].durable = durable && self->entries[i].node == number;
}

static inline writes_call writes_classify(long call)
{
    switch (call) {
    case SYS_fsync:
    case SYS_fdatasync: return WRITES_SYNCS;
    case SYS_read:
    case SYS_pread64:
    case SYS_preadv: return WRITES_READS;
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_pwritev:
    case SYS_pwritev2: return WRITES_WRITES;
    default: return WRITES_CALLS;
    }
}

static inline void writes_observe(trace *traced, trace_thread *thread, int ended, int64_t result)
{
    writes *self = traced->observer;
    writes_call class = writes_classify(thread->call);
    if (class == WRITES_CALLS) {
        if (ended && thread->call != SYS_fcntl && thread->call != SYS_flock)
            writes_look(self, -1, 0, 0);
        return;
    }
    int number = writes_node_of(self, thread->id, thread->arguments[0]);
    if (number < 0)
        return;
    if (!ended) {
        int chosen = self->calls[class]++ == self->fail_at && class == self->fails;
        thread->refused = chosen && trace_refuse(thread, 0, self->number);
    }
    if (class == WRITES_SYNCS && (!ended || thread->refused || result == 0))
        writes_see_sync(self, thread, number, ended);
    else if (class == WRITES_WRITES && ended && result > 0 && !thread->refused)
        writes_see_write(self, thread, number, (uint64_t)result);
    if (ended && thread->refused) {
        trace_refuse(thread, 1, self->number);
        thread->refused = 0;
        self->failed = 1;
    }
}

/* --- beginning and end --- */

/* What the folder holds now is on the disk. */
static inline void writes_begin(writes *self, const char *folder)
{
    struct stat info;
    memset(self, 0, sizeof *self);
    self->fail_at = UINT_MAX;
    self->number = EIO;
    self->entries = calloc(WRITES_ENTRIES, sizeof *self->entries);
    snprintf(self->folder, sizeof self->folder, "%s", folder);
    if (self->entries == NULL || stat(folder, &info) != 0 || writes_find(self, &info) != 0)
        return;
    writes_look(self, -1, 0, 0);
    for (int i = 0; i < self->count; i++)
        free(self->entries[i].kind == WRITES_SIZE ? NULL : self->entries[i].content.name);
    self->count = 0;
    for (int i = 0; i < self->node_count; i++) {
        writes_node *node = &self->nodes[i];
        node->base = malloc(node->bytes + 1);
        node->base_bytes = node->bytes;
        if (node->bytes)
            memcpy(node->base, node->now, node->bytes);
    }
    memcpy(self->names_base, self->names, sizeof self->names);
    self->name_base_count = self->name_count;
}

static inline void writes_end(writes *self)
{
    for (int i = 0; i < self->count; i++)
        if (self->entries[i].kind == WRITES_DATA || self->entries[i].kind == WRITES_NAMED)
            free(self->entries[i].content.name);
    for (int i = 0; i < self->node_count; i++) {
        free(self->nodes[i].now);
        free(self->nodes[i].base);
    }
    free(self->entries);
    self->entries = NULL;
    self->count = 0;
}

#endif
