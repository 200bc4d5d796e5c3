#include "backend/file/leases/named_lock.h"

#include "backend/file/names.h"
#include "backend/file/packs/engine.h"
#include "backend/shared_instances.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER LIGI_NAME_LEASES
#define FILE_BYTES 32
#define HOST_BYTES 128
#define TEXT_BYTES 512
#define ATTEMPTS 1000
#define YOUNG_S 60

typedef struct named_lock { /* one for each name and process, however often it is taken */
    int leases_fd, fd;      /* -1 on a network file system, and in a forked child */
    char file[FILE_BYTES];
} named_lock;

typedef struct lock_holder { /* pid 0: not known */
    long pid;
    char host[HOST_BYTES], since[32];
} lock_holder;

typedef struct lock_request {
    const ligi_file *volume;
    const char *name;
} lock_request;

static void host_name(char host[HOST_BYTES])
{
    memset(host, 0, HOST_BYTES);
    if (gethostname(host, HOST_BYTES - 1) != 0 || host[0] == '\0')
        snprintf(host, HOST_BYTES, "unknown");
}

/* Best effort: the kernel holds the lock, the text only tells people who has it. */
static void write_holder(int fd)
{
    char text[TEXT_BYTES], host[HOST_BYTES], since[32];
    time_t now = (time_t)(ligi_date_ns() / 1000000000);
    struct tm date;

    host_name(host);
    gmtime_r(&now, &date);
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &date);
    int bytes = snprintf(text, sizeof text, "ligament lock 1\npid %ld\nhost %s\nsince %s\n",
                         (long)getpid(), host, since);
    if (ftruncate(fd, 0) == 0)
        (void)ligi_write_all(fd, text, (size_t)bytes, 0);
}

static void read_holder(int fd, lock_holder *holder)
{
    char text[TEXT_BYTES];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);

    memset(holder, 0, sizeof *holder);
    text[got > 0 ? got : 0] = '\0';
    if (sscanf(text, "ligament lock 1\npid %ld\nhost %127[^\n]\nsince %31[^\n]", &holder->pid,
               holder->host, holder->since) != 3)
        holder->pid = 0;
    for (char *c = holder->host; *c != '\0'; c++)
        *c = isprint((unsigned char)*c) ? *c : '?';
    for (char *c = holder->since; *c != '\0'; c++)
        *c = isprint((unsigned char)*c) ? *c : '?';
}

/* The lock changes hands, or another process is about to remove the file of a dead holder. A
 * process in another namespace also seems dead, so retry instead of proceeding. */
static int in_transition(const lock_holder *holder)
{
    char host[HOST_BYTES];

    if (holder->pid <= 0)
        return 1;
    host_name(host);
    return strcmp(host, holder->host) == 0 && kill((pid_t)holder->pid, 0) != 0 && errno == ESRCH;
}

static lig_status busy(const lock_request *request, const lock_holder *holder)
{
    if (holder->pid <= 0)
        return lig_fail(LIG_E_BUSY, "run '%s' in %s is being written by another process",
                        request->name, request->volume->place);
    return lig_fail(LIG_E_BUSY,
                    "run '%s' in %s is being written by process %ld on %s since %s (wait until it "
                    "ends, or use another run)",
                    request->name, request->volume->place, holder->pid, holder->host,
                    holder->since);
}

/* Only what we made is ever written or removed. */
static int is_lock_file(int fd)
{
    struct stat mine;
    return fstat(fd, &mine) == 0 && S_ISREG(mine.st_mode) && mine.st_nlink <= 1;
}

