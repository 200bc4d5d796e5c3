#include "backend/file/pins.h"

#include "backend/file/named_lock.h"

#include "base/clock.h"
#include "base/codec.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "leases"
#define HEAD_BYTES 256
#define RECORD_BYTES 16
#define SECOND_NS INT64_C(1000000000)
#define YOUNG_S 60
#define SLOTS_MAX (UINT32_C(1) << 20)

struct ligi_pins {
    int fd;
    char name[40];
    uint8_t *taken; /* of each record */
    size_t slots, capacity;
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

/* Locked under another name first: a file in leases/ that nobody holds belongs to the dead. */
static lig_status create_file(const ligi_file *self, ligi_pins *pins)
{
    char head[HEAD_BYTES], temporary[40];
    uint64_t id = ligi_random_id();
    if (mkdirat(self->folder_fd, FOLDER, 0777) != 0 && errno != EEXIST)
        return ligi_fail_errno(errno, "the folder " FOLDER " in '%s' cannot be made", self->place);
    snprintf(temporary, sizeof temporary, FOLDER "/tmp-%016" PRIx64, id);
    snprintf(pins->name, sizeof pins->name, FOLDER "/%016" PRIx64, id);
    pins->fd = openat(self->folder_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (pins->fd < 0)
        return ligi_fail_errno(errno, "a lease in '%s' cannot be made", self->place);
    describe_self(head);
    if (flock(pins->fd, LOCK_EX | LOCK_NB) == 0 &&
        pwrite(pins->fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
        renameat(self->folder_fd, temporary, self->folder_fd, pins->name) == 0)
        return LIG_OK;
    int number = errno;
    unlinkat(self->folder_fd, temporary, 0);
    close(pins->fd);
    return ligi_fail_errno(number, "a lease in '%s' cannot be written", self->place);
}

static lig_status own_file(ligi_file *self)
{
    if (self->pins)
        return LIG_OK;
    ligi_pins *pins = NULL;
    LIG_TRY(ligi_calloc(&pins, 1, sizeof *pins, "a lease"));
    lig_status status = create_file(self, pins);
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
    ligi_store_be64(record, pack);
    ligi_store_be64(record + 8, expires_ns);
    ssize_t done =
        pwrite(self->pins->fd, record, sizeof record, HEAD_BYTES + (off_t)slot * RECORD_BYTES);
    if (done == (ssize_t)sizeof record)
        return LIG_OK;
    return ligi_fail_errno(done < 0 ? errno : ENOSPC, "a lease in '%s' cannot be written",
                           self->place);
}

static lig_status take_slot(ligi_pins *pins, uint32_t *slot)
{
    size_t free_one = 0;
    while (free_one < pins->slots && pins->taken[free_one])
        free_one++;
    if (free_one == SLOTS_MAX)
        return lig_fail(LIG_E_LIMIT, "more than %u packs are pinned; release some matches",
                        SLOTS_MAX);
    LIG_TRY(ligi_grow(&pins->taken, &pins->capacity, free_one + 1, 1, "a lease"));
    pins->slots = free_one == pins->slots ? pins->slots + 1 : pins->slots;
    pins->taken[free_one] = 1;
    *slot = (uint32_t)free_one;
    return LIG_OK;
}

static void give_up(pin *held)
{
    for (size_t i = 0; i < held->count; i++) {
        held->volume->pins->taken[held->slots[i]] = 0;
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
        unlinkat(self->folder_fd, self->pins->name, 0);
    close(self->pins->fd);
    free(self->pins->taken);
    free(self->pins);
    self->pins = NULL;
}

/* --- everybody's files --- */

static int names_pack(int fd, uint64_t pack, int64_t now)
{
    uint8_t records[256 * RECORD_BYTES];
    off_t at = HEAD_BYTES;
    for (ssize_t bytes; (bytes = pread(fd, records, sizeof records, at)) >= RECORD_BYTES;
         at += bytes) {
        bytes -= bytes % RECORD_BYTES;
        for (ssize_t i = 0; i < bytes; i += RECORD_BYTES)
            if (ligi_load_be64(records + i) == pack &&
                ligi_load_be64(records + i + 8) > (uint64_t)now)
                return 1;
    }
    return 0;
}

/* 1 when a living process pins the pack through this file; the file of a dead one is removed. The
 * lock tells, not the catalog. */
static int pinned_by(int folder, const char *name, uint64_t pack, int64_t now)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno != ENOENT; /* what cannot be read may pin it */
    struct stat info;
    int unnamed = strncmp(name, "tmp-", 4) == 0; /* its owner may be about to lock it */
    int young = unnamed && fstat(fd, &info) == 0 && now / SECOND_NS - info.st_mtim.tv_sec < YOUNG_S;
    int dead = !young && flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (dead)
        unlinkat(folder, name, 0);
    int yes = !dead && names_pack(fd, pack, now);
    close(fd);
    return yes;
}

lig_status ligi_file_pinned(const ligi_file *self, uint64_t pack)
{
    int fd = openat(self->folder_fd, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT
                   ? LIG_OK
                   : ligi_fail_errno(errno, "the leases of '%s' cannot be read", self->place);
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        int number = errno;
        close(fd);
        return ligi_fail_errno(number, "the leases of '%s' cannot be read", self->place);
    }
    int64_t now = ligi_date_ns();
    int yes = 0;
    for (struct dirent *entry; !yes && (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, LIGI_NAMED_LOCK_PREFIX, strlen(LIGI_NAMED_LOCK_PREFIX)) == 0)
            ligi_named_lock_clean(fd, entry->d_name);
        else if (entry->d_name[0] != '.')
            yes = pinned_by(fd, entry->d_name, pack, now);
    }
    closedir(folder);
    return yes ? lig_fail(LIG_E_BUSY, "pack %" PRIx64 " is pinned by a match that is still in use",
                          pack)
               : LIG_OK;
}

void ligi_file_pins_clean(const ligi_file *self)
{
    (void)ligi_file_pinned(self, 0); /* no pack has this id: all files are looked at */
}
