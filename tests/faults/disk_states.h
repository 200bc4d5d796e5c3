/* The folders that a power cut may leave (as ALICE and CrashMonkey make them): what was synced is
 * there; of the rest, each sector is as it was, or as one of the later writes left it; sizes and
 * names likewise, in order within a folder or, in the strict mode, in any. */
#ifndef DISK_STATES_H
#define DISK_STATES_H

#include "trace_writes.h"

typedef struct disk_choice {
    uint64_t random;
    unsigned keep; /* of 16: how likely what was not synced is there */
    int strict; /* names of one folder survive in any order, and only its own sync settles them */
} disk_choice;

static inline unsigned disk_draw(disk_choice *self, unsigned count)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return (unsigned)((self->random >> 11) % count);
}

static inline int disk_keeps(disk_choice *self)
{
    return disk_draw(self, 16) < self->keep;
}

typedef struct disk_file {
    uint8_t *data;
    size_t bytes, room;
} disk_file;

static inline void disk_resize(disk_file *file, size_t bytes)
{
    if (bytes + WRITES_SECTOR > file->room) {
        file->data = realloc(file->data, bytes + WRITES_SECTOR);
        memset(file->data + file->room, 0, bytes + WRITES_SECTOR - file->room);
        file->room = bytes + WRITES_SECTOR;
    }
    if (bytes < file->bytes)
        memset(file->data + bytes, 0, file->bytes - bytes);
    file->bytes = bytes;
}

static inline disk_file disk_content(const writes *journal, int number, int cut,
                                     disk_choice *choice)
{
    const writes_node *node = &journal->nodes[number];
    int settled = writes_settled(journal, number, cut);
    disk_file file = {0};
    size_t last = node->base_bytes;
    disk_resize(&file, node->base_bytes);
    if (node->base_bytes)
        memcpy(file.data, node->base, node->base_bytes);
    for (int i = 0; i < cut; i++) {
        const writes_entry *entry = &journal->entries[i];
        if (entry->node != number)
            continue;
        if (entry->kind == WRITES_SIZE) {
            last = entry->at;
            if (i < settled || entry->durable || disk_keeps(choice))
                disk_resize(&file, entry->at);
        } else if (entry->kind == WRITES_DATA && !entry->lost &&
                   (i < settled || entry->durable || disk_keeps(choice))) {
            size_t from = entry->at * WRITES_SECTOR, to = from + WRITES_SECTOR;
            if (from >= last)
                continue;
            to = to > last ? last : to;
            if (to > file.bytes)
                disk_resize(&file, to);
            memcpy(file.data + from, entry->content.data, to - from);
        }
    }
    return file;
}

/* --- names --- */

static inline void disk_rename(writes_name *names, int *count, const writes_entry *entry)
{
    for (int i = 0; i < *count; i++)
        if (names[i].folder == entry->node && strcmp(names[i].name, entry->content.name) == 0)
            names[i--] = names[--*count];
    if (entry->target < 0 || *count == WRITES_NAMES)
        return;
    writes_name *one = &names[(*count)++];
    one->folder = entry->node;
    one->node = entry->target;
    snprintf(one->name, sizeof one->name, "%s", entry->content.name);
}

/* The names of one folder after the cut. */
static inline void disk_names(const writes *journal, int folder, int cut, disk_choice *choice,
                              writes_name *names, int *count)
{
    /* ext4 writes its journal in order: any sync settles the names before it. */
    int settled = writes_settled(journal, choice->strict ? folder : -1, cut), kept = 1;
    unsigned step = 0;
    for (int i = 0; i < cut; i++) {
        const writes_entry *entry = &journal->entries[i];
        if (entry->kind != WRITES_NAMED || entry->node != folder)
            continue;
        if (i >= settled && entry->step != step)
            kept = (choice->strict || kept) && disk_keeps(choice);
        step = entry->step;
        if (i < settled || kept)
            disk_rename(names, count, entry);
    }
}

static inline void disk_write(const char *path, const disk_file *file)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    for (size_t at = 0; fd >= 0 && at < file->bytes;) {
        ssize_t done = write(fd, file->data + at, file->bytes - at);
        if (done <= 0)
            break;
        at += (size_t)done;
    }
    if (fd >= 0)
        close(fd);
}

static inline void disk_put(const writes *journal, const writes_name *names, int count, int folder,
                            const char *path, int cut, disk_choice *choice)
{
    mkdir(path, 0777);
    for (int i = 0; i < count; i++) {
        char inner[PATH_MAX];
        if (names[i].folder != folder)
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, names[i].name);
        if (journal->nodes[names[i].node].folder) {
            disk_put(journal, names, count, names[i].node, inner, cut, choice);
            continue;
        }
        int twin = 0; /* a second name of the same file */
        while (names[twin].node != names[i].node)
            twin++;
        disk_file file = disk_content(journal, names[i].node, cut, choice);
        if (twin == i || names[twin].folder != folder)
            disk_write(inner, &file);
        else {
            char other[PATH_MAX];
            snprintf(other, sizeof other, "%s/%s", path, names[twin].name);
            if (link(other, inner) != 0)
                disk_write(inner, &file);
        }
        free(file.data);
    }
}

/* Makes `path`, which does not exist, what the folder is after a power cut behind `cut` entries. */
static inline void disk_make(const writes *journal, int cut, disk_choice *choice, const char *path)
{
    static writes_name names[WRITES_NAMES];
    int count = journal->name_base_count;
    memcpy(names, journal->names_base, sizeof *names * (size_t)count);
    for (int i = 0; i < journal->node_count; i++)
        if (journal->nodes[i].folder)
            disk_names(journal, i, cut, choice, names, &count);
    disk_put(journal, names, count, 0, path, cut, choice);
}

#endif