/* A lock on a file that was removed in the meantime protects nothing. */
static int is_current(int leases_fd, const char *file, int fd)
{
    struct stat mine, named;

    return is_lock_file(fd) && fstat(fd, &mine) == 0 &&
           fstatat(leases_fd, file, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == mine.st_dev && named.st_ino == mine.st_ino;
}

/* LIG_OK with fd -1: try again. */
static lig_status try_lock(named_lock *self, const lock_request *request, lock_holder *holder)
{
    int fd = openat(self->leases_fd, self->file,
                    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        return ligi_fail_errno(errno, "cannot open the lock %s/" FOLDER "/%s of run '%s'",
                               request->volume->place, self->file, request->name);
    ligi_entry_own(request->volume->folder_fd, fd);
    lig_status status = LIG_OK;
    if (!is_lock_file(fd)) {
        status = lig_fail(LIG_E_CORRUPT, "%s/" FOLDER "/%s is not a lock file (remove it)",
                          request->volume->place, self->file);
    } else if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        memset(holder, 0, sizeof *holder);
        if (is_current(self->leases_fd, self->file, fd)) {
            write_holder(fd);
            self->fd = fd;
            return LIG_OK;
        }
    } else if (errno == EWOULDBLOCK) {
        read_holder(fd, holder);
        if (!in_transition(holder))
            status = busy(request, holder);
    } else if (errno != EINTR) {
        status = ligi_fail_errno(errno, "cannot lock %s/" FOLDER "/%s for run '%s'",
                                 request->volume->place, self->file, request->name);
    }
    close(fd);
    return status;
}

static lig_status take(named_lock *self, const lock_request *request)
{
    lock_holder holder = {0};

    for (int i = 0; i < ATTEMPTS; i++) {
        LIG_TRY(try_lock(self, request, &holder));
        if (self->fd >= 0)
            return LIG_OK;
        sched_yield();
    }
    return busy(request, &holder);
}

static lig_status open_leases(const ligi_file *volume, int *fd)
{
    if (!ligi_entry_mkdir(volume->folder_fd, FOLDER) && errno != EEXIST)
        return ligi_fail_errno(errno, "cannot create %s/" FOLDER, volume->place);
    *fd = openat(volume->folder_fd, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (*fd < 0)
        return ligi_fail_errno(errno, "cannot open %s/" FOLDER, volume->place);
    return LIG_OK;
}

static void close_files(void *object)
{
    named_lock *self = object;

    if (self->fd >= 0)
        close(self->fd);
    if (self->leases_fd >= 0)
        close(self->leases_fd);
    self->fd = self->leases_fd = -1;
}

/* The name is removed before the lock: a process that opened the file in between sees that it is
 * not current. */
static void destroy(void *object)
{
    named_lock *self = object;

    if (self->fd >= 0 && is_current(self->leases_fd, self->file, self->fd))
        unlinkat(self->leases_fd, self->file, 0);
    close_files(self);
    free(self);
}

static lig_status create(void *context, void **object)
{
    const lock_request *request = context;
    named_lock *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a lock"));
    made->fd = made->leases_fd = -1;
    snprintf(made->file, sizeof made->file, LIGI_NAME_RUN "%016" PRIx64,
             ligi_hash64_plain(request->name, strlen(request->name)));
    lig_status status = open_leases(request->volume, &made->leases_fd);
    if (status == LIG_OK)
        status = take(made, request);
    if (status == LIG_OK)
        *object = made;
    else
        destroy(made);
    return status;
}

static const ligi_shared_kind lock_kind = {create, destroy, close_files};

lig_status ligi_file_lock(void *opaque, const char *name, void **lock)
{
    const ligi_file *self = opaque;
    lock_request request = {self, name};
    struct stat info;
    char key[96];

    LIG_TRY(ligi_file_writable(self));
    if (fstat(self->folder_fd, &info) != 0)
        return ligi_fail_errno(errno, "cannot lock %s", self->place);
    snprintf(key, sizeof key, "%" PRIx64 ":%" PRIx64 ":%016" PRIx64, (uint64_t)info.st_dev,
             (uint64_t)info.st_ino, ligi_hash64_plain(name, strlen(name)));
    return ligi_shared_acquire(key, &lock_kind, LIGI_SHARED_ANY, &request, lock);
}

void ligi_file_unlock(void *lock)
{
    if (lock != NULL)
        ligi_shared_release(lock);
}

void ligi_named_lock_clean(int leases_fd, const char *file)
{
    struct stat info;
    int fd = openat(leases_fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return;
    /* A new file may be about to be locked: leave it to the next cleanup. */
    int young = fstat(fd, &info) != 0 ||
                ligi_date_ns() / 1000000000 - (int64_t)info.st_mtim.tv_sec < YOUNG_S;
    if (!young && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_current(leases_fd, file, fd))
        unlinkat(leases_fd, file, 0);
    close(fd);
}
