#include "backend/file/leases/file_pins.h"

#include "backend/file/entry.h"
#include "backend/file/folder.h"
#include "backend/file/leases/named_lock.h"
#include "backend/file/names.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER LIGI_NAME_LEASES
#define HEAD_BYTES 256
#define RECORD_BYTES 16
#define SECOND_NS INT64_C(1000000000)
#define YOUNG_S 60
#define SLOTS_MAX (UINT32_C(1) << 20)

struct ligi_pins {
    int fd, folder_fd;
    char name[40];
    uint8_t *taken; /* of each record */
    size_t slots, capacity;
    size_t lowest; /* no slot below it is free */
};

typedef struct pin {
    ligi_file *volume;
    size_t count;
    uint32_t slots[];
} pin;

/* --- our own file --- */

static void describe_self(char *head)
{
    char boot[64] = "unknown";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (fscanf(file, "%63s", boot) != 1)
            snprintf(boot, sizeof boot, "unknown");
        fclose(file);
    }
    struct stat self;
    long long started = stat("/proc/self", &self) == 0 ? (long long)self.st_ctim.tv_sec : 0;
    memset(head, ' ', HEAD_BYTES);
    int used = snprintf(head, HEAD_BYTES, "ligament lease 1\npid %ld\nstarted %lld\nboot %s\n",
                        (long)getpid(), started, boot);
    head[used] = ' ';
    head[HEAD_BYTES - 1] = '\n';
}

/* Locked under another name first: an unlocked file in leases/ belongs to a dead process. */
static lig_status create_file(const ligi_file *self, ligi_pins *pins)
{
    char head[HEAD_BYTES], temporary[40];
    uint64_t id = ligi_folder_random_id();
    snprintf(temporary, sizeof temporary, LIGI_NAME_TEMPORARY "%016" PRIx64, id);
    snprintf(pins->name, sizeof pins->name, "%016" PRIx64, id);
    pins->fd = openat(pins->folder_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (pins->fd < 0)
        return ligi_fail_errno(errno, "cannot create a lease in '%s'", self->place);
    ligi_entry_own(self->folder_fd, pins->fd);
    describe_self(head);
    if (flock(pins->fd, LOCK_EX | LOCK_NB) == 0 &&
        pwrite(pins->fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
        renameat(pins->folder_fd, temporary, pins->folder_fd, pins->name) == 0)
        return LIG_OK;
    int number = errno;
    unlinkat(pins->folder_fd, temporary, 0);
    close(pins->fd);
    return ligi_fail_errno(number, "cannot write a lease in '%s'", self->place);
}

static lig_status create_pins(const ligi_file *self, ligi_pins *pins)
{
    if (!ligi_entry_mkdir(self->folder_fd, FOLDER) && errno != EEXIST)
        return ligi_fail_errno(errno, "cannot create %s/" FOLDER, self->place);
    lig_status status = ligi_entry_folder(self->folder_fd, self->place, FOLDER, &pins->folder_fd);
    if (status == LIG_E_NOTFOUND)
        return ligi_fail_errno(ENOENT, "cannot open %s/" FOLDER, self->place);
    LIG_TRY(status);
    status = create_file(self, pins);
    if (status != LIG_OK)
        close(pins->folder_fd);
    return status;
}

static lig_status own_file(ligi_file *self)
{
    if (self->pins)
        return LIG_OK;
    ligi_pins *pins = NULL;
    LIG_TRY(ligi_calloc(&pins, 1, sizeof *pins, "a lease"));
    lig_status status = create_pins(self, pins);
    if (status == LIG_OK)
        self->pins = pins;
    else
        free(pins);
    return status;
}

static lig_status write_record(const ligi_file *self, uint32_t slot, uint64_t pack,
                               uint64_t expires_ns)
{
    uint8_t record[RECORD_BYTES];
    ligi_put_be64(record, pack);
    ligi_put_be64(record + 8, expires_ns);
    ssize_t done =
        pwrite(self->pins->fd, record, sizeof record, HEAD_BYTES + (off_t)slot * RECORD_BYTES);
    if (done == (ssize_t)sizeof record)
        return LIG_OK;
    return ligi_fail_errno(done < 0 ? errno : ENOSPC, "cannot write a lease in '%s'", self->place);
}

static lig_status take_slot(ligi_pins *pins, uint32_t *slot)
{
    size_t free_one = pins->lowest;
    while (free_one < pins->slots && pins->taken[free_one])
        free_one++;
    if (free_one == SLOTS_MAX)
        return lig_fail(LIG_E_LIMIT, "more than %u packs are pinned (release some matches)",
                        SLOTS_MAX);
    LIG_TRY(ligi_grow(&pins->taken, &pins->capacity, free_one + 1, 1, "a lease"));
    pins->slots = free_one == pins->slots ? pins->slots + 1 : pins->slots;
    pins->taken[free_one] = 1;
    pins->lowest = free_one + 1;
    *slot = (uint32_t)free_one;
    return LIG_OK;
}

static void give_up(pin *held)
{
    ligi_pins *pins = held->volume->pins;
    for (size_t i = 0; i < held->count; i++) {
        pins->taken[held->slots[i]] = 0;
        if (held->slots[i] < pins->lowest)
            pins->lowest = held->slots[i];
        (void)write_record(held->volume, held->slots[i], 0, 0);
    }
}

static lig_status take_all(pin *held, const uint64_t *packs, size_t count, int64_t expires_ns)
{
    LIG_TRY(own_file(held->volume));
    for (size_t i = 0; i < count; i++) {
        LIG_TRY(take_slot(held->volume->pins, &held->slots[held->count]));
        held->count++;
        LIG_TRY(write_record(held->volume, held->slots[i], packs[i], (uint64_t)expires_ns));
    }
    /* Other hosts see what the server has. */
    if (held->volume->network && fdatasync(held->volume->pins->fd) != 0)
        return ligi_fail_errno(errno, "cannot write a lease in '%s'", held->volume->place);
    return LIG_OK;
}

lig_status ligi_file_pin(void *opaque, const uint64_t *packs, size_t count, int64_t expires_ns,
                         void **out)
{
    ligi_file *self = opaque;
    LIG_TRY(ligi_file_writable(self));
    pin *held = NULL;
    LIG_TRY(ligi_calloc(&held, 1, sizeof *held + count * sizeof held->slots[0], "a pin"));
    held->volume = self;
    pthread_mutex_lock(&self->lock);
    lig_status status = take_all(held, packs, count, expires_ns);
    if (status != LIG_OK && self->pins)
        give_up(held);
    pthread_mutex_unlock(&self->lock);
    if (status == LIG_OK)
        *out = held;
    else
        free(held);
    return status;
}

void ligi_file_unpin(void *opaque)
{
    pin *held = opaque;
    if (held == NULL)
        return;
    if (held->volume->pid == getpid()) {
        pthread_mutex_lock(&held->volume->lock);
        give_up(held);
        pthread_mutex_unlock(&held->volume->lock);
    }
    free(held);
}

void ligi_file_pins_close(ligi_file *self, int forked)
{
    if (self->pins == NULL)
        return;
    if (!forked)
        unlinkat(self->pins->folder_fd, self->pins->name, 0);
    close(self->pins->folder_fd);
    close(self->pins->fd);
    free(self->pins->taken);
    free(self->pins);
    self->pins = NULL;
}

/* --- everybody's files --- */

static int names_pack(int fd, uint64_t pack, int64_t now)
{
    const off_t end = HEAD_BYTES + (off_t)SLOTS_MAX * RECORD_BYTES; /* no lease is longer */
    uint8_t records[256 * RECORD_BYTES];
    off_t at = HEAD_BYTES;
    for (ssize_t bytes;
         at < end && (bytes = pread(fd, records, sizeof records, at)) >= RECORD_BYTES;
         at += bytes) {
        bytes -= bytes % RECORD_BYTES;
        for (ssize_t i = 0; i < bytes; i += RECORD_BYTES)
            if (ligi_get_be64(records + i) == pack &&
                ligi_get_be64(records + i + 8) > (uint64_t)now)
                return 1;
    }
    return 0;
}

typedef struct look { /* over all leases, for one pack */
    const ligi_file *volume;
    int folder_fd;
    const char *path; /* of the folder */
    uint64_t pack;
    int64_t now;
} look;

/* LIG_E_BUSY if a live process pins the pack through this file; the file of a dead one is
 * removed. The lock decides, not the catalog. A file that cannot be read may pin the pack. */
static lig_status look_at(const look *self, const char *name, int temporary)
{
    struct stat info;
    int fd;
    lig_status status =
        ligi_entry_open(self->volume->folder_fd, self->folder_fd, self->path, name, O_RDONLY, &fd);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    if (status != LIG_OK)
        return ligi_fail_again(LIG_E_BUSY, "pack %016" PRIx64 " may be pinned: %s", self->pack,
                               lig_error_text());
    /* The owner of a temporary may be about to lock it. */
    int young =
        temporary && fstat(fd, &info) == 0 && self->now / SECOND_NS - info.st_mtim.tv_sec < YOUNG_S;
    int dead = !young && flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (dead)
        unlinkat(self->folder_fd, name, 0);
    if (!dead && names_pack(fd, self->pack, self->now))
        status = lig_fail(LIG_E_BUSY,
                          "pack %016" PRIx64 " is pinned by a match that is still in use (%s/%s)",
                          self->pack, self->path, name);
    close(fd);
    return status;
}

static lig_status look_at_all(look *self, DIR *folder)
{
    lig_status status = LIG_OK;
    for (struct dirent *entry; status == LIG_OK && (entry = readdir(folder)) != NULL;) {
        ligi_name_kind kind = ligi_name_read(LIGI_FOLDER_LEASES, entry->d_name, NULL);
        if (kind == LIGI_NAME_LEASE || kind == LIGI_NAME_LEASE_TEMPORARY)
            status = look_at(self, entry->d_name, kind == LIGI_NAME_LEASE_TEMPORARY);
        else if (kind == LIGI_NAME_LOCK)
            ligi_named_lock_clean(self->folder_fd, entry->d_name);
    }
    return status;
}

lig_status ligi_file_pinned(const ligi_file *self, uint64_t pack)
{
    char path[PATH_MAX];
    int fd;
    lig_status status = ligi_entry_folder(self->folder_fd, self->place, FOLDER, &fd);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        int number = errno;
        close(fd);
        return ligi_fail_errno(number, "cannot list %s/" FOLDER, self->place);
    }
    snprintf(path, sizeof path, "%s/" FOLDER, self->place);
    look all = {self, fd, path, pack, ligi_date_ns()};
    status = look_at_all(&all, folder);
    closedir(folder);
    return status;
}

void ligi_file_pins_clean(const ligi_file *self)
{
    (void)ligi_file_pinned(self, 0); /* no pack has this id: all files are looked at */
}
